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

/// Returns the query from which every rank plans a call on device memory alike. Pure.
/// @param slice_bytes  target size of the slices in which a rank exchanges data with other hosts
/// (FARANDOLE_DEVICE_SLICE_BYTES)
HierarchicalQuery device_hierarchical_query(const Call& call, const Hierarchy& hierarchy, int size,
                                            std::size_t slice_bytes);

/// Runs a HierarchicalPlan on device memory, as a pipeline of slices.
///
/// Phases inside the host are the vendor's collectives, or schedules over NCCL messages where the vendor has no such
/// collective. They are enqueued in the stream of the rank's collectives, in the plan's order, which is the same on all
/// ranks of the host.
///
/// Phases across hosts run in sequence, each in three steps: copy out to pinned memory (stream copy_streams().out),
/// exchange by messages on the host (ScheduledCollective), copy in (stream copy_streams().in). While a slice is
/// exchanged, the next slice is copied out, and the previous slice is copied in. Pinned memory of up to three slices is
/// held until the operation ends; each holds what a phase across sends and receives.
///
/// If the transport between hosts accepts device memory, the phases across are DeviceExchanges, without pinned memory
/// and copies.
///
/// No stream ever waits for the CPU: work that depends on an exchange is enqueued after the exchange is complete. So
/// even after a fault no stream is blocked by this operation's messages between hosts.
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
  /// All inside phases, or all phases across, in order.
  struct Track {
    std::vector<Step*> steps;
    std::size_t begun = 0;  ///< inside: number of steps enqueued; across: number of steps whose copy out is enqueued
    std::size_t ended = 0;  ///< inside: number of steps whose memory is released; across: number of steps exchanged
    bool is_begun() const { return begun == steps.size(); }
  };
  /// Enqueues the next inside phase, if it may begin. Returns true if it did.
  bool begin_inside();
  /// Enqueues the copy out of the next phase across, if it may begin. Returns true if it did.
  bool begin_across();
  State advance_exchange();
  std::unique_ptr<Operation> make_exchange(const Step& step);
  void copy_in(Step& step);
  /// Records `events_.done`, which ends the whole run.
  void record_end();
  /// True once the memory is allocated and the steps are made.
  bool is_prepared();
  void make_steps();
  /// Pinned memory of one slice, in bytes.
  std::size_t pinned_bytes() const;
  /// Removes jobs that are done from `jobs_`. @throws Error  thrown by a job
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
  PlanMemory memory_;         // `scratch` is set when `preparing_` is done
  const std::shared_ptr<OwnMemory> own_;
  std::shared_ptr<const DeviceJob> preparing_;                              // allocates `own_`; null once it is done
  std::vector<std::unique_ptr<Step>> steps_;                                // by phase of the plan
  Track inside_track_, across_track_;                                       // inside phases, phases across
  std::deque<std::shared_ptr<const DeviceJob>> jobs_;                       // not yet seen to be done, oldest first
  const std::shared_ptr<bool> has_failed_ = std::make_shared<bool>(false);  // a job has failed; device's thread only
  bool fully_enqueued_ = false;
};

}  // namespace farandole
