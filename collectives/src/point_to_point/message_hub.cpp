// SPDX-License-Identifier: Apache-2.0
#include "point_to_point/message_hub.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/shared_memory.h"

namespace farandole {
namespace {

// Bytes that a call of `advance` copies from a sender's memory at most, so that no thread waits long for the hub.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
// Headers of one peer that a call of `advance` handles at most.
constexpr int kMaxHeadersPerCall = 64;

}  // namespace

std::shared_ptr<MessageHub> MessageHub::of(Endpoint& endpoint) {
  endpoint.faults().check();
  return std::static_pointer_cast<MessageHub>(
      endpoint.progress().shared_work([&endpoint] { return std::make_shared<MessageHub>(endpoint); }));
}

std::shared_ptr<MessageHub> MessageHub::find(Endpoint& endpoint) {
  return std::static_pointer_cast<MessageHub>(endpoint.progress().shared_work());
}

MessagePeer& MessageHub::peer(int rank) {
  return peers_.try_emplace(rank, endpoint_, rank).first->second;
}

MessageHeader MessageHub::header_of(MessageHeader::Kind kind, const Group& group, const MessageSpec& spec) {
  MessageHeader header;
  header.kind = kind;
  header.dtype = spec.dtype;
  header.space = spec.space;
  header.tag = spec.tag;
  header.communicator = group.id;
  header.generation = group.generation;
  header.count = spec.count;
  return header;
}

void MessageHub::answer(MessagePeer& to, MessageHeader::Kind kind, const MessageHeader& announcement,
                        const MessageSpec* expected) {
  MessageHeader header = announcement;
  header.kind = kind;
  if (expected != nullptr) {
    header.dtype = expected->dtype;
    header.count = expected->count;
  }
  to.send(header);
}

template <class Change>
void MessageHub::change_awaited(const Message& message, const Change& change) {
  if (const std::optional<int> rank = message.peer()) return change(peer(*rank));
  for (const int member : message.group.members) change(peer(member));
}

void MessageHub::await_headers(Message& message) {
  message.awaits_header = true;
  change_awaited(message, [now = Clock::now()](MessagePeer& awaited) {
    if (awaited.awaited++ == 0) awaited.active = now;
  });
}

void MessageHub::stop_awaiting(Message& message) {
  if (!std::exchange(message.awaits_header, false)) return;
  change_awaited(message, [](MessagePeer& awaited) { --awaited.awaited; });
}

bool MessageHub::is_busy() const {
  if (!pending_.empty()) return true;
  return std::any_of(peers_.begin(), peers_.end(), [](const auto& entry) { return entry.second.has_unsent(); });
}

void MessageHub::note_busy() {
  const bool was_busy = std::exchange(is_busy_, is_busy());
  if (is_busy_ == was_busy) return;
  is_busy_ ? endpoint_.progress().begin_operation() : endpoint_.progress().end_operation();
}

bool MessageHub::send_short(const Group& group, const MessageSpec& spec, const void* data) {
  endpoint_.faults().check();
  const std::lock_guard lock(mutex_);
  FlightRecorder& recorder = endpoint_.recorder();
  const FlightRecorder::Id record = recorder.begin_inline(group.id, next_number_++, subject_of(spec));
  const bool needs_progress = run_or_fail([&] {
    MessagePeer& to = peer(group.member(spec.peer));
    to.send(header_of(MessageHeader::Kind::kShort, group, spec), data, spec.bytes());
    return to.has_unsent();
  });
  endpoint_.faults().check();
  recorder.finish_inline(record);
  if (!is_busy_) note_busy();
  return needs_progress;
}

void MessageHub::submit(const std::shared_ptr<Message>& message) {
  endpoint_.faults().check();
  const std::lock_guard lock(mutex_);
  const MessageSpec& spec = message->spec;
  message->number = next_number_++;
  message->record = endpoint_.recorder().begin(message->group.id, message->number, subject_of(spec));
  pending_.emplace(message->number, message);
  if (!is_busy_) note_busy();
  (void)run_or_fail([&] {
    if (message->is_send()) {
      MessageHeader header = header_of(MessageHeader::Kind::kLong, message->group, spec);
      header.number = message->number;
      header.address = reinterpret_cast<std::uintptr_t>(message->input);
      header.window = endpoint_.memory().offset_of(message->input, spec.bytes()).value_or(MessageHeader::kNoWindow);
      await_headers(*message);
      peer(message->group.member(spec.peer)).send(header);
    } else if (const auto arrival = mailboxes_[key_of(message->group.key())].take_or_await(message)) {
      deliver(message, peer(arrival->source), arrival->header, arrival->payload.data());
    } else {
      await_headers(*message);
    }
    return true;
  });
}

Progressable::State MessageHub::advance() {
  auto state = Progressable::State::kIdle;
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return Progressable::State::kWaiting;
    if (is_busy_) {
      const bool moved = run_or_fail([this] { return advance_locked(); });
      note_busy();
      state = moved ? Progressable::State::kMoved : Progressable::State::kWaiting;
    }
  }
  done_actions_.run();
  return state;
}

