// SPDX-License-Identifier: Apache-2.0
// A collective from the caller's arguments to the result: check, prepare, run, deliver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "communicator/vendor_slot.h"
#include "farandole/collectives/communicator.h"
#include "messages/executor.h"
#include "messages/hierarchy.h"
#include "operation/call.h"
#include "operation/descriptor.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "selection/selection.h"
#include "shared_memory/shm_group.h"

namespace farandole {

/// How the ranks of a communicator meet in shared memory.
struct ShmContext {
  std::unique_ptr<ShmGroup> group;     ///< of this host; null: this rank is alone there, or memory is not shared
  std::optional<Hierarchy> hierarchy;  ///< several hosts; else all ranks live on this one
  /// The group, if all ranks are in it.
  ShmGroup* whole() const { return hierarchy ? nullptr : group.get(); }
};

/// One collective of one rank.
class CollectiveOperation final : public Operation {
 public:
  /// @param arrived  in shared memory, this rank's arrival is published already
  /// @param validation_error  if not empty, the call is invalid: ranks compare descriptors, then this one throws it
  CollectiveOperation(const Group& group, const ShmContext& host, const Call& call, Selection selection,
                      std::uint64_t sequence, VendorSlot& vendor, bool check, std::string validation_error,
                      bool arrived = false);
  ~CollectiveOperation() override;

  State advance() override;
  std::vector<int> waits_for() const override;
  Aftermath withdraw() override;
  const Descriptor& descriptor() const { return descriptor_; }
  std::uint64_t sequence() const { return sequence_; }

 private:
  /// An uneven alltoall has two checks: of the call, then of the counts that the ranks sent each other.
  enum class Phase { kCheck, kExchangeCounts, kCheckCounts, kRun, kVendor, kSharedMemory, kDone };
  State advance_phase();
  void leave_communicator();
  void end_phase();
  void begin_count_exchange();
  void end_count_exchange();
  void begin_check();
  void begin_shared_memory();
  void refuse_after(std::unique_ptr<Operation> comparison);
  std::unique_ptr<Operation> make_comparison();
  void begin_run();
  void begin_vendor();
  Execution plan();
  void plan_chunk_result(Execution& execution, bool has_input);
  void place_data(Execution& execution, void* memory, int first_piece, int pieces);
  void stage_input(Execution& execution);
  void deliver();

  const Group& group_;
  const ShmContext& host_;
  const KeptCall call_;
  const Selection selection_;
  const std::uint64_t sequence_;
  const std::uint8_t lane_;
  VendorSlot& vendor_;
  const bool check_;
  const bool arrived_;
  const std::string validation_error_;
  std::string disagreement_;  // found while exchanging counts
  Descriptor descriptor_;
  int comparisons_ = 0;
  Phase phase_;
  std::unique_ptr<Operation> running_;
  std::unique_ptr<Transfer> vendor_transfer_;
  std::vector<std::uint64_t> sent_counts_, received_counts_;
  Scratch staged_;  // a copy of the input: scaled, or because the output overwrites it
  Scratch whole_;   // the data of ranks whose output is only a part of it, or nothing
  struct Delivery {
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
  } delivery_;
  std::uint8_t token_ = 0;  // what a barrier moves
};

}  // namespace farandole
