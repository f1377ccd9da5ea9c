// SPDX-License-Identifier: Apache-2.0
// The collectives in which threads of a rank are blocked; used to find ranks that wait for each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "farandole/internal/deadline.h"
#include "farandole/internal/flight_recorder.h"

namespace farandole {

/// A collective in which a thread of this rank is blocked until all `members` have entered it.
struct BlockedCall {
  std::uint32_t communicator = 0;
  std::uint64_t sequence = 0;
  FlightSubject what;
  const std::string* label = nullptr;         ///< the communicator's label: "communicator 'pairs' (2 ranks)"
  const std::vector<int>* members = nullptr;  ///< the communicator's ranks, as ranks of the job
  bool needs_all = true;  ///< false if calls are not compared: then a rank may complete before all ranks have entered
  Clock::time_point since{};
};

/// The blocked calls of one rank, and whether several threads use the rank. Thread-safe.
class BlockedCalls {
 public:
  /// Registers a call for the lifetime of the scope. Objects that the call points to must outlive the scope.
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

  /// Notes that the calling thread uses the rank: begins, awaits or tests a collective. Costs a load while a
  /// single thread uses the rank.
  void note_thread() {
    static thread_local const char self = 0;
    const void* first = first_thread_.load(std::memory_order_relaxed);
    if (first == &self) return;
    if (first != nullptr || !first_thread_.compare_exchange_strong(first, &self, std::memory_order_relaxed)) {
      has_several_threads_.store(true, std::memory_order_relaxed);
    }
  }
  /// True if more than one thread has used this rank. Then another thread may still enter the collective in which peers
  /// wait for this rank.
  bool has_several_threads() const { return has_several_threads_.load(std::memory_order_relaxed); }
  /// Calls `use` with the call that has been blocked longest; no-op if no thread is blocked. The call stays registered
  /// until `use` returns.
  template <class Use>
  void with_oldest(const Use& use) const {
    const std::lock_guard lock(mutex_);
    if (!calls_.empty()) use(calls_.front().call);
  }

 private:
  struct Registered {
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
    std::erase_if(calls_, [id](const Registered& call) { return call.id == id; });
  }

  std::atomic<const void*> first_thread_{nullptr};  // first thread that used the rank; relaxed
  std::atomic<bool> has_several_threads_{false};    // relaxed
  mutable std::mutex mutex_;                        // guards the members below
  std::vector<Registered> calls_;                   // oldest first
  std::uint64_t next_id_ = 0;
};

}  // namespace farandole
