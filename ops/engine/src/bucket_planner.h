// SPDX-License-Identifier: Apache-2.0
// Which requests are reduced together, and which of this rank's wait for the rest of their bucket.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "farandole/internal/deadline.h"
#include "slot_table.h"

namespace farandole {

/// Small allreduces that are ready in the same negotiation become a *bucket*, and are to stay together. From then on a
/// rank *holds* what it has of the bucket until it has all of it, and *releases* it then (announces it as ready), so
/// that each training step makes the same buckets. A bucket of which only a part is ready everywhere is broken up.
///
/// Invariants:
/// - The plan (buckets, and how often that of a slot has been broken) is the same on all ranks: `arrange` and `forget`
///   alone change it, and look at nothing that one rank only has.
/// - A slot is in one bucket at most. A bucket has two slots or more, all small allreduces with one operation and
///   scale, and at most `fusion_bytes` in all.
/// - Each slot that is given to `arrange` comes out of it once.
/// - This rank holds all that it has of a bucket, or has released all of it; what is in no bucket it has released. So
///   it releases each request once: at the latest by `release_due` 25 ms after the last that came to the bucket.
class BucketPlanner {
 public:
  using Time = Clock::time_point;
  struct Limits {
    std::size_t fusion_bytes = 0;       ///< of a bucket
    std::size_t min_unfused_bytes = 0;  ///< requests from this size on are not worth a copy
  };
  struct Arrangement {
    std::vector<std::vector<int>> buckets;  ///< of slots; to be done in this order, each together
    std::size_t broken = 0;                 ///< planned buckets of which only a part was ready
  };

  explicit BucketPlanner(Limits limits) : limits_(limits) {}

  /// There are this many slots now.
  void resize(std::size_t slots) { members_.resize(slots); }
  /// This rank has the request of `slot`. @param at_once  it does not wait for the rest of the bucket
  void add(int slot, bool at_once, Time now);
  /// This rank has the request of `slot` no more, if it had it.
  void remove(int slot);
  void remove_all();
  /// Releases what has been held for long enough.
  void release_due(Time now);
  /// When `release_due` has something to do, or Time::max().
  Time next_release() const;
  bool holds_any() const { return !held_.empty(); }
  /// What the last `add`, `release_due`, `arrange` or `forget` has released.
  std::span<const int> released() const { return released_; }

  /// @param ready  slots that are ready everywhere. No rank has their requests any more
  Arrangement arrange(std::vector<int> ready, const SlotTable& slots);
  /// The slot belongs to no request any more. Its bucket is broken up.
  void forget(int slot);

 private:
  friend class NegotiatorProbe;  // tests compare the plans of all ranks
  struct Member {
    int bucket = -1;
    int times_broken = 0;
    bool is_here = false;  ///< this rank has the request
  };
  struct Bucket {
    std::vector<int> slots;  ///< empty: there is no such bucket
    std::size_t here = 0;
    Time since{};  ///< of the last request that came to it
  };

  Member& member(int slot) { return members_[static_cast<std::size_t>(slot)]; }
  Bucket& bucket(int index) { return buckets_[static_cast<std::size_t>(index)]; }
  void release(int bucket);
  void break_up(int bucket);
  void group(const std::vector<int>& loose, const SlotTable& slots, Arrangement& arrangement) const;
  void plan(const std::vector<int>& together, const SlotTable& slots);

  const Limits limits_;
  std::vector<Member> members_;  // by slot
  std::vector<Bucket> buckets_;
  // This rank's.
  std::vector<int> held_;  // buckets
  std::vector<int> released_;
};

}  // namespace farandole
