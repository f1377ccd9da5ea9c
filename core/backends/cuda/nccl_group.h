// SPDX-License-Identifier: Apache-2.0
// DeviceGroup, implemented with an NCCL communicator.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cuda/cuda_device.h"
#include "cuda/nccl_api.h"
#include "farandole/sdk/device.h"

namespace farandole::cuda {

/// Makes an NCCL id. `device` must be current on the calling thread. @throws DeviceError
DeviceGroupId make_nccl_id(const NcclApi& api, const DeviceContext& device);

/// A group with an NCCL communicator in blocking mode: calls return when the work is enqueued. (In NCCL's non-blocking
/// mode each call starts a thread, and nothing may be enqueued in the stream until that thread has ended.)
class NcclGroup final : public DeviceGroup {
 public:
  /// Joins the group. Blocks until all ranks join. @param device, api  outlive the group   @throws DeviceError
  /// @throws InvalidArgument  `size` is below 2, or `rank` is not below `size`
  NcclGroup(CudaDevice& device, const NcclApi& api, const DeviceGroupId& id, int rank, int size);
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup() override;

  void exchange(std::span<const DeviceMessage> messages, StreamView stream) override;
  bool supports(Collective collective, DType dtype, ReduceOp op) const override;
  bool scales(DType dtype, ReduceOp op, double factor) const override;
  void run(const VendorCall& vendor_call, StreamView stream) override;
  void connect(StreamView stream) override;
  std::string asynchronous_error() override;
  void abort() override;

 private:
  /// Access to the communicator during a call that enqueues work. `abort` waits until no CallScope exists.
  class CallScope;
  void check(ncclResult_t result, std::string_view function) const;
  std::string error_text(ncclResult_t error) const;
  /// Runs `enqueue` between ncclGroupStart and ncclGroupEnd.
  void run_grouped(const std::function<void()>& enqueue);
  void enqueue_reduction(const VendorCall& vendor_call, CUstream stream);
  void enqueue_movement(const VendorCall& vendor_call, CUstream stream);
  /// Returns NCCL's sum that multiplies each rank's input by `factor`. The first call with a factor makes the
  /// operation; later calls reuse it. When kMaxScaledSums operations are kept, a new factor first destroys them all.
  ncclRedOp_t scaled_sum(ncclComm_t communicator, DType dtype, ncclDataType_t type, double factor);
  void exchange_parts(const VendorCall& vendor_call, StreamView stream);

  CudaDevice& device_;
  const NcclApi& api_;
  const int rank_;
  const int size_;
  void* connect_bytes_ = nullptr;  // memory of the messages of `connect`; null until `connect` is called
  std::map<std::pair<DType, std::uint64_t>, ncclRedOp_t> scaled_sums_;  // by type and bits of the factor
  const std::string name_;              // "CUDA device 0 (…), rank 1 of 4", for messages
  std::mutex mutex_;                    // guards `communicator_` and `running_calls_`
  std::condition_variable call_ended_;  // signalled when a CallScope ends
  ncclComm_t communicator_ = nullptr;   // null after `abort`
  int running_calls_ = 0;               // number of existing CallScopes
};

}  // namespace farandole::cuda
