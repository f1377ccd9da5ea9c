// SPDX-License-Identifier: Apache-2.0
// Farandole as a backend of torch.distributed.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "job.h"
#include "tensors.h"
#include "work.h"
#include "work_list.h"

namespace farandole_torch {

/// A process group of torch. Functions have the meaning that c10d::Backend gives them; what c10d's header calls
/// deprecated forwards to the newer name, and exists in all versions of torch, so it is what this class overrides.
///
/// A call with `asyncOp` false blocks, and its Work is done; other calls return at once. Thread-safe: a mutex is held
/// while a call starts or blocks.
class FarandoleBackend final : public c10d::Backend {
 public:
  explicit FarandoleBackend(const GroupPlan& plan);
  ~FarandoleBackend() override;

  const std::string getBackendName() const override { return "farandole"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  /// Limits later waits for calls. The group's own timeout, at which the job fails, stays as it was made.
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10d::ErrorType getError() override { return c10d::ErrorType::SUCCESS; }

  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override;
  WorkPointer gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  /// torch before 2.14 does not have this function.
  virtual WorkPointer gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options);
  WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                            std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  /// @throws FarandoleError  Timeout, on all ranks that have called it, which names the ranks that are late
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  WorkPointer send(Tensors& tensors, int target, int tag) override;
  WorkPointer recv(Tensors& tensors, int source, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;

  /// Calls that this thread makes from here to `endCoalescing` belong to the Work that `endCoalescing` returns.
  /// Messages of tensors on devices start in `endCoalescing`, and proceed at the same time. Calls of a block that was
  /// not ended, because of an exception, are let go by the next block.
  /// @throws InvalidArgument  such a block had messages of tensors on devices, which peers wait for
  void startCoalescing() override;
  /// True where there are devices, so that batch_isend_irecv makes such a block, as with NCCL. Elsewhere it then
  /// returns a Work for each message, as with gloo.
  bool supportsCoalescing() const override;
  /// @throws InvalidArgument  this thread has not called `startCoalescing`
  WorkPointer endCoalescing() override;

  /// True for processors, whose DeviceIndex is -1: torch then allocates the buckets of DistributedDataParallel here.
  bool supportsTensorAlloc(c10::DeviceIndex device) override { return device < 0; }
  /// A vector of `size` elements in a window, memory that the ranks of the host share: collectives on it need no
  /// copies. Ordinary memory if no window can be had. The tensor may outlive the process group.
  ///
  /// For complex types a vector of 2 * size real numbers, because DistributedDataParallel uses a bucket of complex
  /// parameters so: torch makes real numbers of the buckets that it allocates itself, but not of these.
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  /// Ends the job with a fault: all ranks' calls fail.
  void abort() override;
  /// Waits for pending calls of this group on this rank, and lets go of the job. Collective if this is the last group.
  ///
  /// While the calling thread handles an exception, waits for nothing; the group of all ranks then ends the job with a
  /// fault, whose text is that of the exception.
  void shutdown() override;

 private:
  class Start;
  /// A message of a tensor on a device, in a block of coalesced calls.
  struct DeviceMessage {
    Staged staged;
    farandole_message arguments;
  };
  /// The calls of a block.
  struct Block {
    WorkList::Works works;
    std::vector<DeviceMessage> messages;
  };
  /// Purpose of a stream of the group on a device. Messages of each peer and direction have a stream of their own, so
  /// that ranks that all send first do not wait for each other.
  struct StreamUse {
    enum class Kind { kCollectives, kSend, kReceive, kExchange };
    Kind kind = Kind::kCollectives;
    int peer = 0;
  };
  struct GroupStream {
    StreamUse use;
    c10::Stream stream;
  };
  /// @param failure  text of the exception with which the program fails; empty: there is none
  void end(const std::string& failure);
  WorkPointer send_or_recv(const at::Tensor& tensor, c10d::OpType type, int peer, int tag);
  c10::intrusive_ptr<CallWork> exchange(const std::vector<DeviceMessage>& messages);
  /// True if a block of this thread has taken the message.
  bool defer(const Staged& staged, const farandole_message& message);
  /// Notes a call that has begun, if its thread collects calls.
  void collect(const c10::intrusive_ptr<CallWork>& work);
  /// From now on collects the calls of this thread; of none if it is the id of no thread. Returns those collected so
  /// far.
  Block collect_for(std::thread::id thread);
  /// @throws InvalidArgument  after shutdown()
  farandole_comm* comm() const;
  /// A rank of the group, for messages: "rank 3 (host node7, pid 4711)".
  std::string describe(int rank) const;
  std::string name_late_ranks(const std::string& prefix, std::chrono::steady_clock::time_point end,
                              std::chrono::milliseconds timeout, bool wait_all_ranks) const;
  /// The group's stream on a device. The caller holds the mutex.
  c10::Stream stream_on(at::Device device, const StreamUse& use);

  const c10::intrusive_ptr<Options> options_;
  // Not mutex_, which another thread may hold as long as its blocking call takes.
  std::mutex coalescing_mutex_;                       // guards block_, and writes of coalescing_thread_
  std::atomic<std::thread::id> coalescing_thread_{};  // that has called startCoalescing(); no thread: none
  Block block_;                                       // its calls
  const c10::intrusive_ptr<c10d::Store> store_;
  const bool is_whole_job_;
  std::atomic<uint64_t> sequence_{0};
  std::atomic<int> monitored_barriers_{0};
  std::mutex mutex_;                                     // held while a call starts or blocks; guards the following
  std::chrono::milliseconds wait_timeout_ = kNoTimeout;  // of setTimeout()
  std::vector<GroupStream> streams_;                     // one for each device and use
  std::shared_ptr<Job> job_;
  Comm comm_;  // null after shutdown
};

}  // namespace farandole_torch
