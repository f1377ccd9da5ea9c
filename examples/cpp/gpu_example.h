// SPDX-License-Identifier: Apache-2.0
// Helpers of the examples for GPUs: the device of a rank, and CUDA's errors, streams and memory in C++.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"

/// Exit status if a rank has no usable device. CTest and Automake treat this status as a skipped test.
inline constexpr int kNoDeviceStatus = 77;

/// Throws an exception with CUDA's text if the call has failed.
inline void check(cudaError_t result, const char* call) {
  if (result != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(result));
}

/// Returns the device of this rank, and makes it CUDA's current device. Returns nothing if any rank has no device;
/// ranks without a device print the reason. Collective: all ranks.
inline std::optional<farandole::MemorySpace> use_device(farandole::Communicator& ranks) {
  farandole::MemorySpace device;
  try {
    device = ranks.device();
  } catch (const farandole::InvalidArgument& error) {
    std::fprintf(stderr, "%s has no usable device: %s\n", ranks.describe(ranks.rank()).c_str(), error.what());
  }
  // The ranks agree, because the other ranks would wait for a rank that ended alone, and then report it as lost.
  std::vector<int> have_one{device.is_host() ? 0 : 1};
  ranks.allreduce(have_one, farandole::ReduceOp::kMin);
  if (have_one.front() == 0) return std::nullopt;
  check(cudaSetDevice(device.ordinal), "cudaSetDevice");
  return device;
}

/// A stream of the current device.
class CudaStream {
 public:
  CudaStream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  ~CudaStream() { cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Array of `count` elements in memory of the current device, used in one stream only.
template <class T>
class CudaArray {
 public:
  /// @param stream  must outlive the array
  CudaArray(std::size_t count, const CudaStream& stream) : count_(count), stream_(stream.get()) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
    data_ = static_cast<T*>(memory);
  }
  ~CudaArray() {
    cudaStreamSynchronize(stream_);
    cudaFree(data_);
  }
  CudaArray(const CudaArray&) = delete;
  CudaArray& operator=(const CudaArray&) = delete;

  T* data() const { return data_; }
  /// View of the array, as an argument of Farandole's calls.
  farandole::BufferView view(farandole::MemorySpace device) const {
    return {data_, count_, farandole::dtype_of<T>, device};
  }
  /// Enqueues a copy of `count` values to the device. `values` must stay valid until the stream has executed the copy.
  void write(const std::vector<T>& values) {
    check(cudaMemcpyAsync(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
  }
  /// Returns the contents of the array, ordered after earlier work of the stream. Blocks.
  std::vector<T> read() const {
    std::vector<T> values(count_);
    check(cudaMemcpyAsync(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost, stream_),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return values;
  }

 private:
  const std::size_t count_;
  const cudaStream_t stream_;
  T* data_ = nullptr;
};
