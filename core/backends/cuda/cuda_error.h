// SPDX-License-Identifier: Apache-2.0
// Conversion of CUDA's error codes to texts and exceptions. No other file interprets the codes.
#pragma once

#include <string>
#include <string_view>

#include "cuda/cuda_api.h"

namespace farandole::cuda {

/// "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected", followed by a remedy if known.
std::string error_text(const CudaApi& api, CUresult error);

/// @param where  the device, for the message: "CUDA device 0 (NVIDIA H100 80GB HBM3)"
/// @throws DeviceError  "<function> failed on <where>: <error_text>"
[[noreturn]] void throw_cuda_error(const CudaApi& api, CUresult error, std::string_view function,
                                   std::string_view where);

inline void check(const CudaApi& api, CUresult result, std::string_view function, std::string_view where) {
  if (result != CUDA_SUCCESS) throw_cuda_error(api, result, function, where);
}

}  // namespace farandole::cuda
