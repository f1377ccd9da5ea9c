// SPDX-License-Identifier: Apache-2.0
// cuDNN, loaded at run time, and its handle of a stream.
#pragma once

#include <string>
#include <string_view>

#include "cudnn_api.h"
#include "farandole/sdk/device.h"

namespace farandole::trainer::cuda {

/// cuDNN, or why it is not used.
struct CudnnLibrary {
  CudnnApi api;
  std::string version;  ///< "9.19.0"
  std::string why_not;  ///< empty if cuDNN can be used
};

/// Loads cuDNN, which stays loaded.
/// @param path  empty: a cuDNN that the process has loaded, else the loader's search; "off": none   @param driver  the
/// newest CUDA that the driver supports, 13000 for 13.0; a cuDNN of a newer generation does not work with it
/// @throws Unsupported  `path` names a file that cannot be used; with a remedy
CudnnLibrary load_cudnn(const std::string& path, int driver);

/// A handle of cuDNN, which enqueues its work in one stream of a device. Used by one thread at a time.
class Cudnn {
 public:
  /// @param api, device  outlive this object   @throws DeviceError
  Cudnn(const CudnnApi& api, Device& device, StreamView stream);
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  const CudnnApi& api() const { return api_; }
  cudnnHandle_t handle() const { return handle_; }
  Device& device() const { return device_; }
  StreamView stream() const { return stream_; }
  /// @throws DeviceError  `result`, returned by `function` to this thread, is an error
  void check(cudnnStatus_t result, std::string_view function) const;

 private:
  const CudnnApi& api_;
  Device& device_;
  const StreamView stream_;
  cudnnHandle_t handle_ = nullptr;
};

}  // namespace farandole::trainer::cuda
