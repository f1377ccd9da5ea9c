// SPDX-License-Identifier: Apache-2.0
// cuDNN, loaded at run time, and its handle of a stream.
#pragma once

#include <string>
#include <string_view>

#include "cudnn_api.h"
#include "farandole/core/dtype.h"
#include "farandole/sdk/device.h"

namespace farandole::trainer::cuda {

/// cuDNN, or why it is not used.
struct CudnnLibrary {
  CudnnApi api;
  std::size_t number = 0;  ///< 91900
  std::string version;     ///< "9.19.0"
  std::string why_not;     ///< empty if cuDNN can be used
};

/// Returns "9.19.0" of 91900, and "8.9.7" of 8907, as versions before 9 are written.
std::string version_text(std::size_t version);

/// Loads cuDNN, which stays loaded.
/// @param path  empty: a cuDNN that the process has loaded, else the loader's search; "off": none   @param driver  the
/// newest CUDA that the driver supports, 13000 for 13.0; a cuDNN of a newer generation does not work with it
/// @throws Unsupported  `path` names a file that cannot be used; with a remedy
CudnnLibrary load_cudnn(const std::string& path, int driver);

/// cuDNN's number of a type in which products are computed: kF32, kBF16 or kF16.
cudnnDataType_t cudnn_type_of(DType compute);

/// Returns "; cuDNN says: " and why this thread's last call failed; empty if cuDNN says nothing.
std::string last_error_of(const CudnnApi& api);

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
