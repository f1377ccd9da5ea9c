// SPDX-License-Identifier: Apache-2.0
// A collective from the caller's arguments to the result: compare the ranks' calls, then run the selected method.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device_slot.h"
#include "messages/hierarchy.h"
#include "messages/prepared_plans.h"
#include "messages/vendor_slot.h"
#include "operation/call.h"
#include "operation/descriptor.h"
#include "operation/group.h"
#include "operation/method_inputs.h"
#include "operation/operation.h"
#include "operation/prepared_call.h"
#include "selection/selection.h"
#include "shared_memory/shm_group.h"

namespace farandole {

/// How the ranks of a communicator meet in shared memory.
struct ShmContext {
  std::unique_ptr<ShmGroup> group;       ///< of this host; null: this rank is alone there, or memory is not shared
  std::optional<Hierarchy> hierarchy;    ///< several hosts; else all ranks live on this one
  std::unique_ptr<PreparedPlans> plans;  ///< of several hosts
  /// Null: all ranks live on one host.
  const Hierarchy* hosts() const { return hierarchy ? &*hierarchy : nullptr; }
  /// The group, if all ranks are in it.
  ShmGroup* whole() const { return hierarchy ? nullptr : group.get(); }
};

/// What vendors have made for a communicator.
struct Slots {
  VendorSlot& vendor;
  DeviceSlot& devices;
};

/// One collective of one rank.
class CollectiveOperation final : public Operation {
 public:
  /// @param has_arrived  in shared memory, this rank's arrival is published already
  CollectiveOperation(const Group& group, const ShmContext& host, const PreparedCall& prepared, std::uint64_t sequence,
                      Slots slots, bool has_arrived = false);
  ~CollectiveOperation() override;

  State advance() override;
  std::vector<int> waits_for() const override;
  BufferHazard withdraw() override;
  std::shared_ptr<DeviceEvent> enqueued() const override { return running_ ? running_->enqueued() : nullptr; }
  const Descriptor& descriptor() const { return descriptor_; }
  std::uint64_t sequence() const { return sequence_; }

 private:
  /// An uneven alltoall has two checks: of the call, then of the counts that the ranks sent each other.
  enum class Phase { kCheck, kExchangeCounts, kCheckCounts, kRun, kDone };
  struct CountExchange {
    std::vector<std::uint64_t> sent, received;
    std::string disagreement;
  };
  void begin_phase();
  void end_phase();
  void begin_count_exchange();
  void end_count_exchange();
  void begin_check();
  void begin_run();
  std::unique_ptr<Operation> make_running();
  std::unique_ptr<Operation> make_comparison();
  MethodInputs inputs() const;
  void leave_communicator();

  const Group& group_;
  const ShmContext& host_;
  const KeptCall call_;
  const Selection selection_;
  const std::uint64_t sequence_;
  const Slots slots_;
  const bool has_arrived_;
  const std::string validation_error_;
  Descriptor descriptor_;
  int comparisons_ = 0;
  CountExchange counts_;  // of an uneven alltoall
  Phase phase_;
  bool is_announced_ = false;
  std::unique_ptr<Operation> running_;
  std::unique_ptr<Operation> made_at_call_;  // of a method that asks for it, until it runs
};

}  // namespace farandole
