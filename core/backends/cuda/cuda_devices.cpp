// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <utility>

#include "cuda/cuda_error.h"
#include "farandole/core/error.h"
#include "farandole/internal/library_thread.h"

namespace farandole::cuda {

namespace {

/// "GPU-5f3a9c2e-…", as nvidia-smi -L writes a UUID.
std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<std::uint8_t>(uuid.bytes[i]));
  }
  return text;
}

/// NVIDIA's version of the driver, "580.159.03 ", as the kernel module reports it. Empty if there is no such report, or
/// if the driver's library was named by path and may be another driver.
std::string driver_number(const CudaLibrary& cuda) {
  std::string number;
  if (cuda.path.find('/') == std::string::npos) std::ifstream("/sys/module/nvidia/version") >> number;
  return number.empty() ? "" : number + " ";
}

}  // namespace

std::unique_ptr<CudaDevices> CudaDevices::find(CudaLibrary cuda, std::span<const KernelImage> images,
                                               std::string nccl_path, std::string& reason) {
  if (!cuda.problem.empty()) {
    reason = cuda.problem;
    return nullptr;
  }
  const KernelImage* const image = image_for(images, cuda.version);
  if (image == nullptr) {
    reason = why_no_image(images, cuda.version);
    return nullptr;
  }
  if (!cuda.missing.empty()) {
    reason = fmt::format("{}, a driver for CUDA {}, has no {}; install NVIDIA's own driver anew", cuda.path,
                         cuda_version_text(cuda.version), cuda.missing);
    return nullptr;
  }
  std::unique_ptr<CudaDevices> devices(new CudaDevices(std::move(cuda), *image, std::move(nccl_path)));
  reason = devices->enumerate();
  return reason.empty() ? std::move(devices) : nullptr;
}

CudaDevices::CudaDevices(CudaLibrary cuda, const KernelImage& image, std::string nccl_path)
    : cuda_(std::move(cuda)), image_(image), nccl_(std::move(nccl_path)) {}

std::string CudaDevices::enumerate() {
  if (const CUresult result = cuda_.api.cuInit(0); result != CUDA_SUCCESS) {
    return fmt::format("cuInit failed: {}", error_text(cuda_.api, result));
  }
  int count = 0;
  if (const CUresult result = cuda_.api.cuDeviceGetCount(&count); result != CUDA_SUCCESS) {
    return fmt::format("cuDeviceGetCount failed: {}", error_text(cuda_.api, result));
  }
  if (count == 0) return "CUDA sees no device here; does nvidia-smi show one, and does CUDA_VISIBLE_DEVICES hide it?";
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    infos_.push_back(query_device(ordinal));
    lazy_devices_.push_back(std::make_unique<LazyDevice>());
  }
  return {};
}

void CudaDevices::check(CUresult result, std::string_view function, int ordinal) const {
  cuda::check(cuda_.api, result, function, fmt::format("CUDA device {}", ordinal));
}

DeviceInfo CudaDevices::query_device(int ordinal) {
  const CudaApi& api = cuda_.api;
  DeviceInfo info;
  info.ordinal = ordinal;
  CUdevice device = 0;
  check(api.cuDeviceGet(&device, ordinal), "cuDeviceGet", ordinal);
  std::array<char, 256> name{};
  check(api.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device), "cuDeviceGetName", ordinal);
  info.name = name.data();
  CUuuid uuid{};
  check(api.cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid", ordinal);
  info.identity = uuid_text(uuid);
  check(api.cuDeviceTotalMem(&info.memory_bytes, device), "cuDeviceTotalMem", ordinal);
  int major = 0;
  int minor = 0;
  check(api.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "cuDeviceGetAttribute",
        ordinal);
  check(api.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device), "cuDeviceGetAttribute",
        ordinal);
  info.compute_capability = 10 * major + minor;
  return info;
}

std::string CudaDevices::version() const {
  return fmt::format("driver {}(CUDA {}), {}", driver_number(cuda_), cuda_version_text(cuda_.version),
                     collectives_version());
}

std::string CudaDevices::collectives_version() const {
  const int nccl = nccl_.library().version;
  return nccl > 0 ? "NCCL " + nccl_version_text(nccl) : "no NCCL";
}

std::vector<std::string> CudaDevices::warnings() const {
  std::vector<std::string> warnings;
  if (std::string warning = nccl_warning(nccl_.library().version); !warning.empty()) {
    warnings.push_back(std::move(warning));
  }
  return warnings;
}

Device& CudaDevices::open(int ordinal) {
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= lazy_devices_.size()) {
    std::vector<std::string> names;
    for (const DeviceInfo& info : infos_) names.push_back(fmt::format("{} ({})", info.ordinal, info.name));
    throw InvalidArgument(
        fmt::format("there is no CUDA device {} in this process, which sees {}; see FARANDOLE_DEVICE and "
                    "CUDA_VISIBLE_DEVICES",
                    ordinal, fmt::join(names, ", ")));
  }
  LazyDevice& lazy = *lazy_devices_[static_cast<std::size_t>(ordinal)];
  const std::lock_guard guard(lazy.mutex);
  if (lazy.device == nullptr) {
    const SignalsDiverted from_threads_of_driver;
    lazy.device = std::make_unique<CudaDevice>(cuda_.api, nccl_, infos_[static_cast<std::size_t>(ordinal)], image_);
  }
  return *lazy.device;
}

MemorySpace CudaDevices::space_of(const void* memory) const {
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  unsigned type = 0;
  // An error means an address that CUDA does not know: host memory.
  if (cuda_.api.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS) return {};
  if (type != CU_MEMORYTYPE_DEVICE) return {};
  int ordinal = 0;
  if (cuda_.api.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) != CUDA_SUCCESS) {
    return {};
  }
  return {MemoryKind::kCuda, static_cast<std::uint16_t>(ordinal)};
}

}  // namespace farandole::cuda
