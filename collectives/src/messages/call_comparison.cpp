// SPDX-License-Identifier: Apache-2.0
#include "messages/call_comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "farandole/core/error.h"

namespace farandole {
namespace {

bool same(const Descriptor& a, const Descriptor& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

CallComparison::CallComparison(const Group& group, std::uint8_t lane, std::uint64_t sequence, const Descriptor& mine,
                               ShownBlocks blocks)
    : group_(group), lane_(lane), shown_(std::move(blocks)), blocks_(static_cast<std::size_t>(group.size()), nullptr) {
  known_.lowest = {group.rank, 0, mine};
  // The digest carries the sequence number, so that ranks whose numbers of calls differ find that, too.
  known_.lowest.descriptor.digest = mix(mine.digest, sequence);
  if (bytes_of_run(before(1), group.size() - 1) > kMostShownBytes) {
    throw InternalError(fmt::format("the ranks show more than {} bytes in a comparison of calls", kMostShownBytes));
  }
}

/// In this round: all that this rank knows, or, in the last one, what the receiver does not have.
int CallComparison::blocks_sent() const {
  return std::min(distance_, group_.size() - distance_);
}

/// Of `count` ranks up to rank `last`.
std::size_t CallComparison::bytes_of_run(int last, int count) const {
  std::size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += bytes_of((last + group_.size() - i) % group_.size());
  return bytes;
}

Scratch CallComparison::make_message() const {
  const int count = blocks_sent();
  Scratch message(sizeof(Heading) + bytes_of_run(group_.rank, count));
  std::memcpy(message.data(), &known_, sizeof known_);
  std::byte* to = message.data() + sizeof(Heading);
  for (int i = 0; i < count; ++i) {
    const int rank = before(i);
    const std::byte* const known = block(rank);
    if (known == nullptr) {
      if (shown_.write) shown_.write(to);
    } else if (bytes_of(rank) > 0) {
      std::memcpy(to, known, bytes_of(rank));
    }
    to += bytes_of(rank);
  }
  return message;
}

void CallComparison::start_round() {
  const int to = (group_.rank + distance_) % group_.size();
  const int from = before(distance_);
  messages_.push_back(make_message());
  const std::byte* const outgoing = messages_.back().data();
  const std::size_t bytes = messages_.back().size();
  if (distance_ == 1) blocks_[static_cast<std::size_t>(group_.rank)] = outgoing + sizeof(Heading);
  messages_.emplace_back(sizeof(Heading) + kMostShownBytes);
  receive_ =
      group_.route(from).recv_up_to(group_.channel_from(from, lane_), messages_.back().data(), messages_.back().size());
  sends_.push_back(group_.route(to).send(group_.channel_to(to, lane_), outgoing, bytes));
}

void CallComparison::end_round() {
  const int from = before(distance_), count = blocks_sent();
  const std::size_t came = receive_->came(), expected = sizeof(Heading) + bytes_of_run(from, count);
  receive_.reset();
  std::byte* at = messages_.back().data();
  if (came < sizeof(Heading)) {
    throw TransportError(fmt::format("a comparison of calls needs {} bytes, and {} came from rank {}", sizeof(Heading),
                                     came, group_.member(from)));
  }
  if (came != expected) {
    // It is forwarded, and looked at by no rank.
    has_other_lengths_ = true;
    std::memset(at + sizeof(Heading), 0, expected - sizeof(Heading));
  }
  Heading received;
  std::memcpy(&received, at, sizeof received);
  at += sizeof received;
  for (int i = 0; i < count; ++i) {
    const int rank = (from + group_.size() - i) % group_.size();
    blocks_[static_cast<std::size_t>(rank)] = at;
    at += bytes_of(rank);
  }
  merge(received.lowest);
  merge(received.differing);
  distance_ *= 2;
}

void CallComparison::merge(const Entry& entry) {
  if (entry.rank < 0) return;
  if (entry.rank >= group_.size()) {
    throw TransportError(
        fmt::format("a comparison of calls names rank {} of a communicator of {}", entry.rank, group_.size()));
  }
  Entry other = entry;
  if (other.rank < known_.lowest.rank) std::swap(other, known_.lowest);
  // `other` is now the higher one; the old pair's differing entry may agree with a new lowest one.
  if (same(known_.differing.descriptor, known_.lowest.descriptor)) known_.differing.rank = -1;
  if (same(other.descriptor, known_.lowest.descriptor)) return;
  if (known_.differing.rank < 0 || other.rank < known_.differing.rank) known_.differing = other;
}

Operation::State CallComparison::advance() {
  bool moved = false;
  while (distance_ < group_.size()) {
    if (!receive_) start_round();
    if (!receive_->test()) return moved ? State::kMoved : State::kWaiting;
    end_round();
    moved = true;
  }
  std::erase_if(sends_, [](const auto& send) { return send->test(); });
  if (!sends_.empty()) return moved ? State::kMoved : State::kWaiting;
  judge();
  return State::kDone;
}

void CallComparison::judge() const {
  const Entry& a = known_.lowest;
  const Entry& b = known_.differing;
  if (b.rank >= 0) throw_mismatch(group_, a.rank, a.descriptor, b.rank, b.descriptor);
  if (a.descriptor.algorithm == Descriptor::kRefused) throw_refused(a.descriptor);
  if (has_other_lengths_) throw TransportError(fmt::format("{}: data of another length came", describe(a.descriptor)));
}

Aftermath CallComparison::withdraw() {
  auto worst = receive_ ? receive_->withdraw() : Aftermath::kNone;
  for (const auto& send : sends_) worst = std::max(worst, send->withdraw());
  return worst;
}

std::vector<int> CallComparison::waits_for() const {
  if (!receive_) return {};
  return {group_.member(before(distance_))};
}

}  // namespace farandole
