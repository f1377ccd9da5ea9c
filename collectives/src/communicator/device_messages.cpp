// SPDX-License-Identifier: Apache-2.0
#include "communicator/device_messages.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "communicator/communicator_state.h"
#include "farandole/core/error.h"
#include "farandole/internal/first_error.h"
#include "farandole/internal/stall_monitor.h"
#include "farandole/internal/view_address.h"
#include "point_to_point/message.h"

namespace farandole {
namespace {

bool is_send(const PeerMessage& message) {
  return message.direction == PeerMessage::Direction::kSend;
}

MessageSpec spec_of(const PeerMessage& message) {
  const auto direction = is_send(message) ? MessageSpec::Direction::kSend : MessageSpec::Direction::kReceive;
  return {direction, MessageSpace::kProgram, message.values.dtype, message.peer, message.tag, message.values.count};
}

/// A message as the call of its lane. It is both input and output: the root sends it, and the other rank receives it.
Call call_of(const BufferView& values, int root, StreamView stream) {
  Call call;
  call.collective = Collective::kBroadcast;
  call.input = values;
  call.output = values;
  call.root = root;
  call.stream = stream;
  return call;
}

/// @throws InvalidArgument  the messages of a rank to itself and its receives from itself differ
void check_own_pair(const PeerMessage* sent, const PeerMessage* received) {
  if (sent == nullptr || received == nullptr) {
    throw InvalidArgument(
        fmt::format("exchange: a rank sends device memory to itself and receives it in the same list, as often; one {} "
                    "has no counterpart",
                    sent != nullptr ? "send" : "receive"));
  }
  if (sent->values.count == received->values.count && sent->values.dtype == received->values.dtype) return;
  throw InvalidArgument(fmt::format("exchange: a rank sends {} {} to itself, and receives {} {}", sent->values.count,
                                    name(sent->values.dtype), received->values.count, name(received->values.dtype)));
}

}  // namespace

DeviceMessages::DeviceMessages(Communicator::State& parent)
    : parent_(parent), group_(parent.group()), context_ref_(group_.endpoint), context_(context_ref_.context()) {}

DeviceMessages::~DeviceMessages() = default;

DeviceMessages::Lane::~Lane() {
  state.reset();
  if (stream.valid()) context.release_stream(stream);
}

void DeviceMessages::check(std::string_view call, const PeerMessage& message, StreamView stream, Use use) {
  const MessageSpec spec = spec_of(message);
  check_arguments(call, spec, message.values.data, group_);
  if (spec.peer == Communicator::kAnySource) {
    throw Unsupported(fmt::format(
        "{}: a message of device memory is received from a certain rank; name the source, or send host memory", call));
  }
  if (spec.tag != 0) {
    throw Unsupported(fmt::format(
        "{}: messages of device memory have no tags, so that the tag is 0, not {}; they arrive in the order in which "
        "they were sent",
        call, spec.tag));
  }
  if (use == Use::kSingle && spec.peer == group_.rank) {
    throw InvalidArgument(
        fmt::format("{}: a rank sends device memory to itself, and receives it, in one list of `exchange` only", call));
  }
  const MemorySpace own = context_.space();
  if (message.values.space != own || (stream.valid() && stream.space != own)) {
    const bool is_stream = message.values.space == own;
    throw InvalidArgument(fmt::format("{}: expected {} in {}, the device of this rank, got {}", call,
                                      is_stream ? "a stream" : "values", describe(own),
                                      describe(is_stream ? stream.space : message.values.space)));
  }
  const std::string problem = address_problem(context_.runtime(), "values", message.values);
  if (!problem.empty()) throw InvalidArgument(fmt::format("{}: {}", call, problem));
  check_capture(call, message, stream);
}

void DeviceMessages::check_capture(std::string_view call, const PeerMessage& message, StreamView stream) {
  if (!context_.device().is_capturing(stream.valid() ? stream : default_stream())) return;
  if (!parent_.enqueues_directly() || !stream.valid()) {
    throw InvalidArgument(
        fmt::format("{}: {} is captured into a graph, where this message cannot be: end the capture before the call, "
                    "or pass the captured stream to a communicator in the caller's device order (DeviceOrder::kCaller)",
                    call, stream.valid() ? "the stream" : "work of the device's default stream"));
  }
  if (message.peer == group_.rank) return;
  Peer& other = peer(message.peer);
  const std::unique_lock locked = lock(other, message.peer);
  if (other.is_connected) return;
  throw InvalidArgument(
      fmt::format("{}: the stream is captured into a graph, and {} has exchanged no message of device memory with rank "
                  "{} before: run the message once before the capture, because the first message connects the ranks",
                  call, group_.describe(), message.peer));
}

DeviceMessages::Peer& DeviceMessages::peer(int rank) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Peer>& found = peers_[rank];
  if (found == nullptr) found = std::make_unique<Peer>();
  return *found;
}

