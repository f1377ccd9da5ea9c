// SPDX-License-Identifier: Apache-2.0
#include "cublas.h"

#include <fmt/format.h>

#include "farandole/core/error.h"
#include "farandole/internal/vendor_functions.h"
#include "required_library.h"

namespace farandole::trainer::cuda {
namespace {

constexpr const char* kCublasRemedy =
    "install cuBLAS of the driver's CUDA (libcublas, or nvidia-cublas by pip in the active Python environment), or "
    "name its file in FARANDOLE_CUBLAS_LIBRARY";
/// What NVIDIA recommends for Hopper. A workspace of our own makes products reproducible and allows graphs.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

RequiredLibrary cublas_for(int driver) {
  RequiredLibrary library{"cuBLAS", "FARANDOLE_CUBLAS_LIBRARY", "libcublas.so", {}, kCublasRemedy};
  for (const int generation : {13, 12}) {
    if (driver >= generation * 1000) library.names.push_back(fmt::format("libcublas.so.{}", generation));
  }
  return library;
}

std::string status_text(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED (1): cuBLAS cannot use this device or driver";
    case 3:
      return "CUBLAS_STATUS_ALLOC_FAILED (3): the device has no memory left";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE (7)";
    case 8:
      return "CUBLAS_STATUS_ARCH_MISMATCH (8): this cuBLAS has no code for the device";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED (13): the device has failed";
    case 15:
      return "CUBLAS_STATUS_NOT_SUPPORTED (15)";
    default:
      return fmt::format("cuBLAS's status {}", status);
  }
}

}  // namespace

CublasApi load_cublas(const std::string& path, int driver) {
  CublasApi api;
  load_library(cublas_for(driver), path, [&api](void* library, const std::string& file) {
    std::string missing;
#define FARANDOLE_FIND(name, exported, parameters) find_function(library, #exported, api.name, missing);
    FARANDOLE_CUBLAS_FUNCTIONS(FARANDOLE_FIND)
#undef FARANDOLE_FIND
    if (!missing.empty()) missing = fmt::format("{} is no cuBLAS of CUDA 12 or newer: it has no {}", file, missing);
    return missing;
  });
  return api;
}

Cublas::Cublas(const CublasApi& api, Device& device, StreamView stream) : api_(api), device_(device) {
  device_.run_bound([&] { check(api_.cublasCreate(&handle_), "cublasCreate"); });
  try {
    workspace_ = device_.allocate(kWorkspaceBytes);
    device_.run_bound([&] {
      check(api_.cublasSetStream(handle_, static_cast<farandole::cuda::CUstream>(stream.handle)), "cublasSetStream");
      check(api_.cublasSetWorkspace(handle_, workspace_, kWorkspaceBytes), "cublasSetWorkspace");
    });
  } catch (...) {
    if (workspace_ != nullptr) device_.release(workspace_);
    device_.run_bound([&] { api_.cublasDestroy(handle_); });
    throw;
  }
}

Cublas::~Cublas() {
  device_.run_bound([&] { api_.cublasDestroy(handle_); });
  device_.release(workspace_);
}

void Cublas::check(cublasStatus_t result, std::string_view function) const {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(fmt::format("{} failed on CUDA device {} ({}): {}", function, device_.info().ordinal,
                                device_.info().name, status_text(result)));
}

}  // namespace farandole::trainer::cuda
