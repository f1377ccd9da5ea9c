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

/// Work that one call of `enqueue` puts into a stream. Owns the temporary device memory that it uses, unless a `…_in`
/// function made it with the caller's memory. Must outlive its execution on the device.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;
  /// Enqueues all of the work. The device's thread calls it, or, for a direct call (DirectCalls), the calling thread.
  /// @param devices  null if this rank is alone
  virtual void enqueue(Device& device, DeviceGroup* devices, StreamView stream) = 0;
};

/// True if the vendor's collective gives the result that Farandole specifies. False for parts of unequal lengths.
bool device_vendor_agrees(const Call& call);

/// The vendor's own collective for a call, and the kernels that are needed beside it.
struct VendorPlan {
  VendorCall collective;
  bool is_staged = false;  ///< kernels first prepare the input in the work's memory, which the collective reads
  double prescale = 1.0;
  /// The vendor's collective combines ordered integers instead of f32 or f64 (DeviceTask::Kind::kOrder). Without
  /// `is_staged` kernels prepare these integers in the output, and the collective is in-place.
  bool is_ordered = false;
  double final_scale = 1.0;  ///< multiplies this rank's output afterwards
};
/// Plans the vendor's collective for a call. `prescale` is never part of the vendor's reduction: it may differ from
/// rank to rank, and NCCL may need the same factor on all ranks. The minimum and maximum of f32 and f64 run on ordered
/// integers, because NCCL does not specify how they treat NaNs.
/// @param way  average_way() of the call   @param devices  null if the rank is alone
VendorPlan plan_vendor(const Call& call, AverageWay way, int rank, int size, const DeviceGroup* devices);
/// Enqueues the vendor's collective, and the kernels before and after it. A staged plan's input is already prepared.
void enqueue_vendor(Device& device, DeviceGroup& devices, const Call& call, const VendorPlan& plan, StreamView stream);

/// Returns work that runs the vendor's own collective. `call` must outlive the work.
std::shared_ptr<DeviceWork> make_vendor_work(Device& device, const Call& call, const VendorPlan& plan);
/// The same, with the caller's memory. @param memory  for a staged plan, at least as many bytes as the input; else
/// unused
std::shared_ptr<DeviceWork> make_vendor_work_in(void* memory, const Call& call, const VendorPlan& plan);
/// Makes work that runs a schedule: kernel launches and groups of messages (DevicePlan). `call` must outlive the work.
std::shared_ptr<DeviceWork> make_scheduled_work(Device& device, int rank, int size, const Call& call,
                                                const Selection& selection);
/// The same, with the caller's memory. @param memory  at least device_memory_needed() bytes
std::shared_ptr<DeviceWork> make_scheduled_work_in(void* memory, int size, const Call& call, const ExecutionPlan& plan);

/// Enqueues a message between the two ranks of a group: `call` is a broadcast from the sender.
void enqueue_message(DeviceGroup& devices, const Call& call, int rank, StreamView stream);
/// Returns work that runs `enqueue_message`. `call` must outlive the work.
std::shared_ptr<DeviceWork> make_message_work(const Call& call, int rank);

/// Enqueues a device operation's work, once its turn has come. `advance` returns kDone when all work is enqueued. After
/// `withdraw` the caller must keep the run, because the device may still use the run's memory.
class DeviceRun : public Operation {
 public:
  /// True once jobs for all of the work are queued for the device's thread. The rank's next operation may then begin
  /// its turn, because that thread runs jobs in order.
  virtual bool fully_enqueued() const = 0;
  /// False if the run has enqueued no work, and will enqueue none.
  virtual bool may_have_enqueued() const { return true; }
};

/// Makes a DeviceWork. Called on the device's thread, because making a work allocates memory.
using MakeDeviceWork = std::function<std::shared_ptr<DeviceWork>()>;

/// Events before and after a run.
struct DeviceEvents {
  std::shared_ptr<DeviceEvent> ready;  ///< already recorded; complete when the input is ready
  std::shared_ptr<DeviceEvent> done;   ///< recorded by the run after all of its work
};

/// Makes a run that enqueues a single DeviceWork in the context's stream, by a single job. All data that `make` refers
/// to must outlive the run and, after a fault, stay valid until the process ends.
std::unique_ptr<DeviceRun> make_single_enqueue_run(DeviceContext& context, DeviceGroup* devices, MakeDeviceWork make,
                                                   const DeviceEvents& events);

}  // namespace farandole