bool MessageHub::advance_locked() {
  endpoint_.faults().check();
  const bool has_read = read_headers();
  const bool has_copied = advance_copies();
  return advance_sends() || has_copied || has_read;
}

bool MessageHub::read_headers() {
  bool moved = false;
  for (auto& [rank, from] : peers_) {
    for (int i = 0; i < kMaxHeadersPerCall && from.awaited > 0; ++i) {
      const auto received = from.receive();
      if (!received) break;
      moved = true;
      handle(from, *received);
    }
  }
  return moved;
}

void MessageHub::handle(MessagePeer& from, const MessagePeer::Received& received) {
  const MessageHeader::Kind kind = received.header.kind;
  const bool is_message = kind == MessageHeader::Kind::kShort || kind == MessageHeader::Kind::kLong;
  is_message ? handle_arrival(from, received) : handle_answer(from, received.header);
}

void MessageHub::handle_answer(MessagePeer& from, const MessageHeader& answer) {
  const auto found = pending_.find(answer.number);
  const bool is_awaited = found != pending_.end() && found->second->is_send() && found->second->awaits_header &&
                          found->second->peer() == from.rank();
  if (!is_awaited) {
    throw TransportError(fmt::format("rank {} answers a message that this rank has not sent to it", from.rank()));
  }
  const std::shared_ptr<Message> message = found->second;
  stop_awaiting(*message);
  if (answer.kind == MessageHeader::Kind::kReady) return from.send_payload(message);
  if (answer.kind == MessageHeader::Kind::kTaken) return end(*message, std::nullopt);
  const std::string receiver = endpoint_.topology().describe(from.rank());
  const std::string sent = fmt::format("{} sends {} in {}", endpoint_.topology().describe(endpoint_.rank()),
                                       describe_content(message->spec), message->label);
  end(*message,
      Failure{ErrorKind::kMismatch,
              answer.kind == MessageHeader::Kind::kRefused
                  ? fmt::format("{}, but {} receives {} {}; nothing was received", sent, receiver, answer.count,
                                name(answer.dtype))
                  : fmt::format("{}, but {} has destroyed its communicator without receiving it", sent, receiver)});
}

void MessageHub::handle_arrival(MessagePeer& from, const MessagePeer::Received& received) {
  const MessageHeader& header = received.header;
  const CommunicatorKey key{static_cast<std::uint16_t>(header.communicator), header.generation};
  if (endpoint_.communicator_ids().stage_of(key) == CommunicatorIds::Stage::kReleased) {
    if (header.kind == MessageHeader::Kind::kLong) answer(from, MessageHeader::Kind::kClosed, header);
    return;
  }
  Mailbox& mailbox = mailboxes_[key_of(key)];
  if (const auto receive = mailbox.take_receive(from.rank(), header)) {
    return deliver(receive, from, header, received.payload.data());
  }
  mailbox.keep({from.rank(), header, {received.payload.begin(), received.payload.end()}});
}

