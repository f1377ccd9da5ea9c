// SPDX-License-Identifier: Apache-2.0
// Direct calls of CUDA's driver and NCCL without Farandole, as the baseline of measurements.
#pragma once

#include "cuda/nccl_api.h"
#include "farandole/core/settings.h"
#include "farandole/sdk/device.h"

namespace farandole::figures {

/// Functions of the driver that the process has loaded. @throws std::runtime_error  one is missing
const cuda::CudaApi& driver();
/// @throws std::runtime_error  a call of `what` returned an error
void check_driver(cuda::CUresult result, const char* what);

/// A communicator of NCCL that Farandole knows nothing of. Not thread-safe.
class NcclAlone {
 public:
  /// Joins `size` ranks. Blocks until all do. Rank 0 makes `id` by `make_id`, and gives it to the others.
  NcclAlone(const Settings& settings, const cuda::ncclUniqueId& id, int rank, int size);
  ~NcclAlone();
  NcclAlone(const NcclAlone&) = delete;
  NcclAlone& operator=(const NcclAlone&) = delete;

  static cuda::ncclUniqueId make_id(const Settings& settings);

  /// A group of one send to `peer` and one receive from it, which may be this rank.
  void exchange(void* output, const void* input, std::size_t bytes, int peer, StreamView stream);
  /// In place, f32, sum.
  void allreduce(void* values, std::size_t count, StreamView stream);

 private:
  cuda::NcclApi api_;
  cuda::ncclComm_t communicator_ = nullptr;
};

}  // namespace farandole::figures
