// SPDX-License-Identifier: Apache-2.0
#include "descriptor.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "farandole/core/error.h"

namespace farandole {
namespace {

/// False for what no rank can have called: it has come from one whose memory or messages are not what they should be.
bool is_call(const Descriptor& descriptor) {
  return static_cast<int>(descriptor.collective) < kCollectiveCount &&
         static_cast<int>(descriptor.dtype) < kDTypeCount && descriptor.op <= ReduceOp::kAverage;
}

bool same(const Descriptor& a, const Descriptor& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

std::string describe(const Descriptor& descriptor) {
  if (!is_call(descriptor)) return "something that is no collective";
  std::string text(name(descriptor.collective));
  if (descriptor.collective == Collective::kBarrier) return text;
  if (descriptor.collective == Collective::kAlltoall && descriptor.count == 0) {
    text += fmt::format(" of {} elements in uneven parts", name(descriptor.dtype));
  } else {
    text += fmt::format(" of {} {} elements", descriptor.count, name(descriptor.dtype));
  }
  if (reduces(descriptor.collective)) text += fmt::format(", {}", name(descriptor.op));
  if (descriptor.root >= 0) text += fmt::format(", root {}", descriptor.root);
  const auto table = algorithms();
  if (descriptor.algorithm < table.size()) {
    text += fmt::format(", {}", table[descriptor.algorithm].name);
  } else if (descriptor.algorithm == Descriptor::kVendor) {
    text += ", vendor";
  } else if (descriptor.algorithm == Descriptor::kSharedMemory) {
    text += ", shared_memory";
  } else if (descriptor.algorithm == Descriptor::kHierarchical) {
    text += ", hierarchical";
  } else {
    text += ", with arguments that it refuses";
  }
  return text;
}

FlightSubject subject_of(const Descriptor& descriptor) {
  return {std::bit_cast<FlightSubject::Words>(descriptor),
          [](const FlightSubject::Words& words) { return describe(std::bit_cast<Descriptor>(words)); }};
}

std::uint64_t mix(std::uint64_t digest, std::uint64_t value) {
  // splitmix64's finaliser
  std::uint64_t z = digest * 0x9e3779b97f4a7c15ULL + value + 0x632be59bd9b4e019ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

void throw_mismatch(const Group& group, int rank, const Descriptor& called, int other_rank,
                    const Descriptor& other_called) {
  const auto description = [&](int who, const Descriptor& what) {
    return group.endpoint->topology().describe(group.member(who)) + " called " + describe(what);
  };
  std::string_view hint = "every rank must make the same calls in the same order; no data was touched";
  if (describe(called) == describe(other_called)) {
    hint = "they differ in uneven counts, scale, segments, or the number of calls before; no data was touched";
  }
  throw Mismatch(fmt::format("{}, but {}: {}", description(rank, called), description(other_rank, other_called), hint));
}

void throw_refused(const Descriptor& called) {
  throw Mismatch(fmt::format("the ranks disagree on what they send each other in {}", describe(called)));
}

DescriptorCheck::DescriptorCheck(const Group& group, std::uint8_t lane, std::uint64_t sequence, const Descriptor& mine)
    : group_(group), lane_(lane) {
  known_.lowest = {group.rank, 0, mine};
  // The digest carries the sequence number, so that ranks which lost count of each other are told apart as well.
  known_.lowest.descriptor.digest = mix(mine.digest, sequence);
}

void DescriptorCheck::start_round() {
  const int size = group_.size();
  const int to = (group_.rank + distance_) % size;
  const int from = (group_.rank + size - distance_) % size;
  outgoing_.push_back(std::make_unique<Message>(known_));
  receive_ = group_.route(from).recv(group_.channel_from(from, lane_), &incoming_, sizeof incoming_);
  sends_.push_back(group_.route(to).send(group_.channel_to(to, lane_), outgoing_.back().get(), sizeof(Message)));
  receiving_ = true;
}

void DescriptorCheck::merge(const Entry& entry) {
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

Operation::State DescriptorCheck::advance() {
  bool moved = false;
  while (distance_ < group_.size()) {
    if (!receiving_) start_round();
    if (!receive_->test()) return moved ? State::kMoved : State::kWaiting;
    receive_.reset();
    receiving_ = false;
    const Message heard = incoming_;
    merge(heard.lowest);
    merge(heard.differing);
    distance_ *= 2;
    moved = true;
  }
  std::erase_if(sends_, [](const auto& send) { return send->test(); });
  if (!sends_.empty()) return moved ? State::kMoved : State::kWaiting;
  judge();
  return State::kDone;
}

void DescriptorCheck::judge() const {
  const Entry& a = known_.lowest;
  const Entry& b = known_.differing;
  if (b.rank >= 0) throw_mismatch(group_, a.rank, a.descriptor, b.rank, b.descriptor);
  if (a.descriptor.algorithm == Descriptor::kRefused) throw_refused(a.descriptor);
}

Aftermath DescriptorCheck::withdraw() {
  auto worst = receive_ ? receive_->withdraw() : Aftermath::kNone;
  for (const auto& send : sends_) worst = std::max(worst, send->withdraw());
  return worst;
}

std::vector<int> DescriptorCheck::waits_for() const {
  if (!receiving_) return {};
  return {group_.member((group_.rank + group_.size() - distance_) % group_.size())};
}

}  // namespace farandole