/// Blocks while another thread connects the peer. @throws InvalidArgument  this thread connects the peer
std::unique_lock<std::mutex> DeviceMessages::lock(Peer& peer, int rank) const {
  if (peer.connector.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
    throw InvalidArgument(
        fmt::format("{}: a function of Work::on_done has a message of device memory with rank {}, while its thread "
                    "connects the two ranks for their first message: exchange a first message before",
                    group_.describe(), rank));
  }
  return std::unique_lock(peer.mutex);
}

DeviceMessages::Lane& DeviceMessages::lane_of(const PeerMessage& message) {
  Peer& other = peer(message.peer);
  const std::unique_lock locked = lock(other, message.peer);
  if (!other.is_connected) connect(message.peer, other);
  return is_send(message) ? *other.to : *other.from;
}

/// Both ranks make the lane from the lower to the higher rank first.
void DeviceMessages::connect(int rank, Peer& peer) {
  struct Connecting {
    explicit Connecting(Peer& peer) : connector(peer.connector) {
      connector.store(std::this_thread::get_id(), std::memory_order_relaxed);
    }
    ~Connecting() { connector.store({}, std::memory_order_relaxed); }
    std::atomic<std::thread::id>& connector;
  };
  const Connecting scope(peer);
  const int low = std::min(rank, group_.rank), high = std::max(rank, group_.rank);
  std::unique_ptr<Lane> upward = make_lane(low, high), downward = make_lane(high, low);
  peer.to = std::move(group_.rank == low ? upward : downward);
  peer.from = std::move(group_.rank == low ? downward : upward);
  peer.is_connected = true;
}

std::unique_ptr<DeviceMessages::Lane> DeviceMessages::make_lane(int sender, int receiver) {
  const std::string label =
      fmt::format("the messages of device memory from rank {} to rank {} of {}", sender, receiver, group_.describe());
  CommunicatorOptions options;
  options.progress = group_.progress;
  if (group_.direct) options.device_order = CommunicatorOptions::DeviceOrder::kCaller;
  options.compare = group_.compares;
  options.watch = group_.watches;
  options.timeout = group_.timeout;
  options.name = label;
  const std::array members{std::min(sender, receiver), std::max(sender, receiver)};
  auto lane = std::make_unique<Lane>(context_);
  lane->root = sender < receiver ? 0 : 1;
  lane->state = parent_.make_of_members(members, options, CreationTag::kDeviceMessages);
  if (lane->state->enqueues_directly()) bring_up(*lane);
  return lane;
}

/// Sends a byte, which makes the lane's device group and connects it. The byte has a stream of its own, because the
/// caller's stream may wait for other ranks.
void DeviceMessages::bring_up(Lane& lane) {
  std::tie(lane.stream, lane.done) = context_.make_now("to make a stream for messages", [&device = context_.device()] {
    return std::pair(device.make_stream(), device.make_event(DeviceEvent::Use::kStreams));
  });
  lane.first = context_.allocate(1, DType::kU8);
  lane.state->run(call_of(lane.first.view(), lane.root, lane.stream));
}

Work DeviceMessages::start_on(Lane& lane, const PeerMessage& message, StreamView stream) {
  const Call call = call_of(message.values, lane.root, stream);
  std::unique_lock lock(lane.mutex);
  const auto work = lane.state->submit_message(call, is_send(message) ? Work::State::kNoSource : message.peer);
  lock.unlock();
  return lane.state->begin(work);
}

/// Locks a lane in the caller's order, once its earlier messages are enqueued, so that a message only enqueues while
/// the lane is locked.
std::unique_lock<std::mutex> DeviceMessages::lock_enqueued(Lane& lane) {
  for (;;) {
    lane.state->wait_until_enqueued();
    std::unique_lock lock(lane.mutex);
    if (lane.state->is_enqueued()) return lock;  // otherwise another thread has submitted a message
  }
}

void DeviceMessages::run(const PeerMessage& message, StreamView stream) {
  check(is_send(message) ? "send" : "recv", message, stream, Use::kSingle);
  Lane& lane = lane_of(message);
  if (stream.valid() && lane.state->enqueues_directly()) {
    const std::unique_lock locked = lock_enqueued(lane);
    return lane.state->run(call_of(message.values, lane.root, stream));
  }
  Work work = start_on(lane, message, stream);
  stream.valid() ? work.wait_on(stream) : work.wait();
}

Work DeviceMessages::start(const PeerMessage& message, StreamView stream) {
  check(is_send(message) ? "send_async" : "recv_async", message, stream, Use::kSingle);
  return start_on(lane_of(message), message, stream);
}

