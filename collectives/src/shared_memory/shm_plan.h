// SPDX-License-Identifier: Apache-2.0
// What the ranks of a host do in a collective: which stages, in which order, and which rank waits for which.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "farandole/collectives/algorithms.h"

namespace farandole {

/// A collective inside a host passes over the vector in slices. Each slice has up to three stages: *copy-in* copies a
/// rank's input to its staging memory; *reduce* combines, publishes or places what a rank is responsible for;
/// *copy-out* copies results of peers to the rank's output. Where the peers can reach a rank's buffers, stages fall
/// away.
///
/// All ranks go through the same steps in the same order, also those that have nothing to do in one. At time t the
/// stages work on slices t, t-1 and t-2, so that a slice is still in the caches when its next stage comes. A rank waits
/// only for steps of an earlier time, so ranks can not wait for each other in a circle.
enum class ShmStage : std::uint8_t { kCopyIn, kReduce, kCopyOut };
inline constexpr std::size_t kShmStages = 3;

/// What the ranks know of a call when all have arrived; the same on all of them.
struct ShmFacts {
  Collective collective = Collective::kBarrier;
  int size = 1;
  int root = -1;
  bool reaches_inputs = false;
  bool reaches_outputs = false;
  bool copies_inputs = false;  ///< the kernel can: worth it for data that is only moved
};

class ShmPlan {
 public:
  ShmPlan() = default;
  explicit ShmPlan(const ShmFacts& facts);
  /// The vector is passed over in so many slices.
  void set_slices(std::size_t slices) { slices_ = slices; }

  bool uses(ShmStage stage) const { return uses_[static_cast<std::size_t>(stage)]; }
  bool is_first(ShmStage stage) const;
  /// Does `rank` do anything in this stage?
  bool is_active(ShmStage stage, int rank) const;
  /// The only rank whose data `stage` reads, or -1 for all.
  int source(ShmStage stage) const;

  bool reads_inputs() const { return reads_inputs_; }      ///< reduce, or copy-out without it, reads the peers' inputs
  bool writes_outputs() const { return writes_outputs_; }  ///< reduce writes the peers' outputs
  /// Peers use this rank's buffers, so it must wait for them at the end.
  bool touches_buffers() const { return reads_inputs_ || writes_outputs_; }

  std::size_t slices() const { return slices_; }
  std::uint64_t steps() const { return slices_ * static_cast<std::size_t>(used_); }
  struct Step {
    ShmStage stage = ShmStage::kCopyIn;
    std::size_t slice = 0;
  };
  /// The steps in order: the first one, and the one that follows. Undefined past the end.
  Step first() const;
  Step after(const Step& step) const;
  /// How many steps are done once this one is.
  std::uint64_t done_after(ShmStage stage, std::size_t slice) const;

 private:
  int index(ShmStage stage) const;

  ShmFacts facts_;
  std::array<bool, kShmStages> uses_{};
  int used_ = 0;
  bool reads_inputs_ = false, writes_outputs_ = false;
  std::size_t slices_ = 0;
};

}  // namespace farandole
