// SPDX-License-Identifier: Apache-2.0
// How the ranks of a host meet before a collective over several hosts: each shows something to the first, which answers
// all of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared_memory/shm_group.h"

namespace farandole {

/// One rank's side of meeting `number`, as in CallComparison. The host is connected.
///
/// Memory: of its lane's meeting record a rank writes what it shows, and the first rank the answer, too; of its lane's
/// room a rank writes its data, and the first rank those that go with the answer. A rank shows something only after it
/// has read the last answer of the lane, and the first rank answers only after it has read what all have shown, so that
/// nothing is written before it has been read.
/// Atomics: `shown` and `answered` are stored last (release; sequentially consistent, for the nudge) and read first
/// (acquire); the other words are relaxed.
class HostGather {
 public:
  using Entry = std::array<std::uint64_t, MeetingRecord::kEntryWords>;
  using Answer = std::array<std::uint64_t, MeetingRecord::kAnswerWords>;

  HostGather(ShmGroup& host, std::uint64_t number) : host_(host), number_(number), lane_(host.lane_of(number)) {}

  bool is_first() const { return host_.rank() == 0; }
  /// For this rank's data, or, of the first rank, for those of the answer; ShmGroup::kHierarchyBufferBytes.
  std::byte* hierarchy_buffer() const { return host_.hierarchy_buffer(host_.rank(), lane_); }
  void show(const Entry& entry);
  bool is_answered() const { return record(0).answered.load(std::memory_order_acquire) == number_; }
  Answer answer() const;
  const std::byte* result_buffer() const { return host_.hierarchy_buffer(0, lane_); }

  // By the first rank.
  bool all_shown();
  /// Local ranks that have not shown anything.
  std::vector<int> missing() const;
  Entry entry_of(int local) const;
  const std::byte* hierarchy_buffer_of(int local) const { return host_.hierarchy_buffer(local, lane_); }
  void give(const Answer& answer);

 private:
  MeetingRecord& record(int local) const { return host_.lane(local, lane_).meeting; }
  bool has_shown(int local) const { return record(local).shown.load(std::memory_order_acquire) == number_; }

  ShmGroup& host_;
  const std::uint64_t number_;
  const int lane_;
  int cursor_ = 0;  // local ranks below it have shown
};

}  // namespace farandole
