// SPDX-License-Identifier: Apache-2.0
// The double of CUDA's runtime API: the part that the examples use, with NVIDIA's names, numbers and meanings. A C++
// compiler compiles programs that are written for this API, kernels included, and they run without a GPU.
//
// Limits: kernels have one-dimensional grids, and neither shared memory nor barriers, because the threads of a launch
// run one after another, in a stream of the double. Kernels must get each address of device memory as a separate
// argument; addresses inside structs would not be translated to those that streams use.
#pragma once

#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier): CUDA's names
#define __global__
#define __device__
#define __launch_bounds__(...)
#define __grid_constant__

enum cudaError_t : int { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaMemcpyKind : int { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDefault = 4 };
using cudaStream_t = struct StreamOfDouble*;  // not CUstream_st, which cuda_api.h declares in a namespace
inline constexpr unsigned cudaStreamNonBlocking = 1;

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned of_x = 1, unsigned of_y = 1, unsigned of_z = 1) : x(of_x), y(of_y), z(of_z) {}
};
struct uint3 {
  unsigned x, y, z;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  void* attrs;
  unsigned numAttrs;
};

extern "C" {
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
}

// CUDA's built-in variables of the kernel's current thread.
inline thread_local dim3 gridDim, blockDim;
inline thread_local uint3 blockIdx, threadIdx;

namespace farandole::fake {

/// Enqueues a kernel. @param run  runs all threads of the kernel   @param pointers  the kernel's arguments that are
/// addresses, as the program passed them
cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> run,
                   const std::vector<const void*>& pointers);

template <class T>
void note_pointer([[maybe_unused]] std::vector<const void*>& pointers, [[maybe_unused]] const T& argument) {
  if constexpr (std::is_pointer_v<T>) pointers.push_back(argument);
}

/// Translates an address of the program into the address that streams use for the same memory.
const void* address_for_streams(const void* address);
/// Translates an argument of a kernel: pointers become addresses for streams, other arguments stay unchanged.
template <class T>
T argument_for_streams(const T& argument) {
  if constexpr (std::is_pointer_v<T>) {
    return static_cast<T>(const_cast<void*>(address_for_streams(argument)));
  } else {
    return argument;
  }
}

}  // namespace farandole::fake

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  return [&](Parameters... values) {
    std::vector<const void*> pointers;
    (farandole::fake::note_pointer(pointers, values), ...);
    const auto run = [kernel, grid = config->gridDim, block = config->blockDim,
                      ... seen = farandole::fake::argument_for_streams(values)] {
      gridDim = grid;
      blockDim = block;
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
        for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) kernel(seen...);
      }
    };
    return farandole::fake::launch(*config, run, pointers);
  }(std::forward<Arguments>(arguments)...);
}
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)
