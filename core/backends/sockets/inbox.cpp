// SPDX-License-Identifier: Apache-2.0
#include "sockets/inbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/core/reduce.h"

namespace farandole::sockets {
namespace {

// Approximate memory per unexpected message, and per key that a peer has used, in addition to the payload.
constexpr std::size_t kMessageOverheadBytes = 64;
constexpr std::size_t kKeyOverheadBytes = 1536;
// Size of the scratch memory, small enough for payload to stay in a core's second-level cache until it is reduced.
constexpr std::size_t kScratchBytes = 128 * 1024;

/// True if a message of `bytes` bytes is written to the memory of the receive.
bool accepts(const PostedReceive& receive, std::size_t bytes) {
  return !receive.is_withdrawn && receive.fits(bytes);
}

/// Reduces the complete elements of `incoming`, and saves the bytes of an incomplete last element.
/// @param at  offset of `incoming` in the message; a multiple of the element size
void reduce_received(PostedReceive& receive, std::size_t at, std::span<const std::byte> incoming) {
  Reduction& reduction = *receive.reduction;
  const std::size_t element = size_in_bytes(reduction.dtype);
  const std::size_t count = incoming.size() / element;
  if (count > 0) {
    reduce(receive.data + at, reduction.operand + at, incoming.data(), count, reduction.dtype, reduction.op);
  }
  const auto rest = incoming.subspan(count * element);
  std::copy(rest.begin(), rest.end(), reduction.partial_element.begin());
}

/// Number of bytes of the incomplete element that have arrived, after `received` bytes of the message.
std::size_t partial_element_bytes(const PostedReceive& receive, std::size_t received) {
  return received % size_in_bytes(receive.reduction->dtype);
}

}  // namespace

void Inbox::post_receive(const std::shared_ptr<PostedReceive>& receive) {
  KeyQueue& queue = queues_[receive->key];
  queue.posted.push_back(receive);
  ++incomplete_receives_;
  match(queue);
}

void Inbox::withdraw(const std::shared_ptr<PostedReceive>& receive) {
  if (!receive->is_done) --incomplete_receives_;
  receive->is_withdrawn = true;
  std::erase(queues_[receive->key].posted, receive);
}

std::optional<std::vector<std::byte>> Inbox::take(Key key) {
  const auto queue = queues_.find(key);
  if (queue == queues_.end() || queue->second.arrived.empty()) return std::nullopt;
  Arrival& first = queue->second.arrived.front();
  if (first.receive || first.received < first.bytes) return std::nullopt;
  auto taken = std::move(first.kept);
  release(kMessageOverheadBytes + first.charged_bytes);
  queue->second.arrived.pop_front();
  return taken;
}

bool Inbox::has_arrived(Key key, Key mask) const {
  return std::any_of(queues_.begin(), queues_.end(), [&](const auto& entry) {
    const auto& arrived = entry.second.arrived;
    return (entry.first & mask) == (key & mask) && !arrived.empty() && !arrived.back().receive;
  });
}

bool Inbox::has_partial_message() const {
  return std::any_of(queues_.begin(), queues_.end(), [](const auto& entry) {
    const auto& arrived = entry.second.arrived;
    return !arrived.empty() && arrived.back().received < arrived.back().bytes;
  });
}

void Inbox::begin_frame(const FrameHeader& header) {
  const auto [found, is_new] = queues_.try_emplace(header.key);
  frame_queue_ = &found->second;
  if (is_new) charge(kKeyOverheadBytes);
  auto& arrived = frame_queue_->arrived;
  const bool continues = !arrived.empty() && arrived.back().received < arrived.back().bytes;
  if (header.offset != (continues ? arrived.back().received : 0) ||
      (continues && header.message_bytes != arrived.back().bytes)) {
    throw TransportError(
        fmt::format("byte {} of a message of {} bytes that does not go on there", header.offset, header.message_bytes));
  }
  if (is_withdrawal(header)) return drop_withdrawn(*frame_queue_);
  if (!continues) {
    charge(kMessageOverheadBytes);
    arrived.push_back({header.message_bytes, 0, 0, {}, nullptr});
    match(*frame_queue_);
  }
  frame_left_ = header.payload_bytes;
  if (frame_left_ == 0 || arrived.back().receive) return;
  charge(frame_left_);
  arrived.back().charged_bytes += frame_left_;
}

/// Removes a withdrawn message. A matched receive stays incomplete until the job learns why the sender withdrew.
void Inbox::drop_withdrawn(KeyQueue& queue) {
  const Arrival& last = queue.arrived.back();
  if (!last.receive) release(kMessageOverheadBytes + last.charged_bytes);
  queue.arrived.pop_back();
}

std::span<std::byte> Inbox::target(std::size_t max_bytes) {
  Arrival& arrival = frame_queue_->arrived.back();
  if (!arrival.receive) {
    arrival.kept.resize(arrival.received + max_bytes);
    return {arrival.kept.data() + arrival.received, max_bytes};
  }
  PostedReceive& receive = *arrival.receive;
  if (!accepts(receive, arrival.bytes)) return {scratch(), std::min(max_bytes, kScratchBytes)};
  if (!receive.reduction) return {receive.data + arrival.received, max_bytes};
  const std::size_t partial_bytes = partial_element_bytes(receive, arrival.received);
  std::copy_n(receive.reduction->partial_element.begin(), partial_bytes, scratch());
  return {scratch() + partial_bytes, std::min(max_bytes, kScratchBytes - partial_bytes)};
}

void Inbox::filled(std::size_t bytes) {
  Arrival& arrival = frame_queue_->arrived.back();
  if (arrival.receive && arrival.receive->reduction && accepts(*arrival.receive, arrival.bytes)) {
    const std::size_t partial_bytes = partial_element_bytes(*arrival.receive, arrival.received);
    reduce_received(*arrival.receive, arrival.received - partial_bytes, {scratch(), partial_bytes + bytes});
  }
  arrival.received += bytes;
  frame_left_ -= bytes;
  if (arrival.received == arrival.bytes) match(*frame_queue_);
}

void Inbox::put(std::span<const std::byte> payload) {
  while (!payload.empty()) {
    const auto destination = target(payload.size());
    std::memcpy(destination.data(), payload.data(), destination.size());
    filled(destination.size());
    payload = payload.subspan(destination.size());
  }
}

/// Matches arrived messages with posted receives, in order, and completes receives whose message is complete.
void Inbox::match(KeyQueue& queue) {
  while (!queue.arrived.empty()) {
    Arrival& first = queue.arrived.front();
    if (!first.receive) {
      if (queue.posted.empty()) return;
      first.receive = std::move(queue.posted.front());
      queue.posted.pop_front();
      first.receive->message_bytes = first.bytes;
      deliver_kept(first);
    }
    if (first.received < first.bytes) return;
    first.receive->is_done = true;
    if (!first.receive->is_withdrawn) --incomplete_receives_;
    queue.arrived.pop_front();
  }
}

/// Copies the buffered payload into the memory of the matching receive.
void Inbox::deliver_kept(Arrival& arrival) {
  PostedReceive& receive = *arrival.receive;
  if (arrival.received > 0 && accepts(receive, arrival.bytes)) {
    if (receive.reduction) {
      reduce_received(receive, 0, std::span(arrival.kept).first(arrival.received));
    } else {
      std::memcpy(receive.data, arrival.kept.data(), arrival.received);
    }
  }
  release(kMessageOverheadBytes + arrival.charged_bytes);
  arrival.kept = {};
}

void Inbox::charge(std::size_t bytes) {
  if (!kept_.take(bytes)) {
    throw TransportError(
        fmt::format("more than the {} bytes that this process keeps before it asks for them", kept_.max_bytes()));
  }
  charged_bytes_ += bytes;
}

void Inbox::release(std::size_t bytes) {
  kept_.give_back(bytes);
  charged_bytes_ -= bytes;
}

std::byte* Inbox::scratch() {
  if (scratch_.empty()) scratch_.resize(kScratchBytes);
  return scratch_.data();
}

}  // namespace farandole::sockets
