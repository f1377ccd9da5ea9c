// SPDX-License-Identifier: Apache-2.0
// What an operation does on the device once it has its turn.
#pragma once

#include <functional>
#include <memory>

#include "device/device_context.h"
#include "farandole/sdk/device.h"
#include "operation/call.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "selection/selection.h"

namespace farandole {

/// What is enqueued in one go. Outlives what it has enqueued: its memory is the stream's until then.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;
  /// On the device's thread. @param devices  null where the rank is alone
  virtual void enqueue(Device& device, DeviceGroup* devices, StreamView stream) = 0;
};

/// Whether the vendor's collective gives what a schedule gives; it never does for parts of different lengths.
bool device_vendor_agrees(const Call& call);

/// The vendor's own collective, between what scales. Both need `call` until they are done; it is rank `rank` of `size`.
std::shared_ptr<DeviceWork> make_vendor_work(Device& device, int rank, int size, const Call& call);
/// A schedule: launches and groups of messages.
std::shared_ptr<DeviceWork> make_scheduled_work(Device& device, int rank, int size, const Call& call,
                                                const Selection& selection);

/// The part of an operation from its turn until all of it is enqueued: `advance` says then that it is done. Withdrawn,
/// it must be kept, because the device may still use its memory.
class DeviceRun : public Operation {
 public:
  /// True once the device's thread has been given all of it: the next operation of the rank may have its turn.
  virtual bool fully_enqueued() const = 0;
  /// False if nothing was enqueued, and nothing will be.
  virtual bool may_have_enqueued() const { return true; }
};

/// Makes a work, on the device's thread: it needs memory.
using MakeDeviceWork = std::function<std::shared_ptr<DeviceWork>()>;

/// What a run begins after, and what comes after it.
struct DeviceEvents {
  std::shared_ptr<DeviceEvent> ready;  ///< recorded: the input is there
  std::shared_ptr<DeviceEvent> done;   ///< recorded by the run, behind all of it
};

/// One piece of work in the stream of the context. What `make` refers to outlives the run, or stays for ever.
std::unique_ptr<DeviceRun> run_in_one_go(DeviceContext& context, DeviceGroup* devices, MakeDeviceWork make,
                                         const DeviceEvents& events);

}  // namespace farandole
