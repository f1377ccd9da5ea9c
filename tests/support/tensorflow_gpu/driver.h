// SPDX-License-Identifier: Apache-2.0
// Functions of the double of CUDA's driver (tests/support/host_device) that the fake GPU of TensorFlow calls.
#ifndef FARANDOLE_TESTS_TENSORFLOW_GPU_DRIVER_H
#define FARANDOLE_TESTS_TENSORFLOW_GPU_DRIVER_H

#include <cstdint>

#include "cuda/cuda_api.h"
#include "fake_device.h"

namespace fake_gpu {

using namespace farandole::cuda;  // CUDA's names

/// Functions of the library that FARANDOLE_CUDA_LIBRARY names. Farandole's plug-in calls the same library, so Farandole
/// can use the streams of TensorFlow.
struct Driver : CudaApi {
  CUresult (*cuStreamSynchronize)(CUstream stream) = nullptr;
  decltype(&::fake_device_launch) launch = nullptr;
  decltype(&::fake_device_stream_address) stream_address = nullptr;
};

/// Returns the functions. Ends the process if the library or a function is missing.
const Driver& driver();

/// Makes a device's primary context current on the calling thread.
void use_device(int ordinal);

/// Ends the process with a message that names the call, if the call failed.
void check(CUresult result, const char* call);

inline CUdeviceptr address_of(const void* memory) {
  return reinterpret_cast<CUdeviceptr>(memory);
}

}  // namespace fake_gpu

#endif  // FARANDOLE_TESTS_TENSORFLOW_GPU_DRIVER_H
