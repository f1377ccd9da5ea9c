// SPDX-License-Identifier: Apache-2.0
// Direct calls that were captured into graphs; detects replays that have not ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "device/device_scratch.h"
#include "farandole/internal/deadline.h"
#include "operation/call.h"

namespace farandole {

/// The captured calls of one communicator. Each call has a word of pinned memory: its graph writes kBegun to the word
/// before the work of the call, and kIdle after the work. `look` replaces kBegun by kSeen. A word that stays kSeen
/// belongs to a single replay that has not ended; the next replay makes the word kBegun again. So the graph needs two
/// writes of constants and no kernel, even if replays follow each other without a gap.
///
///     std::uint32_t* const word = captured.take_word(allocate);
///     device.write_word(word, CapturedCalls::kBegun, stream);
///     …  // enqueue the call
///     device.write_word(word, CapturedCalls::kIdle, stream);
///     captured.add(word, number, descriptor);
///
/// A graph may run until the communicator ends, so words live as long as this object. If several copies of one graph
/// run at the same time, they share words, and a replay may be missed.
class CapturedCalls {
 public:
  static constexpr std::size_t kSlabBytes = 4096;  ///< words are allocated in slabs of this size
  static constexpr std::uint32_t kIdle = 0, kBegun = 1;

  /// A replay of a call that has begun on the device and has not ended.
  struct Replay {
    std::uint64_t number = 0;  ///< of the captured call
    Descriptor descriptor;
    Clock::time_point since;  ///< when the replay was first seen
  };

  CapturedCalls() = default;
  CapturedCalls(const CapturedCalls&) = delete;
  CapturedCalls& operator=(const CapturedCalls&) = delete;

  // The thread that makes the calls.
  /// Returns an idle word for a new call. @param allocate  returns kSlabBytes of zeroed pinned memory; called if no
  /// slab has room. Its exceptions are passed on
  template <class Allocate>
  std::uint32_t* take_word(const Allocate& allocate) {
    constexpr std::size_t kWordsPerSlab = kSlabBytes / sizeof(std::uint32_t);
    const std::size_t index = words_taken_ % kWordsPerSlab;
    if (index == 0) slabs_.push_back(allocate());
    ++words_taken_;
    return static_cast<std::uint32_t*>(slabs_.back().get()) + index;
  }
  /// Watches a call whose graph writes `word`.
  void add(std::uint32_t* word, std::uint64_t number, const Descriptor& descriptor);

  // The watch thread.
  /// Notes which replays have begun and ended since the last `look`. Returns the replay that has run for longest.
  std::optional<Replay> look(Clock::time_point now);
  /// Time of the last `look` that saw the end of a replay.
  Clock::time_point last_end() const { return last_end_; }

  /// True if a replay runs now: reads the words. Thread-safe.
  bool has_running() const;

 private:
  static constexpr std::uint32_t kSeen = 2;
  struct Entry {
    std::uint32_t* word;
    Replay replay;            // the last replay seen
    bool is_running = false;  // `replay` had not ended at the last look
  };
  void look(Entry& entry, Clock::time_point now);

  std::vector<DeviceScratch> slabs_;  // used by the calling thread only, like words_taken_
  std::size_t words_taken_ = 0;
  mutable std::mutex mutex_;  // guards entries_
  std::vector<Entry> entries_;
  Clock::time_point last_end_{};  // used by the watch thread only
};

}  // namespace farandole
