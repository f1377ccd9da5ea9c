// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_error.h"

#include <fmt/format.h>

#include "farandole/core/error.h"

namespace farandole::cuda {

namespace {

constexpr std::string_view kSticky =
    "; the process can use the device no more, every call fails from now on: end it and start it again";

/// The remedy for an error, to be appended to CUDA's own text; empty if none is known.
std::string_view advice(CUresult error) {
  switch (error) {
    case 34:  // CUDA_ERROR_STUB_LIBRARY
      return "; this library of the toolkit is for linking only, the driver's is named libcuda.so.1";
    case 46:  // CUDA_ERROR_DEVICE_UNAVAILABLE
      return "; another process has the device for itself: see its compute mode in nvidia-smi -q";
    case CUDA_ERROR_NO_DEVICE:
      return "; does nvidia-smi show one, and does CUDA_VISIBLE_DEVICES hide it?";
    case 209:  // CUDA_ERROR_NO_BINARY_FOR_GPU
      return "; the kernels are for devices of compute capability 7.5 and newer";
    case 222:  // CUDA_ERROR_UNSUPPORTED_PTX_VERSION
      return "; the device is newer than the kernels, and the driver older than the nvcc that compiled them: update it";
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return "; on machines with NVSwitch the service nvidia-fabricmanager must run, in the driver's version";
    case 803:  // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
      return "; libcuda and the kernel's module differ: restart the machine after an update of the driver";
    // Errors after which, by cuda.h, the process must be terminated and launched again, and hardware faults.
    case 214:  // CUDA_ERROR_ECC_UNCORRECTABLE
    case 220:  // CUDA_ERROR_NVLINK_UNCORRECTABLE
    case 226:  // CUDA_ERROR_CONTAINED
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case 702:  // CUDA_ERROR_LAUNCH_TIMEOUT
    case 710:  // CUDA_ERROR_ASSERT
    case 714:  // CUDA_ERROR_HARDWARE_STACK_ERROR
    case 715:  // CUDA_ERROR_ILLEGAL_INSTRUCTION
    case 716:  // CUDA_ERROR_MISALIGNED_ADDRESS
    case 717:  // CUDA_ERROR_INVALID_ADDRESS_SPACE
    case 718:  // CUDA_ERROR_INVALID_PC
    case 719:  // CUDA_ERROR_LAUNCH_FAILED
    case 721:  // CUDA_ERROR_TENSOR_MEMORY_LEAK
      return kSticky;
    default:
      return "";
  }
}

}  // namespace

std::string error_text(const CudaApi& api, CUresult error) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.cuGetErrorName(error, &name) != CUDA_SUCCESS || name == nullptr) {
    return fmt::format("CUDA error {}{}", error, advice(error));
  }
  if (api.cuGetErrorString(error, &text) != CUDA_SUCCESS || text == nullptr) text = "no words of CUDA's";
  return fmt::format("{} ({}): {}{}", name, error, text, advice(error));
}

void throw_cuda_error(const CudaApi& api, CUresult error, std::string_view function, std::string_view where) {
  throw DeviceError(fmt::format("{} failed on {}: {}", function, where, error_text(api, error)));
}

}  // namespace farandole::cuda
