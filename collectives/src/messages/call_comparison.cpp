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

CallComparison::CallComparison(const Group& group, std::uint8_t lane, std::uint64_t sequence, const Descriptor& mine)
    : group_(group), lane_(lane) {
  known_.lowest = {group.rank, 0, mine};
  // The digest carries the sequence number, so that ranks whose numbers of calls differ find that, too.
  known_.lowest.descriptor.digest = mix(mine.digest, sequence);
}

void CallComparison::start_round() {
  const int size = group_.size();
  const int to = (group_.rank + distance_) % size;
  const int from = (group_.rank + size - distance_) % size;
  outgoing_.push_back(std::make_unique<Message>(known_));
  receive_ = group_.route(from).recv(group_.channel_from(from, lane_), &incoming_, sizeof incoming_);
  sends_.push_back(group_.route(to).send(group_.channel_to(to, lane_), outgoing_.back().get(), sizeof(Message)));
  receiving_ = true;
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
    if (!receiving_) start_round();
    if (!receive_->test()) return moved ? State::kMoved : State::kWaiting;
    receive_.reset();
    receiving_ = false;
    const Message received = incoming_;
    merge(received.lowest);
    merge(received.differing);
    distance_ *= 2;
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
}

Aftermath CallComparison::withdraw() {
  auto worst = receive_ ? receive_->withdraw() : Aftermath::kNone;
  for (const auto& send : sends_) worst = std::max(worst, send->withdraw());
  return worst;
}

std::vector<int> CallComparison::waits_for() const {
  if (!receiving_) return {};
  return {group_.member((group_.rank + group_.size() - distance_) % group_.size())};
}

}  // namespace farandole
