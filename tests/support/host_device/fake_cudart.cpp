// SPDX-License-Identifier: Apache-2.0
// The double of libcudart, built on the double of libcuda. As in CUDA, the first use makes the primary context current.
#include "cuda_runtime.h"

#include <bit>
#include <utility>

#include "fake_devices.h"
#include "fake_exports.h"
#include "fake_faults.h"
#include "fake_kernels.h"

namespace farandole::fake {

namespace {

cudaError_t result_of(CUresult result) {
  return static_cast<cudaError_t>(result);
}

CUstream handle_of(cudaStream_t stream) {
  return reinterpret_cast<CUstream>(stream);
}

CUdeviceptr address_of(const void* memory) {
  return reinterpret_cast<CUdeviceptr>(memory);
}

// Makes device 0 current in a thread that has not chosen a device.
cudaError_t use_some_device() {
  return current_device() == nullptr ? cudaSetDevice(0) : cudaSuccess;
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> run,
                   const std::vector<const void*>& pointers) {
  if (const cudaError_t failed = use_some_device(); failed != cudaSuccess) return failed;
  const dim3 grid = config.gridDim, block = config.blockDim;
  const bool has_lines_only = grid.y == 1 && grid.z == 1 && block.y == 1 && block.z == 1;
  const LaunchShape shape{{grid.x, 1, 1}, {block.x, 1, 1}, static_cast<unsigned>(config.dynamicSmemBytes)};
  if (!has_lines_only || !is_valid(shape) || config.numAttrs != 0) return cudaErrorInvalidValue;
  Stream* const stream = stream_of(handle_of(config.stream), *current_device());
  if (stream == nullptr || &stream->device != current_device()) {
    misuse("cudaLaunchKernelEx on {}, which is no stream of device {}", fmt::ptr(config.stream),
           current_device()->ordinal);
    return cudaErrorInvalidValue;
  }
  Item item{.call = "cudaLaunchKernelEx"};
  for (const void* const pointer : pointers) {
    const Access access{pointer, 1, false, "argument"};  // one byte, because a kernel's extent of access is unknown
    if (!item.uses.add(item.call, stream->device.ordinal, Reach::kDevice, access)) return cudaErrorInvalidValue;
  }
  item.work = [run = std::move(run)](Random& /*random*/) { run(); };
  stream->device.enqueue(*stream, std::move(item));
  return cudaSuccess;
}

const void* address_for_streams(const void* address) {
  return stream_address(address);
}

extern "C" {

const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  return cuGetErrorString(error, &text) == CUDA_SUCCESS ? text : "unrecognized error code";
}

cudaError_t cudaSetDevice(int device) {
  CUcontext context = nullptr;
  CUresult result = cuInit(0);
  if (result == CUDA_SUCCESS) result = cuDevicePrimaryCtxRetain(&context, device);
  if (result == CUDA_SUCCESS) result = cuCtxSetCurrent(context);
  return result_of(result);
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (const cudaError_t failed = use_some_device(); failed != cudaSuccess) return failed;
  CUdeviceptr address = 0;
  const CUresult result = cuMemAlloc_v2(&address, bytes);
  *memory = std::bit_cast<void*>(address);
  return result_of(result);
}

cudaError_t cudaFree(void* memory) {
  if (const cudaError_t failed = use_some_device(); failed != cudaSuccess) return failed;
  return result_of(cuMemFree_v2(address_of(memory)));
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  if (const cudaError_t failed = use_some_device(); failed != cudaSuccess) return failed;
  return result_of(cuMemcpyAsync(address_of(target), address_of(source), bytes, handle_of(stream)));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (const cudaError_t failed = use_some_device(); failed != cudaSuccess) return failed;
  return result_of(cuStreamCreate(reinterpret_cast<CUstream*>(stream), flags));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t failed = use_some_device(); failed != cudaSuccess) return failed;
  return result_of(cuStreamSynchronize(handle_of(stream)));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (const cudaError_t failed = use_some_device(); failed != cudaSuccess) return failed;
  return result_of(cuStreamDestroy_v2(handle_of(stream)));
}

}  // extern "C"

}  // namespace farandole::fake
