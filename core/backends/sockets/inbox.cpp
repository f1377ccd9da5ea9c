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

// About what a message that is kept, and a key that a peer has made up, cost beside the data.
constexpr std::size_t kMessageOverhead = 64;
constexpr std::size_t kKeyOverhead = 1536;
// Stays in a core's second cache while it is reduced.
constexpr std::size_t kScratchBytes = 128 * 1024;

/// Whether the bytes of a message of this length are put into the transfer's memory.
bool is_written(const Incoming& message, std::size_t bytes) {
  return !message.is_withdrawn && message.fits(bytes);
}

/// Reduces the elements of `incoming` that are whole, and keeps the beginning of the next one.
/// @param at  offset in the message of the first byte of `incoming`, which is aligned: the first of an element
void reduce_arrived(Incoming& message, std::size_t at, std::span<const std::byte> incoming) {
  Reduction& reduction = *message.reduction;
  const std::size_t element = size_in_bytes(reduction.dtype);
  const std::size_t count = incoming.size() / element;
  if (count > 0) {
    reduce(message.data + at, reduction.operand + at, incoming.data(), count, reduction.dtype, reduction.op);
  }
  const auto rest = incoming.subspan(count * element);
  std::copy(rest.begin(), rest.end(), reduction.begun.begin());
}

/// Bytes that have come of an element that is not complete.
std::size_t begun_bytes(const Incoming& message, std::size_t came) {
  return came % size_in_bytes(message.reduction->dtype);
}

}  // namespace

void Inbox::want(const std::shared_ptr<Incoming>& message) {
  Line& line = lines_[message->key];
  line.wanted.push_back(message);
  ++waiting_;
  match(line);
}

void Inbox::withdraw(const std::shared_ptr<Incoming>& message) {
  if (!message->is_done) --waiting_;
  message->is_withdrawn = true;
  std::erase(lines_[message->key].wanted, message);
}

std::optional<std::vector<std::byte>> Inbox::take(Key key) {
  const auto line = lines_.find(key);
  if (line == lines_.end() || line->second.arrived.empty()) return std::nullopt;
  Arrival& first = line->second.arrived.front();
  if (first.into || first.came < first.bytes) return std::nullopt;
  auto taken = std::move(first.kept);
  let_go(kMessageOverhead + first.counted);
  line->second.arrived.pop_front();
  return taken;
}

bool Inbox::has_arrived(Key key, Key mask) const {
  return std::any_of(lines_.begin(), lines_.end(), [&](const auto& entry) {
    const auto& arrived = entry.second.arrived;
    return (entry.first & mask) == (key & mask) && !arrived.empty() && !arrived.back().into;
  });
}

bool Inbox::is_in_message() const {
  return std::any_of(lines_.begin(), lines_.end(), [](const auto& entry) {
    const auto& arrived = entry.second.arrived;
    return !arrived.empty() && arrived.back().came < arrived.back().bytes;
  });
}

void Inbox::begin_frame(const FrameHeader& header) {
  const auto [found, is_new] = lines_.try_emplace(header.key);
  line_ = &found->second;
  if (is_new) keep(kKeyOverhead);
  auto& arrived = line_->arrived;
  const bool goes_on = !arrived.empty() && arrived.back().came < arrived.back().bytes;
  if (header.offset != (goes_on ? arrived.back().came : 0) ||
      (goes_on && header.message_bytes != arrived.back().bytes)) {
    throw TransportError(
        fmt::format("byte {} of a message of {} bytes that does not go on there", header.offset, header.message_bytes));
  }
  if (is_withdrawal(header)) return drop_last(*line_);
  if (!goes_on) {
    keep(kMessageOverhead);
    arrived.push_back({header.message_bytes, 0, 0, {}, nullptr});
    match(*line_);
  }
  frame_left_ = header.payload_bytes;
  if (frame_left_ == 0 || arrived.back().into) return;
  keep(frame_left_);
  arrived.back().counted += frame_left_;
}

/// The transfer that wants it goes on waiting until the job learns why the message was withdrawn.
void Inbox::drop_last(Line& line) {
  const Arrival& last = line.arrived.back();
  if (!last.into) let_go(kMessageOverhead + last.counted);
  line.arrived.pop_back();
}

std::span<std::byte> Inbox::target(std::size_t most) {
  Arrival& arrival = line_->arrived.back();
  if (!arrival.into) {
    arrival.kept.resize(arrival.came + most);
    return {arrival.kept.data() + arrival.came, most};
  }
  Incoming& message = *arrival.into;
  if (!is_written(message, arrival.bytes)) return {scratch(), std::min(most, kScratchBytes)};
  if (!message.reduction) return {message.data + arrival.came, most};
  const std::size_t begun = begun_bytes(message, arrival.came);
  std::copy_n(message.reduction->begun.begin(), begun, scratch());
  return {scratch() + begun, std::min(most, kScratchBytes - begun)};
}

void Inbox::filled(std::size_t bytes) {
  Arrival& arrival = line_->arrived.back();
  if (arrival.into && arrival.into->reduction && is_written(*arrival.into, arrival.bytes)) {
    const std::size_t begun = begun_bytes(*arrival.into, arrival.came);
    reduce_arrived(*arrival.into, arrival.came - begun, {scratch(), begun + bytes});
  }
  arrival.came += bytes;
  frame_left_ -= bytes;
  if (arrival.came == arrival.bytes) match(*line_);
}

void Inbox::put(std::span<const std::byte> payload) {
  while (!payload.empty()) {
    const auto to = target(payload.size());
    std::memcpy(to.data(), payload.data(), to.size());
    filled(to.size());
    payload = payload.subspan(to.size());
  }
}

/// Brings messages that have arrived and transfers that wait for them together, in order.
void Inbox::match(Line& line) {
  while (!line.arrived.empty()) {
    Arrival& first = line.arrived.front();
    if (!first.into) {
      if (line.wanted.empty()) return;
      first.into = std::move(line.wanted.front());
      line.wanted.pop_front();
      first.into->message_bytes = first.bytes;
      move_kept(first);
    }
    if (first.came < first.bytes) return;
    first.into->is_done = true;
    if (!first.into->is_withdrawn) --waiting_;
    line.arrived.pop_front();
  }
}

/// Into the memory of the transfer that wants it.
void Inbox::move_kept(Arrival& arrival) {
  Incoming& message = *arrival.into;
  if (arrival.came > 0 && is_written(message, arrival.bytes)) {
    if (message.reduction) {
      reduce_arrived(message, 0, std::span(arrival.kept).first(arrival.came));
    } else {
      std::memcpy(message.data, arrival.kept.data(), arrival.came);
    }
  }
  let_go(kMessageOverhead + arrival.counted);
  arrival.kept = {};
}

void Inbox::keep(std::size_t bytes) {
  if (!kept_.take(bytes)) {
    throw TransportError(
        fmt::format("more than the {} bytes that this process keeps before it asks for them", kept_.most()));
  }
  kept_here_ += bytes;
}

void Inbox::let_go(std::size_t bytes) {
  kept_.give_back(bytes);
  kept_here_ -= bytes;
}

std::byte* Inbox::scratch() {
  if (scratch_.empty()) scratch_.resize(kScratchBytes);
  return scratch_.data();
}

}  // namespace farandole::sockets
