// SPDX-License-Identifier: Apache-2.0
#include "fake_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "fake_waiting.h"

namespace farandole::fake {

Transfer::Transfer(const Message& message, Channel& channel, Channel& reverse, std::uint64_t number)
    : message_(message), channel_(channel), reverse_(reverse), number_(number) {}

bool Transfer::advance(Random& random) {
  return message_.direction == Message::Direction::kSend ? advance_send(random) : advance_receive(random);
}

bool Transfer::advance_send(Random& random) {
  if (!is_begun_) return announce(random);
  if (waits_for_receive_) {
    if (channel_.begun.load(std::memory_order_acquire) <= number_) return false;
    waits_for_receive_ = false;
  }
  const bool has_produced = produce(random);
  is_complete_ = done_bytes_ == message_.bytes;
  return has_produced || is_complete_;
}

bool Transfer::announce(Random& random) {
  // Wait until the receiver has read the header that this one overwrites. It may not yet have read the header of the
  // last message that it has begun.
  if (number_ + 1 >= channel_.begun.load(std::memory_order_acquire) + Channel::kHeaders) return false;
  channel_.headers[number_ % Channel::kHeaders] = {message_.bytes, message_.call, message_.is_alone ? 1U : 0U};
  // Sequentially consistent with the peer's store: of two sends that wait for each other, at least one sees the other.
  channel_.announced.store(number_ + 1, std::memory_order_seq_cst);
  is_begun_ = true;
  const auto buffered_percent = static_cast<std::uint64_t>(option(Option::kBufferedPercent));
  waits_for_receive_ = random.below(100) >= buffered_percent;
  const std::uint64_t peers = reverse_.announced.load(std::memory_order_seq_cst);
  if (message_.is_alone && &channel_ != &reverse_ && peers > reverse_.begun.load(std::memory_order_relaxed)) {
    if (reverse_.headers[(peers - 1) % Channel::kHeaders].is_alone != 0) {
      problem_ = fmt::format(
          "ncclSend to rank {} outside of a group, while that rank sends to this one outside of a "
          "group: each waits for the receive of the other",
          message_.peer);
    }
  }
  return true;
}

bool Transfer::advance_receive(Random& random) {
  if (!is_begun_) {
    // Receives begin late at random, so that a sender that relies on buffering fails.
    if (!random.one_in(4)) return true;
    channel_.begun.store(number_ + 1, std::memory_order_release);
    is_begun_ = true;
    return true;
  }
  if (channel_.announced.load(std::memory_order_acquire) <= number_) return false;
  if (!is_compared_) {
    compare_with_header();
    is_compared_ = true;
  }
  if (!problem_.empty() || !mismatch_.empty()) return false;
  const bool has_consumed = consume(random);
  is_complete_ = done_bytes_ == message_.bytes;
  return has_consumed || is_complete_;
}

void Transfer::compare_with_header() {
  const MessageHeader& sent = channel_.headers[number_ % Channel::kHeaders];
  std::string& found = option(Option::kMismatchHangs) != 0 ? mismatch_ : problem_;
  if (sent.call != message_.call) {
    found = fmt::format("ranks call different collectives: rank {} {}, this one {}", message_.peer, text_of(sent.call),
                        text_of(message_.call));
  } else if (sent.bytes != message_.bytes) {
    found = fmt::format("rank {} sends {} bytes, but this one receives {}", message_.peer, sent.bytes, message_.bytes);
  }
}

bool Transfer::produce(Random& random) {
  const std::uint64_t produced = channel_.produced.load(std::memory_order_relaxed);
  const std::uint64_t consumed = channel_.consumed.load(std::memory_order_acquire);
  const std::size_t at = produced % Channel::kRingBytes;
  const std::size_t room = std::min(Channel::kRingBytes - (produced - consumed), Channel::kRingBytes - at);
  std::size_t bytes = std::min(room, message_.bytes - done_bytes_);
  if (bytes == 0) return false;
  if (random.one_in(4)) bytes = 1 + random.below(bytes);
  std::memcpy(channel_.ring.data() + at, message_.data + done_bytes_, bytes);
  channel_.produced.store(produced + bytes, std::memory_order_release);
  done_bytes_ += bytes;
  return true;
}

bool Transfer::consume(Random& random) {
  const std::uint64_t consumed = channel_.consumed.load(std::memory_order_relaxed);
  const std::uint64_t produced = channel_.produced.load(std::memory_order_acquire);
  const std::size_t at = consumed % Channel::kRingBytes;
  const std::size_t there = std::min<std::size_t>(produced - consumed, Channel::kRingBytes - at);
  std::size_t bytes = std::min(there, message_.bytes - done_bytes_);
  if (bytes == 0) return false;
  if (random.one_in(4)) bytes = 1 + random.below(bytes);
  std::memcpy(message_.data + done_bytes_, channel_.ring.data() + at, bytes);
  channel_.consumed.store(consumed + bytes, std::memory_order_release);
  done_bytes_ += bytes;
  return true;
}

std::string Transfer::awaited() const {
  const bool is_send = message_.direction == Message::Direction::kSend;
  const char* const what = message_.call.kind == Collective::kNone ? "message" : "message of a collective";
  if (is_send) return fmt::format("rank {} to receive {} {} ({} bytes)", message_.peer, what, number_, message_.bytes);
  return fmt::format("{} {} ({} bytes) from rank {}{}{}", what, number_, message_.bytes, message_.peer,
                     mismatch_.empty() ? "" : ", for ever: ", mismatch_);
}

void MessageGroup::add(const Message& message, std::uint64_t number) {
  const bool is_send = message.direction == Message::Direction::kSend;
  const int from = is_send ? rank_ : message.peer;
  const int to = is_send ? message.peer : rank_;
  queues_[{message.direction, message.kind, message.peer}].emplace_back(
      message, segment_.channel(message.kind, from, to), segment_.channel(message.kind, to, from), number);
}

bool MessageGroup::advance_all(Random& random) {
  std::vector<std::deque<Transfer>*> order;
  for (auto& [key, queue] : queues_) {
    if (!queue.empty()) order.push_back(&queue);
  }
  bool has_advanced = false;
  for (std::size_t left = order.size(); left > 0; --left) {
    std::swap(order[left - 1], order[random.below(left)]);
    std::deque<Transfer>& queue = *order[left - 1];
    has_advanced = queue.front().advance(random) || has_advanced;
    if (queue.front().is_complete() && queue.front().problem().empty()) queue.pop_front();
  }
  return has_advanced;
}

std::string MessageGroup::first_problem() const {
  for (const auto& [key, queue] : queues_) {
    if (!queue.empty() && !queue.front().problem().empty()) return queue.front().problem();
  }
  return {};
}

void MessageGroup::describe_stall() const {
  std::string awaited;
  for (const auto& [key, queue] : queues_) {
    if (!queue.empty()) awaited += (awaited.empty() ? "" : "; ") + queue.front().awaited();
  }
  const std::string line = fmt::format("fake device: rank {} still waits for {}\n", rank_, awaited);
  std::fputs(line.c_str(), stderr);
}

GroupEnd MessageGroup::run(Random& random, const std::function<bool()>& must_stop,
                           std::atomic<std::uint64_t>& idle_polls) {
  using Clock = std::chrono::steady_clock;
  for (const auto& begin : begins_) begin(random);
  Backoff backoff;
  auto last_advance = Clock::now();
  bool is_stall_reported = false;
  const auto is_complete = [this] {
    return std::all_of(queues_.begin(), queues_.end(), [](const auto& entry) { return entry.second.empty(); });
  };
  while (!is_complete()) {
    if (must_stop()) return GroupEnd::kStopped;
    const bool has_advanced = advance_all(random);
    if (const std::string problem = first_problem(); !problem.empty()) {
      segment_.break_with(fmt::format("rank {}: {}", rank_, problem));
    }
    if (!segment_.why_broken().empty()) return GroupEnd::kBroken;
    if (has_advanced) {
      idle_polls.store(0, std::memory_order_relaxed);
      backoff.reset();
      last_advance = Clock::now();
      continue;
    }
    idle_polls.fetch_add(1, std::memory_order_relaxed);
    backoff.pause();
    if (!is_stall_reported && Clock::now() > last_advance + std::chrono::seconds(option(Option::kStallSeconds))) {
      describe_stall();
      is_stall_reported = true;
    }
  }
  for (const auto& finish : finishes_) finish(random);
  return GroupEnd::kComplete;
}

}  // namespace farandole::fake
