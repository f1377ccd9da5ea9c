// SPDX-License-Identifier: Apache-2.0
// The ranks of a communicator, by NCCL.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "cuda/cuda_device.h"
#include "cuda/nccl_api.h"
#include "farandole/sdk/device.h"

namespace farandole::cuda {

/// The thread's device is that of `device`. @throws DeviceError
DeviceGroupId make_nccl_id(const NcclApi& api, const DeviceContext& device);

/// A communicator whose calls block until NCCL has enqueued what they ask for. (Those that do not block start a thread
/// for each call, and nothing may be enqueued on their stream until that has ended.)
class NcclGroup final : public DeviceGroup {
 public:
  /// Blocks until all ranks do. @param device, api  outlive the group   @throws DeviceError
  /// @throws InvalidArgument  fewer than 2 ranks, or a rank beyond them
  NcclGroup(CudaDevice& device, const NcclApi& api, const DeviceGroupId& id, int rank, int size);
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup() override;

  void exchange(std::span<const DeviceMessage> messages, StreamView stream) override;
  bool supports(DeviceCollective::Kind kind, DType dtype, ReduceOp op) const override;
  void run(const DeviceCollective& collective, StreamView stream) override;
  void connect(StreamView stream) override;
  std::string asynchronous_error() override;
  void abort() override;

 private:
  /// The communicator, for calls that enqueue: while this lives, `abort` waits.
  class Entry;
  void check(ncclResult_t result, std::string_view function) const;
  std::string error_text(ncclResult_t error) const;
  void in_one_group(const std::function<void()>& enqueue);
  void reduce_as(const DeviceCollective& collective, CUstream stream);
  void move_as(const DeviceCollective& collective, CUstream stream);
  void exchange_parts(const DeviceCollective& collective, StreamView stream);

  CudaDevice& device_;
  const NcclApi& api_;
  const int rank_;
  const int size_;
  void* connect_bytes_ = nullptr;  // what the first messages are of; null until it is connected
  const std::string name_;         // "CUDA device 0 (…), rank 1 of 4"
  std::mutex mutex_;               // guards the next two
  std::condition_variable left_;
  ncclComm_t communicator_ = nullptr;  // null once the group is aborted
  int entries_ = 0;                    // calls of NCCL's that use it
};

}  // namespace farandole::cuda
