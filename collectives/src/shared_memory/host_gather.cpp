// SPDX-License-Identifier: Apache-2.0
#include "shared_memory/host_gather.h"

namespace farandole {
namespace {

template <std::size_t kWords>
void store_words(std::array<std::atomic<std::uint64_t>, kWords>& to, const std::array<std::uint64_t, kWords>& words) {
  for (std::size_t i = 0; i < kWords; ++i) to[i].store(words[i], std::memory_order_relaxed);
}

template <std::size_t kWords>
std::array<std::uint64_t, kWords> load_words(const std::array<std::atomic<std::uint64_t>, kWords>& from) {
  std::array<std::uint64_t, kWords> words{};
  for (std::size_t i = 0; i < kWords; ++i) words[i] = from[i].load(std::memory_order_relaxed);
  return words;
}

}  // namespace

void HostGather::contribute(const Contribution& contribution) {
  GatherRecord& mine = record(shm_.rank());
  store_words(mine.contribution, contribution);
  mine.contribution_number.store(number_, std::memory_order_seq_cst);
  shm_.wake_peers();
}

HostGather::Result HostGather::result() const {
  return load_words(record(0).result);
}

bool HostGather::all_contributed() {
  while (cursor_ < shm_.size() && has_contributed(cursor_)) ++cursor_;
  return cursor_ == shm_.size();
}

std::vector<int> HostGather::missing() const {
  std::vector<int> ranks;
  for (int local = 0; local < shm_.size(); ++local) {
    if (!has_contributed(local)) ranks.push_back(local);
  }
  return ranks;
}

HostGather::Contribution HostGather::contribution_of(int local) const {
  return load_words(record(local).contribution);
}

void HostGather::broadcast(const Result& result) {
  GatherRecord& mine = record(0);
  store_words(mine.result, result);
  mine.result_number.store(number_, std::memory_order_seq_cst);
  shm_.wake_peers();
}

}  // namespace farandole
