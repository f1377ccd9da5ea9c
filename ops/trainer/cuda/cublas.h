// SPDX-License-Identifier: Apache-2.0
// cuBLAS, loaded at run time, and its handle of a stream.
#pragma once

#include <string>
#include <string_view>

#include "cublas_api.h"
#include "farandole/sdk/device.h"

namespace farandole::trainer::cuda {

/// Loads cuBLAS, which stays loaded.
/// @param path  empty: a cuBLAS that the process has loaded, else the loader's search, else one of the active Python
/// environment   @param driver  the newest CUDA that the driver supports, 13000 for 13.0; a cuBLAS of a newer
/// generation does not work with it
/// @throws Unsupported  there is no cuBLAS, or it lacks a function; with a remedy
CublasApi load_cublas(const std::string& path, int driver);

/// A handle of cuBLAS, which enqueues its products in one stream of a device. Used by one thread at a time.
class Cublas {
 public:
  /// @param api, device  outlive this object
  /// @throws DeviceError
  Cublas(const CublasApi& api, Device& device, StreamView stream);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  const CublasApi& api() const { return api_; }
  cublasHandle_t handle() const { return handle_; }
  Device& device() const { return device_; }
  /// @throws DeviceError  `result`, returned by `function`, is an error
  void check(cublasStatus_t result, std::string_view function) const;

 private:
  const CublasApi& api_;
  Device& device_;
  cublasHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
};

}  // namespace farandole::trainer::cuda
