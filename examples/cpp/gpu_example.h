// SPDX-License-Identifier: Apache-2.0
// What the examples for GPUs share: the device of a rank, and CUDA's errors, streams and memory in C++.
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

/// What these programs end with where a rank has no usable device: the status by which CTest and Automake skip a test.
inline constexpr int kNoDeviceStatus = 77;

/// Throws, with CUDA's text, unless the call has succeeded.
inline void check(cudaError_t result, const char* call) {
  if (result != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(result));
}

/// The device of this rank, which also becomes CUDA's current one. Empty if any rank has none; each of those prints
/// why. Collective: all ranks.
inline std::optional<farandole::MemorySpace> use_device(farandole::Communicator& ranks) {
  farandole::MemorySpace device;
  try {
    device = ranks.device();
  } catch (const farandole::InvalidArgument& error) {
    std::fprintf(stderr, "%s has no usable device: %s\n", ranks.describe(ranks.rank()).c_str(), error.what());
  }
  // A rank that ended alone would leave the others waiting, and they would report that it is lost.
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

/// `count` elements in memory of the current device, used in one stream.
template <class T>
class CudaArray {
 public:
  /// @param stream  outlives the array
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
  /// The same memory, as Farandole's calls take it.
  farandole::BufferView view(farandole::MemorySpace device) const {
    return {data_, count_, farandole::dtype_of<T>, device};
  }
  /// Enqueues a copy of `count` values, which must stay until the stream has come to it.
  void write(const std::vector<T>& values) {
    check(cudaMemcpyAsync(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
  }
  /// What the array holds when the stream has come to this. Blocks.
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
