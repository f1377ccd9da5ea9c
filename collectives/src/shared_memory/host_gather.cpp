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

void HostGather::show(const Entry& entry) {
  MeetingRecord& mine = record(host_.rank());
  store_words(mine.entry, entry);
  mine.shown.store(number_, std::memory_order_seq_cst);
  host_.nudge();
}

HostGather::Answer HostGather::answer() const {
  return load_words(record(0).answer);
}

bool HostGather::all_shown() {
  while (cursor_ < host_.size() && has_shown(cursor_)) ++cursor_;
  return cursor_ == host_.size();
}

std::vector<int> HostGather::missing() const {
  std::vector<int> ranks;
  for (int local = 0; local < host_.size(); ++local) {
    if (!has_shown(local)) ranks.push_back(local);
  }
  return ranks;
}

HostGather::Entry HostGather::entry_of(int local) const {
  return load_words(record(local).entry);
}

void HostGather::give(const Answer& answer) {
  MeetingRecord& mine = record(0);
  store_words(mine.answer, answer);
  mine.answered.store(number_, std::memory_order_seq_cst);
  host_.nudge();
}

}  // namespace farandole
