// SPDX-License-Identifier: Apache-2.0
#include "messages/call_comparison.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace farandole {
namespace {

std::uint8_t message_lane(std::uint64_t number) {
  return static_cast<std::uint8_t>(number / LaneLedger::kNumbersPerCollective % kLanes);
}

}  // namespace

std::unique_ptr<CallComparison> CallComparison::make(const Group& group, const Hierarchy* hierarchy, ShmGroup* host,
                                                     std::uint64_t number, const Descriptor& mine,
                                                     PayloadBlocks blocks) {
  if (hierarchy == nullptr) return std::make_unique<FlatComparison>(group, number, mine, std::move(blocks));
  return std::make_unique<HierarchicalComparison>(group, *hierarchy, host, number, mine, std::move(blocks));
}

FlatComparison::FlatComparison(const Group& group, std::uint64_t number, const Descriptor& mine, PayloadBlocks blocks)
    : group_(group),
      dissemination_(group, message_lane(number), ComparedCalls::of(group.rank, mine, number), group.size(),
                     std::move(blocks)) {}

Operation::State FlatComparison::advance() {
  const State state = dissemination_.advance();
  if (state != State::kDone) return state;
  dissemination_.calls().throw_if_different(group_);
  dissemination_.check_lengths();
  return State::kDone;
}

HierarchicalComparison::HierarchicalComparison(const Group& group, const Hierarchy& hierarchy, ShmGroup* host,
                                               std::uint64_t number, const Descriptor& mine, PayloadBlocks blocks)
    : group_(group),
      hierarchy_(hierarchy),
      host_(host),
      number_(number),
      compared_(ComparedCalls::of(group.rank, mine, number)),
      payload_(std::move(blocks)) {
  if (!payload_.bytes.empty()) place_blocks();
}

/// Computes `places_`: the payloads of a host's ranks follow each other in the order of ranks, and hosts follow each
/// other.
void HierarchicalComparison::place_blocks() {
  places_.resize(static_cast<std::size_t>(group_.size()));
  std::size_t before = 0;
  for (int host = 0; host < hierarchy_.host_count(); ++host) {
    std::size_t bytes = 0;
    for (const int rank : hierarchy_.ranks_of(host)) {
      places_[static_cast<std::size_t>(rank)] = {host, bytes, before + bytes};
      bytes += payload_.bytes_of(rank);
    }
    bytes_of_host_.push_back(bytes);
    before += bytes;
  }
}

Operation::State HierarchicalComparison::advance() {
  for (bool moved = false;; moved = true) {
    const State state = step();
    if (state == State::kDone) return state;
    if (state == State::kWaiting) return moved ? State::kMoved : state;
  }
}

Operation::State HierarchicalComparison::step() {
  switch (phase_) {
    case Phase::kConnect:
      if (host_ != nullptr && !host_->connect()) return State::kWaiting;
      publish();
      return State::kMoved;
    case Phase::kGather:
      if (host_gather_ && !host_gather_->all_contributed()) return State::kWaiting;
      begin_across();
      return State::kMoved;
    case Phase::kAcross:
      if (const State state = across_->advance(); state != State::kDone) return state;
      publish_answer();
      compared_.throw_if_different(group_);
      across_->check_lengths();
      return State::kDone;
    case Phase::kAwaitAnswer:
      if (!host_gather_->has_result()) return State::kWaiting;
      compared_ = std::bit_cast<ComparedCalls>(host_gather_->result());
      compared_.throw_if_different(group_);
      break;
  }
  return State::kDone;
}

void HierarchicalComparison::publish() {
  phase_ = is_first() ? Phase::kGather : Phase::kAwaitAnswer;
  if (host_ == nullptr) return;
  host_gather_.emplace(*host_, number_);
  // The hierarchy buffer of the first rank is for the answer: blocks_of_hosts() writes this rank's payload into the
  // message.
  if (!is_first() && payload_.bytes_of(group_.rank) > 0) payload_.write(host_gather_->hierarchy_buffer());
  host_gather_->contribute(std::bit_cast<HostGather::Contribution>(compared_.lowest));
}

void HierarchicalComparison::begin_across() {
  for (int local = 0; host_gather_ && local < host_->size(); ++local) {
    ComparedCalls received;
    received.lowest = std::bit_cast<ComparedCalls::Entry>(host_gather_->contribution_of(local));
    compared_.merge(received, group_.size());
  }
  std::vector<int> first_ranks;
  for (const std::vector<int>& ranks : hierarchy_.hosts) first_ranks.push_back(ranks.front());
  first_ranks_ = group_across(group_, first_ranks);
  across_.emplace(first_ranks_, message_lane(number_), compared_, group_.size(), blocks_of_hosts());
  phase_ = Phase::kAcross;
}

PayloadBlocks HierarchicalComparison::blocks_of_hosts() {
  PayloadBlocks blocks;
  if (payload_.bytes.empty()) return blocks;
  blocks.bytes = bytes_of_host_;
  blocks.write = [this](std::byte* to) {
    if (payload_.bytes_of(group_.rank) > 0) payload_.write(to);
    for (int local = 1; host_ != nullptr && local < host_->size(); ++local) {
      const int rank = host_->member(local);
      const std::size_t bytes = payload_.bytes_of(rank);
      if (bytes > 0)
        std::memcpy(to + places_[static_cast<std::size_t>(rank)].in_host, host_gather_->hierarchy_buffer_of(local),
                    bytes);
    }
  };
  return blocks;
}

void HierarchicalComparison::publish_answer() {
  compared_ = across_->calls();
  if (!host_gather_) return;
  std::byte* to = host_gather_->hierarchy_buffer();
  for (std::size_t host = 0; host < bytes_of_host_.size(); ++host) {
    const std::size_t bytes = bytes_of_host_[host];
    if (bytes > 0) std::memcpy(to, across_->block(static_cast<int>(host)), bytes);
    to += bytes;
  }
  host_gather_->broadcast(std::bit_cast<HostGather::Result>(compared_));
}

const std::byte* HierarchicalComparison::block(int rank) const {
  const Place& place = places_[static_cast<std::size_t>(rank)];
  if (across_) return across_->block(place.host) + place.in_host;
  return host_gather_->result_buffer() + place.in_answer;
}

std::vector<int> HierarchicalComparison::waits_for() const {
  if (across_) return across_->waits_for();
  if (phase_ == Phase::kAwaitAnswer) return {group_.member(host_->member(0))};
  if (!host_gather_) return host_ != nullptr ? host_->peers_of(group_) : std::vector<int>{};
  std::vector<int> ranks;
  for (const int local : host_gather_->missing()) ranks.push_back(group_.member(host_->member(local)));
  return ranks;
}

}  // namespace farandole
