// SPDX-License-Identifier: Apache-2.0
#include "point_to_point/message_queue.h"

#include <fmt/core.h>

#include <string_view>

#include "device/device_context.h"
#include "farandole/core/error.h"
#include "farandole/internal/log.h"
#include "farandole/internal/shared_memory.h"
#include "farandole/internal/view_address.h"

namespace farandole {
namespace {

constexpr auto kCheckInterval = std::chrono::milliseconds(100);

/// @throws InvalidArgument  no message of host memory can have these arguments
void validate(std::string_view call, const ConstBufferView& values, const MessageSpec& spec, const Group& group) {
  check_arguments(call, spec, values.data, group);
  const DeviceRuntime* const runtime = DeviceContext::opened();
  if (runtime == nullptr || group.endpoint->memory().offset_of(values.data, values.size_in_bytes())) return;
  const std::string problem = address_problem(*runtime, "values", values);
  if (!problem.empty()) throw InvalidArgument(fmt::format("{}: {}", call, problem));
}

MessageSpec send_spec(const ConstBufferView& values, int target, int tag, MessageSpace space) {
  return {MessageSpec::Direction::kSend, space, values.dtype, target, tag, values.count};
}
MessageSpec recv_spec(const ConstBufferView& values, int source, int tag, MessageSpace space) {
  return {MessageSpec::Direction::kReceive, space, values.dtype, source, tag, values.count};
}

bool is_short(const MessageSpec& spec) {
  return spec.bytes() <= kMaxShortBytes;
}

void throw_failure_of(const Message& message) {
  if (message.failure) throw_error(message.failure->kind, message.failure->text);
}

}  // namespace

MessageQueue::MessageQueue(const Group& group)
    : WorkOwner(group.endpoint), group_(group), hub_(MessageHub::of(*group.endpoint)) {}

void MessageQueue::send(const ConstBufferView& values, int target, int tag, MessageSpace space) {
  const MessageSpec spec = send_spec(values, target, tag, space);
  group_.endpoint->faults().check();
  validate("send", values, spec, group_);
  if (is_short(spec)) {
    if (hub_->send_short(group_, spec, values.data)) group_.endpoint->progress().wake();
    return;
  }
  const std::shared_ptr<Message> message = submit(spec, values.data, nullptr);
  wait(*message);
  throw_failure_of(*message);
}

std::shared_ptr<Work::State> MessageQueue::start_send(const ConstBufferView& values, int target, int tag) {
  const MessageSpec spec = send_spec(values, target, tag, MessageSpace::kProgram);
  if (is_short(spec)) {
    send(values, target, tag);
    auto sent = std::make_shared<Message>(spec, group_, label_);
    sent->owner = shared_from_this();
    sent->done.store(true, std::memory_order_release);
    return sent;
  }
  group_.endpoint->faults().check();
  validate("send", values, spec, group_);
  std::shared_ptr<Message> message = submit(spec, values.data, nullptr);
  if (group_.progress == CommunicatorOptions::Progress::kBackground) group_.endpoint->progress().wake();
  return message;
}

int MessageQueue::recv(const BufferView& values, int source, int tag, MessageSpace space) {
  const MessageSpec spec = recv_spec(values, source, tag, space);
  group_.endpoint->faults().check();
  validate("recv", values, spec, group_);
  const std::shared_ptr<Message> message = submit(spec, nullptr, values.data);
  wait(*message);
  throw_failure_of(*message);
  return message->source;
}

std::shared_ptr<Work::State> MessageQueue::start_recv(const BufferView& values, int source, int tag) {
  const MessageSpec spec = recv_spec(values, source, tag, MessageSpace::kProgram);
  group_.endpoint->faults().check();
  validate("recv", values, spec, group_);
  std::shared_ptr<Message> message = submit(spec, nullptr, values.data);
  const bool is_done = message->done.load(std::memory_order_acquire);
  if (!is_done && group_.progress == CommunicatorOptions::Progress::kBackground) {
    group_.endpoint->progress().wake();
  }
  return message;
}

void MessageQueue::check(std::string_view call, const PeerMessage& message) const {
  const auto& [direction, values, peer, tag] = message;
  const MessageSpace space = MessageSpace::kProgram;
  const bool is_send = direction == PeerMessage::Direction::kSend;
  validate(call, values, is_send ? send_spec(values, peer, tag, space) : recv_spec(values, peer, tag, space), group_);
}

std::shared_ptr<Message> MessageQueue::submit(const MessageSpec& spec, const void* input, void* output) {
  auto message = std::make_shared<Message>(spec, group_, label_);
  message->owner = shared_from_this();
  message->input = input;
  message->output = output;
  hub_->submit(message);
  (void)hub_->advance();
  return message;
}

void MessageQueue::wait(const Work::State& state) {
  const auto& message = static_cast<const Message&>(state);
  const auto is_done = [&] { return message.done.load(std::memory_order_acquire); };
  EndpointProgress& progress = group_.endpoint->progress();
  StallMonitor stall = group_.stall_monitor();
  Waiter waiter(progress.doorbell(), progress.waiting());
  Clock::time_point next_check = Clock::now() + kCheckInterval;
  while (!is_done()) {
    waiter.look();
    const bool moved = hub_->advance() == Progressable::State::kMoved;
    if (moved) waiter.reset();
    if (is_done()) break;
    if (!moved) progress.advance_attached();
    const bool has_slept = !moved && waiter.rest();
    if (!has_slept && Clock::now() < next_check) continue;
    next_check = Clock::now() + kCheckInterval;
    hub_->poll_health();
    check_stall(stall, message);
  }
  progress.wait_until_quiet();
}

void MessageQueue::check_stall(StallMonitor& stall, const Message& message) {
  const StallMonitor::Due due = stall.take_due(Clock::now());
  if (due == StallMonitor::Due::kNothing || !group_.watches) return;
  std::string what =
      fmt::format("{}; waiting for {:.1f} s", describe_wait(message.spec, group_, label_), stall.waited().count());
  if (const std::string others = hub_->describe_others(message); !message.is_send() && !others.empty()) {
    what += "; messages that no receive has taken: " + others;
  }
  if (due == StallMonitor::Due::kError) {
    hub_->fail(message.number, {ErrorKind::kTimeout, stall.describe_error(what)});
  } else {
    log(LogLevel::kWarning, what);
  }
}

void MessageQueue::wait_on(const Work::State& state, StreamView) {
  const auto& message = static_cast<const Message&>(state);
  throw InvalidArgument(fmt::format("a stream can wait for collectives on devices only, not for {}; use wait()",
                                    describe_content(message.spec)));
}

void MessageQueue::poll() {
  group_.endpoint->progress().advance_attached();
  (void)hub_->advance();
  const auto now = Clock::now();
  if (now < next_health_check_.load(std::memory_order_relaxed)) return;
  next_health_check_.store(now + std::chrono::milliseconds(1), std::memory_order_relaxed);
  hub_->poll_health();
}

void MessageQueue::give_up() {
  group_.endpoint->faults().give_up("failed with an exception while messages were pending");
}

void MessageQueue::close() {
  while (const std::shared_ptr<Message> last = hub_->last_pending(*this)) wait(*last);
}

}  // namespace farandole
