// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_choice.h"

#include <cstdint>
#include <exception>

#include "farandole/internal/communicator_access.h"
#include "farandole/sdk/device.h"
#include "kernels/device_execution.h"

namespace farandole::trainer {
namespace {

/// True if this rank can train the model on a device.
template <class Scalar>
bool can_use_device(Communicator& communicator, const Model<Scalar>& model) {
  if (!model.computes_on_devices()) return false;
  const DeviceAvailability& devices = device_runtime(internals(communicator).settings());
  const auto local = static_cast<std::size_t>(communicator.placement().local_size);
  if (devices.runtime == nullptr || devices.runtime->devices().size() < local) return false;
  try {
    device_execution(communicator);
    return true;
  } catch (const std::exception&) {
    return false;  // the device or a library cannot be used; with kCuda the trainer says why
  }
}

}  // namespace

template <class Scalar>
ComputeDevice chosen_device(Communicator& communicator, const TrainerOptions& options, const Model<Scalar>& model) {
  if (options.device != ComputeDevice::kAuto) return options.device;
  std::int64_t can = can_use_device(communicator, model) ? 1 : 0;
  if (communicator.size() > 1) communicator.allreduce(BufferView(&can, 1, DType::kI64), ReduceOp::kMin);
  return can != 0 ? ComputeDevice::kCuda : ComputeDevice::kCpu;
}
template ComputeDevice chosen_device(Communicator&, const TrainerOptions&, const Model<float>&);
template ComputeDevice chosen_device(Communicator&, const TrainerOptions&, const Model<double>&);

}  // namespace farandole::trainer
