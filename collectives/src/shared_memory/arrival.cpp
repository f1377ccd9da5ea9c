// SPDX-License-Identifier: Apache-2.0
#include "shared_memory/arrival.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <cstring>

#include "farandole/core/error.h"

namespace farandole {

Arrival::Arrival(const Group& group, ShmGroup& shm, const Descriptor& descriptor, std::uint64_t number)
    : group_(group),
      shm_(shm),
      number_(number),
      lane_(shm.ledger().lane_of(number)),
      descriptor_(descriptor),
      digest_(digest_of(descriptor, number)) {
  // Compare the number, too: ranks that have made different numbers of calls then disagree.
  descriptor_.digest = mix(descriptor_.digest, number);
}

bool Arrival::publish_buffers(ConstBufferView input, BufferView output, bool shares_input) {
  ArrivalRecord& mine = record(shm_.rank());
  const PeerBuffers& buffers = shm_.buffers();
  std::uint64_t location = PeerBuffers::kUnreachable, address = PeerBuffers::kUnreachable;
  if (shares_input) {
    location = buffers.locate(input.data, input.size_in_bytes());
    address = reinterpret_cast<std::uintptr_t>(input.data);
  }
  mine.input().store(location, std::memory_order_relaxed);
  mine.output().store(buffers.locate(output.data, output.size_in_bytes()), std::memory_order_relaxed);
  mine.address().store(address, std::memory_order_relaxed);
  return location != PeerBuffers::kUnreachable;
}

void Arrival::publish_counts(const Parts& sent, const Parts& expected) {
  has_counts_ = true;
  std::uint64_t* mine = counts(shm_.rank());
  for (std::size_t peer = 0; peer < size(); ++peer) {
    mine[peer] = sent[peer];
    mine[size() + peer] = expected[peer];
  }
}

std::vector<int> Arrival::missing() const {
  std::vector<int> ranks;
  for (int local = cursor_; local < shm_.size(); ++local) {
    if (local == shm_.rank() || record(local).number.load(std::memory_order_relaxed) == number_) continue;
    ranks.push_back(group_.member(shm_.member(local)));
  }
  return ranks;
}

void Arrival::publish_descriptor() {
  ArrivalRecord& mine = record(shm_.rank());
  const auto words = std::bit_cast<std::array<std::uint64_t, 3>>(descriptor_);
  for (std::size_t i = 0; i < words.size(); ++i) mine.descriptor[i].store(words[i], std::memory_order_relaxed);
  mine.described.store(number_, std::memory_order_seq_cst);
  shm_.wake_peers();
}

bool Arrival::all_described() {
  for (; cursor_ < shm_.size(); ++cursor_) {
    if (record(cursor_).described.load(std::memory_order_acquire) != number_) return false;
  }
  return true;
}

void Arrival::throw_difference() const {
  std::vector<Descriptor> calls;
  for (int local = 0; local < shm_.size(); ++local) {
    std::array<std::uint64_t, 3> words{};
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = record(local).descriptor[i].load(std::memory_order_relaxed);
    }
    calls.push_back(std::bit_cast<Descriptor>(words));
  }
  for (int local = 1; local < shm_.size(); ++local) {
    const Descriptor& other = calls[static_cast<std::size_t>(local)];
    if (std::memcmp(&calls[0], &other, sizeof other) == 0) continue;
    throw_mismatch(group_, shm_.member(0), calls[0], shm_.member(local), other);
  }
  throw_refused(calls[0]);
}

void Arrival::compare_counts() const {
  for (int from = 0; from < shm_.size(); ++from) {
    for (int to = 0; to < shm_.size(); ++to) {
      const std::uint64_t sends = sent_by(from)[static_cast<std::size_t>(to)];
      const std::uint64_t expects = expected_by(to)[static_cast<std::size_t>(from)];
      if (sends == expects) continue;
      throw Mismatch(
          fmt::format("alltoall: rank {} sends {} elements to rank {}, which expects {}; no data was touched",
                      shm_.member(from), sends, shm_.member(to), expects));
    }
  }
}

}  // namespace farandole
