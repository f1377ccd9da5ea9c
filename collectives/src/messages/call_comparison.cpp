// SPDX-License-Identifier: Apache-2.0
#include "messages/call_comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "farandole/core/error.h"

namespace farandole {
namespace {

constexpr std::size_t kHeaderBytes = sizeof(ComparedCalls);
static_assert(kHeaderBytes + Dissemination::kMaxPayloadBytes <= kMaxUnknownBytes);

bool is_same(const Descriptor& a, const Descriptor& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

std::uint8_t message_lane(std::uint64_t number) {
  return static_cast<std::uint8_t>(number / LaneLedger::kNumbersPerCollective % kLanes);
}

}  // namespace

ComparedCalls ComparedCalls::of(int rank, const Descriptor& call, std::uint64_t sequence) {
  ComparedCalls calls;
  calls.lowest = {rank, 0, call};
  calls.lowest.descriptor.digest = mix(call.digest, sequence);
  return calls;
}

void ComparedCalls::merge(const ComparedCalls& received, int size) {
  merge(received.lowest, size);
  merge(received.differing, size);
}

void ComparedCalls::merge(Entry entry, int size) {
  if (entry.rank < 0) return;
  if (entry.rank >= size) {
    throw TransportError(fmt::format("a comparison of calls names rank {} of a communicator of {}", entry.rank, size));
  }
  if (entry.rank < lowest.rank) std::swap(entry, lowest);
  // `entry` now has the higher rank of the two. Drop `differing` if it agrees with a new `lowest`.
  if (is_same(differing.descriptor, lowest.descriptor)) differing.rank = -1;
  if (is_same(entry.descriptor, lowest.descriptor)) return;
  if (differing.rank < 0 || entry.rank < differing.rank) differing = entry;
}

void ComparedCalls::throw_if_different(const Group& group) const {
  if (differing.rank >= 0) throw_mismatch(group, lowest.rank, lowest.descriptor, differing.rank, differing.descriptor);
  if (lowest.descriptor.algorithm == Descriptor::kRefused) throw_refused(lowest.descriptor);
}

Dissemination::Dissemination(const Group& ranks, std::uint8_t lane, const ComparedCalls& mine, int compared_ranks,
                             PayloadBlocks blocks)
    : group_(ranks),
      lane_(lane),
      compared_ranks_(compared_ranks),
      payload_(std::move(blocks)),
      known_(mine),
      blocks_(static_cast<std::size_t>(ranks.size()), nullptr) {
  if (bytes_of_run(rank_before(1), ranks.size() - 1) > kMaxPayloadBytes) {
    throw InternalError(fmt::format("the ranks show more than {} bytes with their calls", kMaxPayloadBytes));
  }
}

/// Number of blocks in this round's message: all that this rank knows, or, in the last round, all that the receiver
/// lacks.
int Dissemination::blocks_sent() const {
  return std::min(distance_, group_.size() - distance_);
}

/// Bytes of the blocks of `count` ranks that end with rank `last`.
std::size_t Dissemination::bytes_of_run(int last, int count) const {
  std::size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += payload_.bytes_of((last + group_.size() - i) % group_.size());
  return bytes;
}

Scratch Dissemination::make_message() const {
  const int count = blocks_sent();
  Scratch message(kHeaderBytes + bytes_of_run(group_.rank, count));
  std::memcpy(message.data(), &known_, kHeaderBytes);
  std::byte* to = message.data() + kHeaderBytes;
  for (int i = 0; i < count; ++i) {
    const int rank = rank_before(i);
    const std::size_t bytes = payload_.bytes_of(rank);
    const std::byte* const known = block(rank);
    if (bytes > 0 && known == nullptr) payload_.write(to);
    if (bytes > 0 && known != nullptr) std::memcpy(to, known, bytes);
    to += bytes;
  }
  return message;
}

void Dissemination::start_round() {
  const int to = (group_.rank + distance_) % group_.size();
  const int from = rank_before(distance_);
  messages_.push_back(make_message());
  const std::byte* const outgoing = messages_.back().data();
  const std::size_t bytes = messages_.back().size();
  if (distance_ == 1) blocks_[static_cast<std::size_t>(group_.rank)] = outgoing + kHeaderBytes;
  messages_.emplace_back(kHeaderBytes + kMaxPayloadBytes);
  const Scratch& incoming = messages_.back();
  receive_ = group_.route(from).recv_up_to(group_.channel_from(from, lane_), incoming.data(), incoming.size());
  sends_.push_back({to, group_.route(to).send(group_.channel_to(to, lane_), outgoing, bytes)});
}

void Dissemination::end_round() {
  const int from = rank_before(distance_), count = blocks_sent();
  const std::size_t actual = receive_->received_bytes(), expected = kHeaderBytes + bytes_of_run(from, count);
  receive_.reset();
  std::byte* at = messages_.back().data();
  if (actual < kHeaderBytes) {
    throw TransportError(fmt::format("a comparison of calls has at least {} bytes, and {} came from rank {}",
                                     kHeaderBytes, actual, group_.member(from)));
  }
  if (actual != expected) {
    // Later rounds pass these blocks on, so fill them with zeros; no rank uses them.
    has_length_mismatch_ = true;
    std::memset(at + kHeaderBytes, 0, expected - kHeaderBytes);
  }
  ComparedCalls received;
  std::memcpy(&received, at, kHeaderBytes);
  known_.merge(received, compared_ranks_);
  at += kHeaderBytes;
  for (int i = 0; i < count; ++i) {
    const int rank = (from + group_.size() - i) % group_.size();
    blocks_[static_cast<std::size_t>(rank)] = at;
    at += payload_.bytes_of(rank);
  }
  distance_ *= 2;
}

Operation::State Dissemination::advance() {
  bool moved = false;
  while (distance_ < group_.size()) {
    if (!receive_) start_round();
    const bool is_received = receive_->test();
    // Test the sends, too: a socket may have taken only a part of a message, and testing sends the rest. Otherwise that
    // message's receiver would wait, and all ranks might wait for that receiver.
    drop_completed_sends();
    if (!is_received) return moved ? State::kMoved : State::kWaiting;
    end_round();
    moved = true;
  }
  drop_completed_sends();
  if (!sends_.empty()) return moved ? State::kMoved : State::kWaiting;
  return State::kDone;
}

/// If a test throws, some entries that stay in `sends_` may hold null transfers.
void Dissemination::drop_completed_sends() {
  std::erase_if(sends_, [](const Sent& sent) { return sent.transfer->test(); });
}

void Dissemination::check_lengths() const {
  if (!has_length_mismatch_) return;
  throw TransportError(fmt::format("{}: data of another length came", describe(known_.lowest.descriptor)));
}

BufferHazard Dissemination::withdraw() {
  auto worst = give_up(receive_);
  for (Sent& sent : sends_) worst = std::max(worst, give_up(sent.transfer));
  return worst;
}

std::vector<int> Dissemination::waits_for() const {
  if (receive_) return {group_.member(rank_before(distance_))};
  std::vector<int> ranks;
  for (const Sent& sent : sends_) ranks.push_back(group_.member(sent.to));
  return ranks;
}

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

/// Computes `places_`: payloads are sorted by host, then by rank.
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
  // The first rank's hierarchy buffer is reserved for the answer; blocks_of_hosts() writes the first rank's payload
  // directly into the message.
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
