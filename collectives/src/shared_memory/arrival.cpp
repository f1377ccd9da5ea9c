// SPDX-License-Identifier: Apache-2.0
#include "shared_memory/arrival.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <cstring>

#include "farandole/core/error.h"

namespace farandole {

Arrival::Arrival(const Group& group, ShmGroup& host, const Descriptor& descriptor, std::uint64_t number)
    : group_(group),
      host_(host),
      number_(number),
      lane_(host.lane_of(number)),
      descriptor_(descriptor),
      digest_(digest_of(descriptor, number)) {
  // Ranks whose numbers of calls differ find that, too.
  descriptor_.digest = mix(descriptor_.digest, number);
}

bool Arrival::show_buffers(ConstBufferView input, BufferView output, bool input_is_whole) {
  ArrivalRecord& mine = record(host_.rank());
  std::uint64_t place = ShmGroup::kUnreachable, address = ShmGroup::kUnreachable;
  if (input_is_whole) {
    place = host_.locate(input.data, input.size_in_bytes());
    address = reinterpret_cast<std::uintptr_t>(input.data);
  }
  mine.input().store(place, std::memory_order_relaxed);
  mine.output().store(host_.locate(output.data, output.size_in_bytes()), std::memory_order_relaxed);
  mine.address().store(address, std::memory_order_relaxed);
  return place != ShmGroup::kUnreachable;
}

void Arrival::show_counts(const Parts& sent, const Parts& expected) {
  has_counts_ = true;
  std::uint64_t* mine = counts(host_.rank());
  for (std::size_t peer = 0; peer < size(); ++peer) {
    mine[peer] = sent[peer];
    mine[size() + peer] = expected[peer];
  }
}

std::vector<int> Arrival::missing() const {
  std::vector<int> ranks;
  for (int local = cursor_; local < host_.size(); ++local) {
    if (local == host_.rank() || record(local).number.load(std::memory_order_relaxed) == number_) continue;
    ranks.push_back(group_.member(host_.member(local)));
  }
  return ranks;
}

void Arrival::describe() {
  ArrivalRecord& mine = record(host_.rank());
  const auto words = std::bit_cast<std::array<std::uint64_t, 3>>(descriptor_);
  for (std::size_t i = 0; i < words.size(); ++i) mine.descriptor[i].store(words[i], std::memory_order_relaxed);
  mine.described.store(number_, std::memory_order_seq_cst);
  host_.nudge();
}

bool Arrival::all_described() {
  for (; cursor_ < host_.size(); ++cursor_) {
    if (record(cursor_).described.load(std::memory_order_acquire) != number_) return false;
  }
  return true;
}

void Arrival::throw_difference() const {
  std::vector<Descriptor> called;
  for (int local = 0; local < host_.size(); ++local) {
    std::array<std::uint64_t, 3> words{};
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = record(local).descriptor[i].load(std::memory_order_relaxed);
    }
    called.push_back(std::bit_cast<Descriptor>(words));
  }
  for (int local = 1; local < host_.size(); ++local) {
    const Descriptor& other = called[static_cast<std::size_t>(local)];
    if (std::memcmp(&called[0], &other, sizeof other) == 0) continue;
    throw_mismatch(group_, host_.member(0), called[0], host_.member(local), other);
  }
  throw_refused(called[0]);
}

void Arrival::compare_counts() const {
  for (int from = 0; from < host_.size(); ++from) {
    for (int to = 0; to < host_.size(); ++to) {
      const std::uint64_t sends = sent_by(from)[static_cast<std::size_t>(to)];
      const std::uint64_t expects = expected_by(to)[static_cast<std::size_t>(from)];
      if (sends == expects) continue;
      throw Mismatch(
          fmt::format("alltoall: rank {} sends {} elements to rank {}, which expects {}; no data was touched",
                      host_.member(from), sends, host_.member(to), expects));
    }
  }
}

}  // namespace farandole
