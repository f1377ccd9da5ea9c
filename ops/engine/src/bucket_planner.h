// SPDX-License-Identifier: Apache-2.0
// Tensor fusion: decides which requests are reduced together, and which requests of this rank wait for the rest of
// their bucket.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "farandole/internal/deadline.h"
#include "slot_table.h"

namespace farandole {

/// Plans *buckets*: groups of small allreduces that are packed into one collective. Limits defines "small".
///
/// How it works: small allreduces that become ready in the same negotiation are packed into buckets, and each bucket
/// stays in the plan. From then on a rank *holds* the requests of a planned bucket until it has submitted all of them,
/// and then *releases* them: it announces all of them as ready in the same negotiation. So every training step makes
/// the same buckets in one or two negotiations, in whatever order each rank submits. (Horovod packs whatever is ready
/// in a cycle; DDP fixes buckets in advance.)
///
/// If only a part of a bucket becomes ready everywhere, the bucket is broken up and its slots are grouped anew. A slot
/// whose bucket has been broken up three times is not planned any more. A `by_order` request is never planned.
///
/// Invariants:
/// - All ranks have the same plan (the buckets, and how often each slot's bucket has been broken up): only `arrange`
/// and
///   `forget` change the plan, and neither depends on data that only this rank has.
/// - A slot is in at most one bucket. A bucket has at least two slots, all of them small allreduces with the same
///   operation and factors, and at most `fusion_bytes` in all.
/// - Each slot in the argument of `arrange` is in the result exactly once.
/// - This rank either holds all submitted requests of a bucket, or has released all of them. Requests without a bucket
///   are released when they are added. So each request is released exactly once, at the latest by `release_due` 25 ms
///   after the last request of the bucket was added.
class BucketPlanner {
 public:
  using Time = Clock::time_point;
  struct Limits {
    std::size_t fusion_bytes = 0;  ///< maximum size of a bucket
    /// Tensors of this size or more are never packed: the copies would cost more than they save.
    std::size_t min_unfused_bytes = 0;
    std::size_t min_unfused_device_bytes = 0;  ///< the same for device memory, which copies much faster

    bool is_small(std::size_t bytes, MemoryKind memory) const {
      return bytes < (memory == MemoryKind::kHost ? min_unfused_bytes : min_unfused_device_bytes);
    }
  };
  struct Arrangement {
    std::vector<std::vector<int>> buckets;  ///< slots of each bucket, in the order in which the buckets must run
    std::size_t broken = 0;  ///< number of planned buckets that were broken up, because only a part was ready
  };

  explicit BucketPlanner(Limits limits) : limits_(limits) {}

  /// Sets the number of slots.
  void resize(std::size_t slots) { members_.resize(slots); }
  /// Call when this rank submits the request of `slot`. @param at_once  release without waiting for the rest of the
  /// bucket
  void add(int slot, bool at_once, Time now);
  /// Call when this rank's request of `slot` has ended. Idempotent.
  void remove(int slot);
  /// Call when all requests of this rank have ended.
  void remove_all();
  /// Releases buckets that have been held for 25 ms.
  void release_due(Time now);
  /// Time at which `release_due` will release a bucket, or Time::max().
  Time next_release() const;
  bool holds_any() const { return !held_.empty(); }
  /// Slots released by the last `add`, `release_due`, `arrange` or `forget`.
  std::span<const int> released() const { return released_; }

  /// Groups slots that are ready everywhere into buckets, and updates the plan. Removes the requests of `ready`, as
  /// `remove` does.
  Arrangement arrange(std::vector<int> ready, const SlotTable& slots);
  /// Call when the slot is freed. Breaks up the bucket that contains the slot.
  void forget(int slot);

 private:
  friend class NegotiatorProbe;  // tests compare the plans of all ranks
  struct Member {
    int bucket = -1;
    int times_broken = 0;
    bool is_submitted = false;  ///< this rank has the slot's request
  };
  struct Bucket {
    std::vector<int> slots;           ///< empty: this element of `buckets_` is unused
    std::size_t submitted_count = 0;  ///< number of slots whose request this rank has
    Time since{};                     ///< time of the last request that this rank added
  };

  Member& member(int slot) { return members_[static_cast<std::size_t>(slot)]; }
  Bucket& bucket(int index) { return buckets_[static_cast<std::size_t>(index)]; }
  /// Moves a held bucket's submitted slots to `released_`.
  void release(int bucket);
  /// Removes a bucket from the plan.
  void break_up(int bucket);
  /// Packs slots without a planned bucket, in order, into new buckets of `arrangement`.
  void group(const std::vector<int>& unplanned, const SlotTable& slots, Arrangement& arrangement) const;
  /// Adds a bucket to the plan, unless it contains a slot that may not be planned.
  void plan(const std::vector<int>& together, const SlotTable& slots);

  const Limits limits_;
  std::vector<Member> members_;  // by slot
  std::vector<Bucket> buckets_;
  // State of this rank only.
  std::vector<int> held_;  // indices of the buckets whose requests this rank holds
  std::vector<int> released_;
};

}  // namespace farandole
