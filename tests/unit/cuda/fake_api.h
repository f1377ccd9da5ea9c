// SPDX-License-Identifier: Apache-2.0
// Tables of CUDA's and NCCL's functions that record their calls and fail when a test says so. For devices that compute
// and run in parallel, use the double in tests/support.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cuda/cuda_api.h"
#include "cuda/kernel_arguments.h"
#include "cuda/kernel_image.h"
#include "cuda/nccl_api.h"
#include "cuda/vendor_libraries.h"

namespace farandole::cuda {

/// Calls recorded by the functions of the tables, and their configured results. One object per program; call `reset`
/// before each test.
struct FakeVendor {
  struct Launch {
    std::string kernel;
    unsigned blocks = 0;
    std::vector<std::uint64_t> counts;  // of its tasks
  };
  // Answers.
  std::map<std::string, CUresult> cuda_results;  // by function; else success
  std::map<std::string, ncclResult_t> nccl_results;
  std::string nccl_last_error;
  ncclResult_t nccl_asynchronous_error = ncclSuccess;
  std::function<void()> in_group_end;  // what ncclGroupEnd does, if anything
  std::size_t device_bytes = 1 << 30;  // that cuMemAlloc has
  int device_count = 2;
  float elapsed_milliseconds = 0;       // cuEventElapsedTime
  bool writes_values = true;            // cuStreamWriteValue32, at once
  const void* device_memory = nullptr;  // what cuPointerGetAttribute takes for memory of device 1
  // Seen.
  std::size_t allocated_bytes = 0;
  CUdeviceptr next_address = 1 << 20;  // of memory that nothing touches
  std::map<CUdeviceptr, std::size_t> blocks;
  std::vector<std::string> nccl_calls;  // with what they were called with
  std::vector<Launch> launches;
  std::set<std::string> loaded_kernels;  // whose attributes were asked for
  int group_depth = 0;
  int event_queries = 0;
  int events_made = 0;
  unsigned event_flags = 0;  // of the event made last
  int mode_of_elapsed = -1;  // as mode_of_query, in cuEventElapsedTime
  int mode_of_query = -1;    // capture mode of the thread in cuEventQuery
  CUcontext context_of_nccl = nullptr;
  bool was_aborted = false;
};
FakeVendor& vendor();
void reset_vendor();

/// The context of the calling thread, and its mode of capturing, as the fake driver has them.
CUcontext& current_context();
int& capture_mode();

/// A pointer that nothing follows.
template <class Pointer = void*>
Pointer pointer_of(std::uintptr_t number) {
  return std::bit_cast<Pointer>(number);
}

inline constexpr std::size_t kMiB = 1 << 20;
/// Kernels that a fake driver takes.
inline const KernelImage kFakeImage = kernel_image("kernels", 7, 13000);

CudaApi fake_cuda();
/// A fake NCCL of a version without known problems.
NcclLibrary fake_nccl();

}  // namespace farandole::cuda
