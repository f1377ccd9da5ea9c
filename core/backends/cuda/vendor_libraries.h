// SPDX-License-Identifier: Apache-2.0
// The vendor's libraries, loaded at run time.
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "cuda/cuda_api.h"
#include "cuda/nccl_api.h"

namespace farandole::cuda {

/// CUDA's driver.
struct CudaLibrary {
  CudaApi api;
  int version = 0;      ///< of the newest CUDA that the driver supports: 13000 for 13.0
  std::string problem;  ///< why it is of no use at all; empty if `version` is known
  std::string missing;  ///< the first function that it lacks, which older drivers do; empty if the table is full
  std::string path;
};
/// @param path  empty: the loader's search. Calls nothing but cuDriverGetVersion. The library stays loaded.
CudaLibrary load_cuda(const std::string& path);

struct NcclLibrary {
  NcclApi api;
  int version = 0;      ///< 22809 for 2.28.9
  std::string problem;  ///< why it can not be used, and what to do; empty if it can
};
/// @param path  empty: the NCCL that the process has loaded, else the loader's search. The library stays loaded.
NcclLibrary load_nccl(const std::string& path);

/// NCCL, loaded when it is first asked for: a program may load its own before that. Thread-safe.
class Nccl {
 public:
  explicit Nccl(std::string path) : path_(std::move(path)) {}
  /// One that is loaded already (tests).
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
  NcclLibrary library_;  // const after `loaded_`
};

}  // namespace farandole::cuda
