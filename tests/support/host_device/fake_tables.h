// SPDX-License-Identifier: Apache-2.0
// For the tests of the double: its functions, found by name as the plug-in finds them, and short forms of common calls.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cuda/cuda_api.h"
#include "cuda/kernel_arguments.h"
#include "cuda/nccl_api.h"
#include "fake_device.h"
#include "fake_program_api.h"

namespace farandole::fake {

// NOLINTBEGIN(google-build-using-namespace): the names of CUDA and NCCL, as their own headers have them
using namespace cuda;
// NOLINTEND(google-build-using-namespace)

/// Functions that the plug-in calls, and functions that only programs call.
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration of a member
#define FARANDOLE_MEMBER(name, exported, parameters) CUresult(*name) parameters = nullptr;
struct ProgramCudaApi : CudaApi {
  FARANDOLE_PROGRAM_CUDA_FUNCTIONS(FARANDOLE_MEMBER)
};
#undef FARANDOLE_MEMBER

/// The tables of functions. Ends the test program if a function is missing.
const ProgramCudaApi& cuda_api();
const NcclApi& nccl_api();

/// Makes a device's primary context current on the calling thread, and returns it.
CUcontext use_device(int ordinal);
CUstream make_stream(unsigned flags = CU_STREAM_NON_BLOCKING);
CUevent make_event();
CUfunction find_kernel_by_name(const char* name);

/// A vector in memory of the current device, or in pinned memory. The destructor frees the memory.
template <class T>
class Vector {
 public:
  enum class Kind { kDevice, kPinned };
  explicit Vector(std::size_t size, Kind where = Kind::kDevice) : size_(size), kind_(where) {
    void* pinned = nullptr;
    const CUresult result = where == Kind::kDevice ? cuda_api().cuMemAlloc(&memory_, size * sizeof(T))
                                                   : cuda_api().cuMemHostAlloc(&pinned, size * sizeof(T), 0);
    EXPECT_EQ(result, CUDA_SUCCESS);
    if (where == Kind::kPinned) memory_ = reinterpret_cast<CUdeviceptr>(pinned);
  }
  /// Makes a vector of these values. Blocks until the copy is complete.
  explicit Vector(const std::vector<T>& values) : Vector(values.size()) {
    const CUstream stream = make_stream();
    EXPECT_EQ(cuda_api().cuMemcpyAsync(address(), reinterpret_cast<CUdeviceptr>(values.data()), bytes(), stream), 0);
    EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
  Vector(const Vector&) = delete;
  Vector& operator=(const Vector&) = delete;
  ~Vector() {
    if (kind_ == Kind::kDevice) {
      cuda_api().cuMemFree(memory_);
    } else {
      cuda_api().cuMemFreeHost(data());
    }
  }
  CUdeviceptr address(std::size_t first = 0) const { return memory_ + first * sizeof(T); }
  T* data() const { return reinterpret_cast<T*>(memory_); }  // NOLINT(performance-no-int-to-ptr): as the driver has it
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }
  /// Copies the values to the host in the stream; blocks until the copy is complete.
  std::vector<T> values(CUstream stream) const {
    std::vector<T> host(size_);
    EXPECT_EQ(cuda_api().cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(host.data()), memory_, bytes(), stream), 0);
    EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
    return host;
  }

 private:
  CUdeviceptr memory_ = 0;
  std::size_t size_;
  Kind kind_;
};

/// Makes a kernel's arguments. @param element_bytes  size of the kernel's elements
LargestArguments arguments_of(const std::vector<KernelTask>& tasks, std::size_t element_bytes = 1);
CUresult launch(CUfunction function, LargestArguments arguments, CUstream stream);

/// Runs `body(rank)` on `size` threads; the thread of rank r uses device r.
void on_ranks(int size, const std::function<void(int rank)>& body);
ncclUniqueId make_nccl_id();
/// Makes a communicator of the calling thread's device; release it by `destroy`.
ncclComm_t join(const ncclUniqueId& id, int size, int rank);
void destroy(ncclComm_t comm);

/// Base of tests in which misuse is counted and does not end the process. A test must take all reports.
class FakeDeviceTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  /// Takes and returns all reports so far, one per line.
  static std::string reports();
  static void set(const char* option, const char* value) { EXPECT_EQ(fake_device_set(option, value), 1) << option; }
};

}  // namespace farandole::fake
