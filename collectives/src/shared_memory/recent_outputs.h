// SPDX-License-Identifier: Apache-2.0
// Which results of collectives are written by non-temporal stores.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace farandole {

/// What a rank's collectives have written lately. Results that the caches can not hold are better written past them: an
/// ordinary store first reads the line, and pushes out another that a rank still needs. That is so for one large
/// vector, and for the many of a set that is larger than the caches, as all gradients of a model may be.
class RecentOutputs {
 public:
  /// @param cached_bytes  what the caches can hold of the results of all ranks that share them
  explicit RecentOutputs(std::size_t cached_bytes) : cached_bytes_(cached_bytes) {}

  /// Takes note that a collective writes to this rank's `output`, and `bytes` bytes on all ranks together. True if they
  /// go by non-temporal stores: more than `cached_bytes`; or at least 1/16 of that, if more has been written since
  /// `output` was, or ever if it was not.
  bool note(const void* output, std::size_t bytes) {
    written_ += bytes;
    if (bytes > cached_bytes_) return true;
    if (bytes < cached_bytes_ / kEntries) return false;
    bool is_recent = written_ <= cached_bytes_;
    for (const Entry& entry : entries_) {
      is_recent = is_recent || (entry.output == output && written_ - entry.written <= cached_bytes_);
    }
    entries_[oldest_] = {output, written_};
    oldest_ = (oldest_ + 1) % kEntries;
    return !is_recent;
  }

 private:
  struct Entry {
    const void* output = nullptr;
    std::uint64_t written = 0;  // bytes of all results, up to the end of this one
  };
  // As many as `cached_bytes` can consist of.
  static constexpr std::size_t kEntries = 16;

  std::size_t cached_bytes_;
  std::uint64_t written_ = 0;
  std::array<Entry, kEntries> entries_{};
  std::size_t oldest_ = 0;
};

}  // namespace farandole
