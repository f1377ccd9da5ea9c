// SPDX-License-Identifier: Apache-2.0
// Decides which results of collectives to write by non-temporal stores.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace farandole {

/// Remembers the outputs that a rank's collectives have written recently. Call `note` before writing a result.
///
/// Non-temporal stores bypass the caches. They are faster for results that the caches cannot hold: an ordinary store
/// first reads the line, and evicts another line that a rank still needs. Such results are one large vector, or many
/// vectors that together exceed the caches, like all gradients of a model.
class RecentOutputs {
 public:
  /// @param cached_bytes  bytes of results that the caches can hold, over all ranks that share the caches
  explicit RecentOutputs(std::size_t cached_bytes) : cached_bytes_(cached_bytes) {}

  /// Records that a collective writes to `output`; all ranks together write `bytes` bytes. Returns true if non-temporal
  /// stores should write them, in two cases: `bytes` exceeds cached_bytes; or `bytes` is at least cached_bytes / 16,
  /// and more than cached_bytes have been written since `output` was last written (since the beginning if never).
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
    std::uint64_t written = 0;  // bytes of all results up to the end of this result
  };
  // Entries are outputs of at least cached_bytes / 16 each, and at most 16 such outputs fit in the caches.
  static constexpr std::size_t kEntries = 16;

  std::size_t cached_bytes_;
  std::uint64_t written_ = 0;
  std::array<Entry, kEntries> entries_{};
  std::size_t oldest_ = 0;
};

}  // namespace farandole
