// SPDX-License-Identifier: Apache-2.0
// The collectives in which threads of a rank sleep, and which threads use the rank.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "farandole/internal/deadline.h"
#include "farandole/internal/flight_recorder.h"

namespace farandole {

/// A collective that a thread waits for: it ends when all `members` have entered it.
struct BlockedCall {
  std::uint32_t communicator = 0;
  std::uint64_t sequence = 0;
  FlightSubject what;
  const std::string* label = nullptr;         ///< of the communicator: "communicator 'pairs' (2 ranks)"
  const std::vector<int>* members = nullptr;  ///< ranks of the job
  bool needs_all = true;  ///< false: calls are not compared, so that some ranks may end without all others
  Clock::time_point since{};
};

/// Of one rank. Thread-safe.
class BlockedCalls {
 public:
  /// Registers a call while it lives; what the call points to lives longer.
  class Scope {
   public:
    Scope(BlockedCalls& calls, const BlockedCall& call) : calls_(calls) { id_ = calls_.add(call); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { calls_.remove(id_); }

   private:
    BlockedCalls& calls_;
    std::uint64_t id_ = 0;
  };

  /// The calling thread uses the rank: begins a collective, waits for one, or tests one. Costs a load in the first
  /// thread that does.
  void note_thread() {
    static thread_local const char self = 0;
    const void* first = first_thread_.load(std::memory_order_relaxed);
    if (first == &self) return;
    if (first != nullptr || !first_thread_.compare_exchange_strong(first, &self, std::memory_order_relaxed)) {
      has_several_threads_.store(true, std::memory_order_relaxed);
    }
  }
  /// True if more than one thread has used this rank: another one may end what a thread waits for.
  bool has_several_threads() const { return has_several_threads_.load(std::memory_order_relaxed); }
  /// Calls `use` with the call that has waited for the longest time, if a thread waits; the call stays meanwhile.
  template <class Use>
  void with_oldest(const Use& use) const {
    const std::lock_guard lock(mutex_);
    if (!calls_.empty()) use(calls_.front().call);
  }

 private:
  struct Entry {
    std::uint64_t id;
    BlockedCall call;
  };
  std::uint64_t add(const BlockedCall& call) {
    note_thread();
    const std::lock_guard lock(mutex_);
    calls_.push_back({next_id_, call});
    return next_id_++;
  }
  void remove(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    std::erase_if(calls_, [id](const Entry& entry) { return entry.id == id; });
  }

  std::atomic<const void*> first_thread_{nullptr};  // that has used the rank; orders nothing
  std::atomic<bool> has_several_threads_{false};    // orders nothing
  mutable std::mutex mutex_;                        // guards what follows
  std::vector<Entry> calls_;                        // in the order in which their threads fell asleep
  std::uint64_t next_id_ = 0;
};

}  // namespace farandole
