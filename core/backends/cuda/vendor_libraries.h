// SPDX-License-Identifier: Apache-2.0
// Loading of CUDA's driver library and NCCL at run time.
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "cuda/cuda_api.h"
#include "cuda/nccl_api.h"

namespace farandole::cuda {

/// The loaded driver library, libcuda.
struct CudaLibrary {
  CudaApi api;
  int version = 0;      ///< newest CUDA version that the driver supports: 13000 for 13.0
  std::string problem;  ///< why the library cannot be used at all; empty if `version` is known
  std::string missing;  ///< name of the first function that an old driver lacks; empty if `api` is complete
  std::string path;
};
/// Loads libcuda, which stays loaded. Calls only cuDriverGetVersion, so the driver is not initialised.
/// @param path  empty: the loader's search
CudaLibrary load_cuda(const std::string& path);

/// The loaded NCCL library.
struct NcclLibrary {
  NcclApi api;
  int version = 0;      ///< 22809 for 2.28.9
  std::string problem;  ///< why NCCL cannot be used, with a remedy; else empty
};
/// Loads NCCL, which stays loaded.
/// @param path  empty: an NCCL that the process has already loaded, else the loader's search, else one of the active
/// Python environment
NcclLibrary load_nccl(const std::string& path);

/// NCCL, loaded on first use, so that a program can load another NCCL first, which is then used. Thread-safe.
class Nccl {
 public:
  explicit Nccl(std::string path) : path_(std::move(path)) {}
  /// For tests: uses a library that is already loaded.
  explicit Nccl(NcclLibrary library) : library_(std::move(library)) {
    std::call_once(loaded_, [] {});
  }

  const NcclLibrary& library() {
    std::call_once(loaded_, [this] { library_ = load_nccl(path_); });
    return library_;
  }

 private:
  const std::string path_;
  std::once_flag loaded_;
  NcclLibrary library_;  // const once `loaded_` is done
};

}  // namespace farandole::cuda