/// The messages in an order of lanes that is the same on all ranks. It also orders how peers are connected: whatever
/// the ranks exchange, the first lanes in this order wait for no others.
std::vector<DeviceMessages::Planned> DeviceMessages::plan(std::span<const PeerMessage> messages) {
  std::vector<Planned> planned;
  for (const PeerMessage& message : messages) {
    if (message.peer == group_.rank) continue;
    planned.push_back({&message, nullptr, static_cast<std::size_t>(&message - messages.data())});
  }
  const auto key = [this](const Planned& each) {
    // The lane from the lower to the higher rank comes first.
    const bool is_upward = is_send(*each.message) == (group_.rank < each.message->peer);
    return std::pair(each.message->peer, is_upward ? 0 : 1);
  };
  std::stable_sort(planned.begin(), planned.end(),
                   [&](const Planned& one, const Planned& other) { return key(one) < key(other); });
  for (Planned& each : planned) each.lane = &lane_of(*each.message);
  return planned;
}

void DeviceMessages::exchange(std::span<const PeerMessage> messages, StreamView stream) {
  for (const PeerMessage& message : messages) check("exchange", message, stream, Use::kExchange);
  copy_own(messages, stream);
  const std::vector<Planned> planned = plan(messages);
  if (planned.empty()) return;
  if (stream.valid() && planned.front().lane->state->enqueues_directly()) return enqueue(planned, stream);
  run_queued(planned, stream);
}

void DeviceMessages::enqueue(std::span<const Planned> planned, StreamView stream) {
  Device& device = context_.device();
  const std::unique_ptr<DeviceEvent> begin = device.make_event(DeviceEvent::Use::kStreams);
  device.record(*begin, stream);
  while (!planned.empty()) {
    Lane& lane = *planned.front().lane;
    const auto end =
        std::find_if(planned.begin(), planned.end(), [&](const Planned& each) { return each.lane != &lane; });
    const auto count = static_cast<std::size_t>(end - planned.begin());
    enqueue_on(lane, planned.first(count), *begin, stream);
    planned = planned.subspan(count);
  }
}

/// Enqueues messages in the stream of their lane, between an event of the caller's stream and a wait. After an error,
/// too, the caller's stream waits for the lane: a capture can then be ended.
void DeviceMessages::enqueue_on(Lane& lane, std::span<const Planned> planned, DeviceEvent& begin, StreamView stream) {
  Device& device = lane.context.device();
  const std::unique_lock locked = lock_enqueued(lane);
  device.wait(lane.stream, begin);
  FirstError error;
  error.run([&] {
    for (const Planned& each : planned) lane.state->run(call_of(each.message->values, lane.root, lane.stream));
  });
  device.record(*lane.done, lane.stream);
  device.wait(stream, *lane.done);
  error.check();
}

void DeviceMessages::run_queued(std::span<const Planned> planned, StreamView stream) {
  std::vector<Work> works(planned.size());
  std::vector<std::size_t> places(planned.size());  // of the caller's messages in `planned`
  for (std::size_t i = 0; i < planned.size(); ++i) {
    works[i] = start_on(*planned[i].lane, *planned[i].message, stream);
    places[i] = i;
  }
  std::sort(places.begin(), places.end(),
            [&](std::size_t one, std::size_t other) { return planned[one].index < planned[other].index; });
  FirstError error;
  for (const std::size_t place : places) {
    error.run([&] { stream.valid() ? works[place].wait_on(stream) : works[place].wait(); });
  }
  error.check();
}

void DeviceMessages::copy_own(std::span<const PeerMessage> messages, StreamView stream) {
  std::vector<const PeerMessage*> sent, received;
  for (const PeerMessage& message : messages) {
    if (message.peer == group_.rank) (is_send(message) ? sent : received).push_back(&message);
  }
  const std::size_t pairs = std::max(sent.size(), received.size());
  if (pairs == 0) return;
  for (std::size_t i = 0; i < pairs; ++i) {
    check_own_pair(i < sent.size() ? sent[i] : nullptr, i < received.size() ? received[i] : nullptr);
  }
  Device& device = context_.device();
  const StreamView in = stream.valid() ? stream : default_stream();
  for (std::size_t i = 0; i < pairs; ++i) {
    device.copy(received[i]->values.data, sent[i]->values.data, sent[i]->values.size_in_bytes(), in);
  }
  if (stream.valid()) return;
  const auto done = device.make_event(DeviceEvent::Use::kHost);
  device.record(*done, in);
  wait_for(*done);
}

/// Blocks until the event is complete. @throws Error  the fault of the job; Timeout at the deadline
void DeviceMessages::wait_for(DeviceEvent& event) const {
  EndpointFaults& faults = group_.endpoint->faults();
  StallMonitor stall = group_.stall_monitor();
  while (!event.is_complete()) {
    faults.poll();
    faults.check();
    stall.check([this] {
      return fmt::format("{} waits for its device to copy its messages to itself in {}",
                         group_.endpoint->topology().describe(group_.endpoint->rank()), group_.describe());
    });
    std::this_thread::yield();
  }
}

}  // namespace farandole
