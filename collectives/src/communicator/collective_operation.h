// SPDX-License-Identifier: Apache-2.0
// One collective of one rank: compares the ranks' calls, then runs the selected method.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device_slot.h"
#include "messages/hierarchy.h"
#include "messages/prepared_plans.h"
#include "messages/vendor_allreduce.h"
#include "operation/call.h"
#include "operation/group.h"
#include "operation/method_inputs.h"
#include "operation/operation.h"
#include "shared_memory/shm_group.h"

namespace farandole {

/// Shared memory of the communicator's ranks on this host, and the hierarchy of the communicator's hosts.
struct ShmContext {
  std::unique_ptr<ShmGroup> group;       ///< ranks of this host; null if this rank is alone there or memory is private
  std::optional<Hierarchy> hierarchy;    ///< empty if all ranks live on this host
  std::unique_ptr<PreparedPlans> plans;  ///< plans of the hierarchy; null without a hierarchy
  /// The hierarchy, or null if all ranks live on one host.
  const Hierarchy* hosts() const { return hierarchy ? &*hierarchy : nullptr; }
  /// The shared memory of all ranks of the communicator; null if some ranks live on other hosts or memory is private.
  ShmGroup* group_of_all() const { return hierarchy ? nullptr : group.get(); }
};

/// A communicator's resources in vendors' libraries, made on first use.
struct VendorSlots {
  VendorSlot& vendor;
  DeviceSlot& devices;
};

/// One collective of one rank, from its submission to its result. If ranks compare their calls, the operation first
/// runs the comparison, unless the selected method compares by itself. An uneven alltoall then exchanges and compares
/// counts. Then the method runs. A rank whose call is invalid takes part in the comparison, then throws
/// InvalidArgument.
class CollectiveOperation final : public Operation {
 public:
  /// @param group, host  outlive this object   @param has_arrived  a one-shot attempt has already published this rank's
  /// arrival in shared memory
  CollectiveOperation(const Group& group, const ShmContext& host, const PreparedCall& prepared, std::uint64_t sequence,
                      VendorSlots slots, bool has_arrived = false);
  ~CollectiveOperation() override;

  State advance() override;
  std::vector<int> waits_for() const override;
  BufferHazard withdraw() override;
  std::shared_ptr<DeviceEvent> enqueued() const override { return running_ ? running_->enqueued() : nullptr; }
  const Descriptor& descriptor() const { return prepared_.descriptor; }
  std::uint64_t sequence() const { return sequence_; }

 private:
  /// kExchangeCounts and kCheckCounts are phases of an uneven alltoall only.
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
  PreparedCall prepared_;
  const std::uint64_t sequence_;
  const VendorSlots slots_;
  const bool has_arrived_;
  int comparisons_ = 0;
  CountExchange counts_;  // used by an uneven alltoall
  Phase phase_;
  bool is_announced_ = false;
  std::unique_ptr<Operation> running_;
  std::unique_ptr<Operation> created_early_;  // if the method is created before the comparison; null once it runs
};

}  // namespace farandole
