// SPDX-License-Identifier: Apache-2.0
#include "device/device_exchange.h"

namespace farandole {

DeviceExchange::DeviceExchange(DeviceContext& context, StreamView stream, const Group& group, const Call& call,
                               const Selection& selection, std::uint64_t sequence)
    : context_(context),
      stream_(stream),
      group_(group),
      lane_(static_cast<std::uint8_t>(sequence % kLanes)),
      call_(call),
      execution_(plan_execution(call, selection, group.rank, group.size())),
      memory_(std::make_shared<DeviceScratch>()),
      preparing_(context.thread().run(
          [memory = memory_, &device = context.device(), bytes = device_memory_needed(execution_, call.input.dtype)] {
            *memory = device_scratch(device, bytes);
          })),
      computed_(context.device().make_event(DeviceEvent::Use::kHost)) {}

Operation::State DeviceExchange::advance() {
  bool moved = false;
  if (phase_ == Phase::kPrepare) {
    if (!preparing_->is_done()) return State::kWaiting;
    preparing_->check();
    plan_ = make_device_plan(execution_, call_, memory_->get());
    phase_ = Phase::kBegin;
  }
  while (stage_ < plan_.stages.size()) {
    switch (phase_) {
      case Phase::kPrepare:
      case Phase::kBegin:
        begin_kernels();
        phase_ = Phase::kKernels;
        break;
      case Phase::kKernels:
        if (!are_kernels_done()) return moved ? State::kMoved : State::kWaiting;
        begin_messages();
        phase_ = Phase::kMessages;
        break;
      case Phase::kMessages:
        if (!are_messages_done()) return moved ? State::kMoved : State::kWaiting;
        ++stage_;
        phase_ = Phase::kBegin;
    }
    moved = true;
  }
  return State::kDone;
}

void DeviceExchange::begin_kernels() {
  if (stage().launches.empty()) return;
  enqueuing_ = context_.thread().run(
      [&launches = stage().launches, computed = computed_, &device = context_.device(), stream = stream_] {
        for (const std::vector<DeviceTask>& launch : launches) device.launch(launch, stream);
        device.record(*computed, stream);
      });
}

bool DeviceExchange::are_kernels_done() {
  if (enqueuing_ == nullptr) return true;
  if (!enqueuing_->is_done()) return false;
  enqueuing_->check();
  if (!computed_->is_complete()) return false;
  enqueuing_.reset();
  return true;
}

void DeviceExchange::begin_messages() {
  if (stage().messages.empty()) return;
  context_.device().run_bound([this] {
    for (const DeviceMessage& message : stage().messages) {
      Transport& route = group_.route(message.peer);
      pending_.push_back(
          {message.peer, message.kind == DeviceMessage::Kind::kSend
                             ? route.send(group_.channel_to(message.peer, lane_), message.data, message.bytes)
                             : route.recv(group_.channel_from(message.peer, lane_), message.data, message.bytes)});
    }
  });
}

bool DeviceExchange::are_messages_done() {
  if (pending_.empty()) return true;
  context_.device().run_bound(
      [this] { std::erase_if(pending_, [](const Pending& pending) { return pending.transfer->test(); }); });
  return pending_.empty();
}

std::vector<int> DeviceExchange::waits_for() const {
  std::vector<int> ranks;
  for (const Pending& pending : pending_) ranks.push_back(group_.member(pending.peer));
  return ranks;
}

BufferHazard DeviceExchange::withdraw() {
  for (Pending& pending : pending_) (void)give_up(pending.transfer);
  return BufferHazard::kWritten;
}

}  // namespace farandole
