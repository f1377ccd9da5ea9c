// SPDX-License-Identifier: Apache-2.0
// Units of work of device operations (DeviceWork), and their execution by the device's thread (DeviceRun).
#pragma once

#include <functional>
#include <memory>

#include "device/device_context.h"
#include "farandole/sdk/device.h"
#include "farandole/sdk/vendor_call.h"
#include "messages/execution_plan.h"
#include "operation/average.h"
#include "operation/call.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "selection/selection.h"

namespace farandole {

/// Work that one call of `enqueue` puts into a stream. Owns the device memory that it uses, unless a `…_in` function
/// made it with memory of the caller; must outlive the execution on the device.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;
  /// Enqueues all of the work. Called on the device's thread or, for a direct call (DirectCalls), on the calling
  /// thread. @param devices  null if this rank is alone
  virtual void enqueue(Device& device, DeviceGroup* devices, StreamView stream) = 0;
};

/// True if the vendor's collective gives the result that Farandole specifies. Always false for parts of unequal
/// lengths.
bool device_vendor_agrees(const Call& call);

/// The vendor's own collective for a call, and the kernels that are needed beside it.
struct VendorPlan {
  VendorCall collective;
  bool is_staged = false;  ///< the collective reads the work's memory, into which the input is first prepared
  double prescale = 1.0;
  /// The vendor's collective combines ordered integers in the place of f32 or f64 (DeviceTask::Kind::kOrder). Without
  /// `is_staged` they are prepared in the output, and the collective is in place.
  bool is_ordered = false;
  double final_scale = 1.0;  ///< multiplies this rank's output afterwards
};
/// Plans the vendor's collective for a call. `prescale` is never part of the vendor's reduction, because it may differ
/// from rank to rank, and NCCL may need the same factor on all ranks. The minimum and maximum of f32 and f64 are those
/// of integers, because NCCL does not specify them for NaNs.
/// @param way  of the call, see average_way()   @param devices  null if the rank is alone
VendorPlan plan_vendor(const Call& call, AverageWay way, int rank, int size, const DeviceGroup* devices);
/// Enqueues the vendor's collective, and the kernels before and after it. A staged plan's input is already prepared.
void enqueue_vendor(Device& device, DeviceGroup& devices, const Call& call, const VendorPlan& plan, StreamView stream);

/// Returns work that runs the vendor's own collective. `call` must outlive the work.
std::shared_ptr<DeviceWork> make_vendor_work(Device& device, const Call& call, const VendorPlan& plan);
/// The same, for a staged plan, with `memory` of the caller: at least the input's size in bytes.
std::shared_ptr<DeviceWork> make_vendor_work_in(void* memory, const Call& call, const VendorPlan& plan);
/// Makes work that runs a schedule: kernel launches and groups of messages (DevicePlan). `call` must outlive the work.
std::shared_ptr<DeviceWork> make_scheduled_work(Device& device, int rank, int size, const Call& call,
                                                const Selection& selection);
/// The same with `memory` of the caller: at least device_memory_needed() of the plan.
std::shared_ptr<DeviceWork> make_scheduled_work_in(void* memory, int size, const Call& call, const ExecutionPlan& plan);

/// The part of a device operation from its turn until all its work is enqueued; `advance` then returns kDone. After
/// `withdraw` the caller must keep the run, because the device may still use its memory.
class DeviceRun : public Operation {
 public:
  /// True once jobs for all of the work have been queued for the device's thread: since that thread runs jobs in order,
  /// the rank's next operation may begin its turn.
  virtual bool fully_enqueued() const = 0;
  /// False if no work was enqueued in a stream, and none will be.
  virtual bool may_have_enqueued() const { return true; }
};

/// Makes a DeviceWork. Called on the device's thread, because making a work allocates memory.
using MakeDeviceWork = std::function<std::shared_ptr<DeviceWork>()>;

/// Events before and after a run.
struct DeviceEvents {
  std::shared_ptr<DeviceEvent> ready;  ///< already recorded; complete when the input is ready
  std::shared_ptr<DeviceEvent> done;   ///< recorded by the run after all of its work
};

/// Makes a run that enqueues a single DeviceWork in the stream of the context, by a single job. All data that `make`
/// refers to must outlive the run; after a fault, it must stay valid until the process ends.
std::unique_ptr<DeviceRun> make_single_enqueue_run(DeviceContext& context, DeviceGroup* devices, MakeDeviceWork make,
                                                   const DeviceEvents& events);

}  // namespace farandole
