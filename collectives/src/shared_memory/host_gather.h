// SPDX-License-Identifier: Apache-2.0
// A small gather and broadcast among the ranks of a host, before a collective over several hosts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shared_memory/shm_group.h"

namespace farandole {

/// One rank's side of a gather to the first rank of the host (the root, local rank 0), which answers with a broadcast.
/// CallComparison uses it so that only the root of each host sends messages: the ranks of a host give the root their
/// calls and short vectors, the roots of all hosts exchange these by messages, and each root returns the result to its
/// host.
///
/// Protocol of gather `number`, the same number on all ranks:
/// 1. Each rank but the root writes its data, if any, to its own hierarchy buffer. Each rank, the root included, then
///    publishes its contribution, 4 words (`contribute`).
/// 2. The root reads all contributions and buffers once `all_contributed`, and exchanges messages with the roots of the
///    other hosts.
/// 3. The root writes data to its own hierarchy buffer, and then publishes the result, 8 words (`broadcast`).
/// 4. The peers read both once `has_result`.
///
/// Memory: a rank writes only its own GatherRecord and its own hierarchy buffer of the lane. No rank overwrites unread
/// data: a rank contributes again only after it has read the lane's previous result, and the root broadcasts only after
/// it has read all contributions.
///
/// Atomics: a rank stores `contribution_number` or `result_number` last (sequentially consistent, because `wake_peers`
/// follows) and reads either first (acquire); the other words are relaxed.
class HostGather {
 public:
  using Contribution = std::array<std::uint64_t, GatherRecord::kContributionWords>;
  using Result = std::array<std::uint64_t, GatherRecord::kResultWords>;

  /// @param shm  is connected
  HostGather(ShmGroup& shm, std::uint64_t number) : shm_(shm), number_(number), lane_(shm.ledger().lane_of(number)) {}

  bool is_root() const { return shm_.rank() == 0; }
  /// This rank's buffer of ShmLayout::kHierarchyBufferBytes: holds the data that go with the contribution or, on the
  /// root, with the result.
  std::byte* hierarchy_buffer() const { return shm_.layout().hierarchy_buffer(shm_.rank(), lane_); }
  void contribute(const Contribution& contribution);
  bool has_result() const { return record(0).result_number.load(std::memory_order_acquire) == number_; }
  Result result() const;
  /// The data that go with the result: the root's buffer.
  const std::byte* result_buffer() const { return shm_.layout().hierarchy_buffer(0, lane_); }

  // Only the root calls the functions below.

  bool all_contributed();
  /// Local ranks that have not contributed yet.
  std::vector<int> missing() const;
  Contribution contribution_of(int local) const;
  const std::byte* hierarchy_buffer_of(int local) const { return shm_.layout().hierarchy_buffer(local, lane_); }
  void broadcast(const Result& result);

 private:
  GatherRecord& record(int local) const { return shm_.layout().lane(local, lane_).gather; }
  bool has_contributed(int local) const {
    return record(local).contribution_number.load(std::memory_order_acquire) == number_;
  }

  ShmGroup& shm_;
  const std::uint64_t number_;
  const int lane_;
  int cursor_ = 0;  // lower local ranks have contributed
};

}  // namespace farandole
