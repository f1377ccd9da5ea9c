// SPDX-License-Identifier: Apache-2.0
#include "cudnn.h"

#include <fmt/format.h>

#include <array>

#include "farandole/core/error.h"
#include "farandole/internal/vendor_functions.h"
#include "required_library.h"

namespace farandole::trainer::cuda {
namespace {

constexpr const char* kCudnnRemedy =
    "install cuDNN 9 of the driver's CUDA (nvidia-cudnn-cu13 or nvidia-cudnn-cu12 by pip in the active Python "
    "environment), or name its file in FARANDOLE_CUDNN_LIBRARY";
constexpr std::string_view kOff = "off";
constexpr std::size_t kOldestVersion = 90000;

/// Fills the table. Returns why the library cannot be used; empty if it can.
std::string fill(CudnnLibrary& cudnn, void* library, const std::string& file, int driver) {
  std::string missing;
#define FARANDOLE_FIND(result, name, parameters) find_function(library, #name, cudnn.api.name, missing);
  FARANDOLE_CUDNN_FUNCTIONS(FARANDOLE_FIND)
#undef FARANDOLE_FIND
  if (cudnn.api.cudnnGetVersion == nullptr) return fmt::format("{} is no cuDNN: it has no cudnnGetVersion", file);
  const std::size_t version = cudnn.api.cudnnGetVersion();
  cudnn.number = version;
  cudnn.version = version_text(version);
  const std::string found = fmt::format("cuDNN {} ({})", cudnn.version, file);
  if (version < kOldestVersion) {
    return fmt::format("{} is too old: {} or newer is needed", found, version_text(kOldestVersion));
  }
  if (!missing.empty()) return fmt::format("{} has no {}", found, missing);
  const auto needed = static_cast<int>(cudnn.api.cudnnGetCudartVersion()) / 1000;
  if (needed <= driver / 1000) return {};
  return fmt::format("{} is for CUDA {}, but the driver supports CUDA {} at most", found, needed, driver / 1000);
}

std::string_view hint(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_NOT_INITIALIZED:
      return ": cuDNN cannot use this device or driver";
    case CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED:
      return ": one of the libraries that belong to libcudnn.so.9 is missing";
    default:
      return "";
  }
}

}  // namespace

std::string version_text(std::size_t version) {
  if (version < 10000) return fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

CudnnLibrary load_cudnn(const std::string& path, int driver) {
  CudnnLibrary cudnn;
  if (path == kOff) {
    cudnn.why_not = "FARANDOLE_CUDNN_LIBRARY=off";
    return cudnn;
  }
  try {
    load_library({"cuDNN", "FARANDOLE_CUDNN_LIBRARY", "libcudnn.so", {"libcudnn.so.9"}, kCudnnRemedy}, path,
                 [&](void* library, const std::string& file) { return fill(cudnn, library, file, driver); });
  } catch (const Unsupported& error) {
    if (!path.empty()) throw;
    cudnn.why_not = message_of(error);
  }
  return cudnn;
}

cudnnDataType_t cudnn_type_of(DType compute) {
  if (compute == DType::kBF16) return CUDNN_DATA_BFLOAT16;
  return compute == DType::kF16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

std::string last_error_of(const CudnnApi& api) {
  std::array<char, 512> details{};
  api.cudnnGetLastErrorString(details.data(), details.size());
  return details[0] == '\0' ? "" : fmt::format("; cuDNN says: {}", details.data());
}

Cudnn::Cudnn(const CudnnApi& api, Device& device, StreamView stream) : api_(api), device_(device), stream_(stream) {
  device_.run_bound([&] {
    check(api_.cudnnCreate(&handle_), "cudnnCreate");
    try {
      check(api_.cudnnSetStream(handle_, static_cast<farandole::cuda::CUstream>(stream.handle)), "cudnnSetStream");
    } catch (...) {
      api_.cudnnDestroy(handle_);
      throw;
    }
  });
}

Cudnn::~Cudnn() {
  device_.run_bound([&] { api_.cudnnDestroy(handle_); });
}

void Cudnn::check(cudnnStatus_t result, std::string_view function) const {
  if (result == CUDNN_STATUS_SUCCESS) return;
  throw DeviceError(
      fmt::format("{} failed on CUDA device {} ({}): {} ({}){}{}; FARANDOLE_CUDNN_LIBRARY=off computes without cuDNN",
                  function, device_.info().ordinal, device_.info().name, api_.cudnnGetErrorString(result), result,
                  hint(result), last_error_of(api_)));
}

}  // namespace farandole::trainer::cuda
