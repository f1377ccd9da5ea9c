// SPDX-License-Identifier: Apache-2.0
// A collective on device memory over several hosts: the vendor's collectives or schedules inside, messages across.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "device/device_slot.h"
#include "device/device_work.h"
#include "messages/hierarchical_call.h"
#include "operation/call.h"

namespace farandole {

/// What all ranks plan for a call on devices; pure. @param slice_bytes  of what a rank exchanges with other hosts
HierarchicalQuery device_hierarchical_query(const Call& call, const Hierarchy& hierarchy, int size,
                                            std::size_t slice_bytes);

/// Runs the phases of a hierarchical plan. Those inside the host are enqueued in the stream of the rank's collectives,
/// in the plan's order, which is the same on all ranks of the host. Those across hosts run one after another: copied
/// out to pinned memory, exchanged by messages on the host, copied in. While one is exchanged, the next is copied out
/// and the one before it is copied in. No stream waits for the host: what follows an exchange is enqueued after it.
///
/// Where messages between hosts take device memory as it is, they are of that, and nothing is copied.
///
/// Pinned memory: three times what a phase across sends and receives, until the operation ends.
class HierarchicalDeviceRun final : public DeviceRun {
 public:
  /// All that is referred to outlives the run.
  HierarchicalDeviceRun(DeviceSlot& slot, const Call& call, std::uint64_t sequence, const DeviceEvents& events);
  ~HierarchicalDeviceRun() override;
  State advance() override;
  bool fully_enqueued() const override { return fully_enqueued_; }
  std::vector<int> waits_for() const override;
  BufferHazard withdraw() override;

 private:
  struct Step;
  class Pinned;
  /// Made by the device's thread, of which it is until the job is done.
  struct OwnMemory;
  /// The phases of one kind, in their order.
  struct Track {
    std::vector<Step*> steps;
    std::size_t begun = 0;  ///< how many of them have been enqueued, or copied out
    std::size_t ended = 0;  ///< across: how many have been exchanged; inside: how many of them hold no memory any more
    bool is_begun() const { return begun == steps.size(); }
  };
  bool begin_inside();
  bool begin_across();
  State advance_exchange();
  std::unique_ptr<Operation> make_exchange(const Step& step);
  void copy_in(Step& step);
  void end();
  /// True once there is the memory, and the steps that use it.
  bool is_prepared();
  void make_steps();
  /// Bytes of one slice in pinned memory.
  std::size_t pinned_bytes() const;
  /// @throws Error  what a job has failed with
  void check_jobs();
  void release_before(const Step& step);
  MakeDeviceWork inside_maker(const Call& call);
  std::vector<DeviceTask> tasks_of(const std::vector<PlanCopy>& copies) const;
  /// On the device's thread, in the order of calls; not after one that has failed.
  void give(std::function<void(Device& device)> work);

  DeviceSlot& slot_;
  const Call& call_;
  const std::uint64_t sequence_;
  const DeviceEvents events_;
  const HierarchicalPlan plan_;
  const Group across_;  // the ranks that this one meets across hosts
  PlanMemory memory_;   // with scratch memory once that is there
  const std::shared_ptr<OwnMemory> own_;
  std::shared_ptr<const DeviceJob> preparing_;  // null once it is prepared
  std::vector<std::unique_ptr<Step>> steps_;    // by phase
  Track inside_, outside_;
  std::deque<std::shared_ptr<const DeviceJob>> jobs_;                       // that have not been seen to end
  const std::shared_ptr<bool> has_failed_ = std::make_shared<bool>(false);  // of the device's thread: a job
  bool fully_enqueued_ = false;
};

}  // namespace farandole
