// SPDX-License-Identifier: Apache-2.0
// Hierarchical collectives on device memory: NCCL inside each host, messages of the host across hosts.
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

/// Returns the query from which all ranks plan a call on device memory; pure.
/// @param slice_bytes  size of a slice of the data that a rank exchanges with other hosts
/// (FARANDOLE_DEVICE_SLICE_BYTES)
HierarchicalQuery device_hierarchical_query(const Call& call, const Hierarchy& hierarchy, int size,
                                            std::size_t slice_bytes);

/// Runs a HierarchicalPlan on device memory, as a pipeline of slices.
///
/// Inside phases are the vendor's collectives, or schedules over NCCL messages where the vendor has no such collective.
/// Inside phases are enqueued in the stream of the rank's collectives, in the plan's order, which is the same on all
/// ranks of the host.
///
/// Phases across hosts run in sequence, each in three steps: copy out to pinned memory (stream copy_streams().out),
/// exchange by messages on the host (ScheduledCollective), copy in (stream copy_streams().in). While a slice is
/// exchanged, the next slice is copied out, and the previous slice is copied in. Pinned memory for three slices, each
/// large enough for the data that a phase across sends and receives, is held until the operation ends.
///
/// If the transport between hosts accepts device memory, the phases across are DeviceExchanges, without pinned memory
/// and copies.
///
/// No stream ever waits for the host: work that depends on an exchange is enqueued after the exchange is complete. So a
/// fault never leaves a stream blocked by this operation's messages between hosts.
class HierarchicalDeviceRun final : public DeviceRun {
 public:
  /// `slot` and `call` outlive the run.
  HierarchicalDeviceRun(DeviceSlot& slot, const Call& call, std::uint64_t sequence, const DeviceEvents& events);
  ~HierarchicalDeviceRun() override;
  State advance() override;
  bool fully_enqueued() const override { return fully_enqueued_; }
  std::vector<int> waits_for() const override;
  BufferHazard withdraw() override;

 private:
  struct Step;
  /// Scratch and pinned memory. Belongs to the device's thread until `preparing_` is done.
  struct OwnMemory;
  /// The phases of a kind (inside or across), in order.
  struct Track {
    std::vector<Step*> steps;
    std::size_t begun = 0;  ///< number of steps enqueued (inside), or whose copy out is enqueued (across)
    std::size_t ended = 0;  ///< number of steps whose memory is released (inside), or that are exchanged (across)
    bool is_begun() const { return begun == steps.size(); }
  };
  /// Enqueues the next inside phase, if that phase may begin. Returns true if so.
  bool begin_inside();
  /// Enqueues the copy out of the next phase across, if that phase may begin. Returns true if so.
  bool begin_across();
  State advance_exchange();
  std::unique_ptr<Operation> make_exchange(const Step& step);
  void copy_in(Step& step);
  /// Records the event that marks the end of the whole run.
  void record_end();
  /// True once the memory is allocated and the steps are made.
  bool is_prepared();
  void make_steps();
  /// Pinned memory of one slice, in bytes.
  std::size_t pinned_bytes() const;
  /// Removes jobs that are done from `jobs_`. @throws Error  the error of a job that has failed
  void check_jobs();
  void release_before(const Step& step);
  /// Returns a function that makes the work of an inside phase.
  MakeDeviceWork inside_maker(const Call& call);
  std::vector<DeviceTask> tasks_of(const std::vector<PlanCopy>& copies) const;
  /// Queues `work` for the device's thread. Works run in order; after a failure all later works are dropped.
  void queue_job(std::function<void(Device& device)> work);

  DeviceSlot& slot_;
  const Call& call_;
  const std::uint64_t sequence_;
  const DeviceEvents events_;
  const HierarchicalPlan plan_;
  const Group across_group_;  // this rank and its counterparts on the other hosts
  PlanMemory memory_;         // its scratch memory is set when `preparing_` is done
  const std::shared_ptr<OwnMemory> own_;
  std::shared_ptr<const DeviceJob> preparing_;                              // allocates `own_`; null once it is done
  std::vector<std::unique_ptr<Step>> steps_;                                // by phase of the plan
  Track inside_track_, across_track_;                                       // inside phases, phases across
  std::deque<std::shared_ptr<const DeviceJob>> jobs_;                       // not known to be done, oldest first
  const std::shared_ptr<bool> has_failed_ = std::make_shared<bool>(false);  // a job has failed; device's thread only
  bool fully_enqueued_ = false;
};

}  // namespace farandole
