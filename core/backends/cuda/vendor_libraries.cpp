// SPDX-License-Identifier: Apache-2.0
#include "cuda/vendor_libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "cuda/cuda_error.h"
#include "cuda/library_search.h"
#include "cuda/nccl_support.h"
#include "farandole/internal/vendor_functions.h"

namespace farandole::cuda {

namespace {

constexpr const char* kDriver = "libcuda.so.1";
constexpr const char* kNccl = "libnccl.so.2";

std::string fill(CudaApi& api, void* library) {
  std::string missing;
#define FARANDOLE_FIND(name, exported, parameters) find_function(library, #exported, api.name, missing);
  FARANDOLE_CUDA_FUNCTIONS(FARANDOLE_FIND)
#undef FARANDOLE_FIND
  return missing;
}

std::string fill(NcclApi& api, void* library) {
  std::string missing;
  find_function(library, "ncclGetErrorString", api.ncclGetErrorString, missing);
  find_function(library, "ncclGetLastError", api.ncclGetLastError, missing);
#define FARANDOLE_FIND(name, parameters) find_function(library, #name, api.name, missing);
  FARANDOLE_NCCL_FUNCTIONS(FARANDOLE_FIND)
#undef FARANDOLE_FIND
  return missing;
}

}  // namespace

CudaLibrary load_cuda(const std::string& path) {
  CudaLibrary cuda;
  cuda.path = path.empty() ? kDriver : path;
  void* const library = load_vendor_library(cuda.path);
  if (library == nullptr) {
    cuda.problem = fmt::format("{}: {}", path.empty() ? "no NVIDIA driver" : "FARANDOLE_CUDA_LIBRARY", dlerror());
    return cuda;
  }
  cuda.missing = fill(cuda.api, library);
  // Functions that every driver has: without them the library is something else.
  if (cuda.api.cuDriverGetVersion == nullptr || cuda.api.cuGetErrorName == nullptr ||
      cuda.api.cuGetErrorString == nullptr) {
    cuda.problem = fmt::format("{} is no CUDA driver: it has no {}", cuda.path, cuda.missing);
    dlclose(library);
    return cuda;
  }
  if (const CUresult result = cuda.api.cuDriverGetVersion(&cuda.version); result != CUDA_SUCCESS) {
    cuda.problem = fmt::format("cuDriverGetVersion of {} failed: {}", cuda.path, error_text(cuda.api, result));
  }
  return cuda;
}

NcclLibrary load_nccl(const std::string& path) {
  NcclLibrary nccl;
  const FoundLibrary found = find_library(path, "libnccl.so", {kNccl});
  if (found.handle == nullptr) {
    nccl.problem = fmt::format(
        "{}: {}; install NCCL (libnccl2, or nvidia-nccl-cu13 by pip in the active Python environment), or name its "
        "file in FARANDOLE_NCCL_LIBRARY",
        path.empty() ? "no NCCL" : "FARANDOLE_NCCL_LIBRARY", found.problem);
    return nccl;
  }
  const std::string& file = found.file;
  const std::string missing = fill(nccl.api, found.handle);
  if (nccl.api.ncclGetVersion == nullptr || nccl.api.ncclGetVersion(&nccl.version) != ncclSuccess) {
    nccl.problem = fmt::format(
        "{} is no NCCL: it has no ncclGetVersion that works; name NCCL's file in FARANDOLE_NCCL_LIBRARY", file);
  } else if (nccl.version < kOldestNccl) {
    nccl.problem = fmt::format(
        "NCCL {} ({}) is too old: {} or newer is needed; install one, or name its file in FARANDOLE_NCCL_LIBRARY",
        nccl_version_text(nccl.version), file, nccl_version_text(kOldestNccl));
  } else if (!missing.empty()) {
    nccl.problem = fmt::format("NCCL {} ({}) has no {}; name NVIDIA's own NCCL in FARANDOLE_NCCL_LIBRARY",
                               nccl_version_text(nccl.version), file, missing);
  }
  return nccl;
}

}  // namespace farandole::cuda