void MessageHub::deliver(const std::shared_ptr<Message>& receive, MessagePeer& from, const MessageHeader& header,
                         const std::byte* payload) {
  stop_awaiting(*receive);
  const MessageSpec& expected = receive->spec;
  const std::vector<int>& members = receive->group.members;
  receive->source = static_cast<int>(std::find(members.begin(), members.end(), from.rank()) - members.begin());
  const bool is_long = header.kind == MessageHeader::Kind::kLong;
  if (header.count != expected.count || header.dtype != expected.dtype) {
    if (is_long) answer(from, MessageHeader::Kind::kRefused, header, &expected);
    const Topology& topology = endpoint_.topology();
    return end(*receive, Failure{ErrorKind::kMismatch,
                                 fmt::format("{} receives {} {} with tag {} in {}, but {} sends {} {}; nothing was "
                                             "received, and the message is dropped",
                                             topology.describe(endpoint_.rank()), expected.count, name(expected.dtype),
                                             expected.tag, receive->label, topology.describe(from.rank()), header.count,
                                             name(header.dtype))});
  }
  if (is_long) return begin_payload(receive, from, header);
  if (expected.count > 0) std::memcpy(receive->output, payload, expected.bytes());
  end(*receive, std::nullopt);
}

/// True if this rank can copy the payload from the sender's memory. Ranks of one process use the payload lane: its
/// transport copies directly, too, and protects the sender's memory if the sender withdraws after a fault.
bool MessageHub::reads_memory_of(const MessagePeer& sender, const MessageHeader& header) const {
  const Topology& topology = endpoint_.topology();
  const int host = topology.rank(sender.rank()).host_index;
  if (sender.is_in_this_process() || host != topology.rank(endpoint_.rank()).host_index) return false;
  if (!endpoint_.shares_memory(host)) return false;
  return header.window != MessageHeader::kNoWindow || endpoint_.memory().can_copy();
}

void MessageHub::begin_payload(const std::shared_ptr<Message>& receive, MessagePeer& from,
                               const MessageHeader& header) {
  if (reads_memory_of(from, header)) {
    copies_.push_back({receive, &from, header, 0});
    return;
  }
  from.receive_payload(receive);
  answer(from, MessageHeader::Kind::kReady, header);
}

/// Copies the next piece. Returns false if the kernel refuses.
bool MessageHub::copy_piece(DirectCopy& copy) {
  const std::size_t bytes = std::min(kPieceBytes, copy.message->spec.bytes() - copy.copied_bytes);
  std::byte* const to = static_cast<std::byte*>(copy.message->output) + copy.copied_bytes;
  const SharedMemory& memory = endpoint_.memory();
  const int process = copy.sender->process();
  if (copy.header.window != MessageHeader::kNoWindow) {
    std::memcpy(to, memory.at(process, copy.header.window + copy.copied_bytes), bytes);
  } else if (memory.copy_from(process, copy.header.address + copy.copied_bytes, to, bytes) != 0) {
    return false;
  }
  copy.copied_bytes += bytes;
  return true;
}

bool MessageHub::advance_copies() {
  if (copies_.empty()) return false;
  DirectCopy& copy = copies_.front();
  if (!copy_piece(copy)) {
    // If the sender has died, the payload lane finds out.
    copy.sender->receive_payload(copy.message);
    answer(*copy.sender, MessageHeader::Kind::kReady, copy.header);
    copies_.pop_front();
    return true;
  }
  if (copy.copied_bytes < copy.message->spec.bytes()) return true;
  const DirectCopy done = std::move(copy);
  copies_.pop_front();
  answer(*done.sender, MessageHeader::Kind::kTaken, done.header);
  end(*done.message, std::nullopt);
  return true;
}

bool MessageHub::advance_sends() {
  bool moved = false;
  for (auto& [rank, other] : peers_) {
    moved = other.free_sent() || moved;
    while (const auto message = other.take_completed_payload()) {
      moved = true;
      end(*message, std::nullopt);
    }
  }
  return moved;
}

void MessageHub::end(Message& message, std::optional<Failure> failure) {
  stop_awaiting(message);
  endpoint_.recorder().mark(message.record, failure ? FlightRecord::Stage::kFailed : FlightRecord::Stage::kDone);
  message.failure = std::move(failure);
  const auto ended = pending_.extract(message.number);
  note_busy();
  done_actions_.finish(ended.mapped());
  endpoint_.progress().doorbell().ring();
}

}  // namespace farandole
