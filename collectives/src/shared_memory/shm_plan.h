// SPDX-License-Identifier: Apache-2.0
// Plans of pipelined collectives in shared memory: the stages, their order, and the ranks that each stage waits for.
// Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "farandole/collectives/algorithms.h"

namespace farandole {

/// A stage of a pipelined collective. Every slice of the vector passes through up to three stages, in this order:
/// - *copy-in* copies a rank's input to the rank's staging memory;
/// - *reduce* does the work of the rank that is responsible for data: the rank reduces its own chunk (allreduce,
///   reduce, reduce_scatter), makes its chunk available (broadcast, allgather, gather), or collects the parts that are
///   meant for this rank (scatter, alltoall);
/// - *copy-out* copies the peers' results to a rank's output.
enum class ShmStage : std::uint8_t { kCopyIn, kReduce, kCopyOut };
inline constexpr std::size_t kShmStages = 3;

/// Inputs of a plan. Each rank derives them from all ranks' arrival records, so they are the same on all ranks.
struct ShmFacts {
  Collective collective = Collective::kBarrier;
  int size = 1;
  int root = -1;
  bool reaches_inputs = false;   ///< ranks can read the inputs of their peers in place
  bool reaches_outputs = false;  ///< ranks can write the outputs of their peers in place
  bool copies_inputs = false;    ///< cross-memory attach can read inputs, and pays: no reduction, large chunks
};

/// The steps of a pipelined collective. A step is one stage on one slice.
///
/// Stages: data pass from stage to stage through staging memory. So the plan omits copy-in if ranks can reach their
/// peers' inputs, and copy-out if they can reach their peers' outputs. The constructor lists the stages by collective.
///
/// Order: all ranks take the same steps in the same order, including steps in which a rank has nothing to do. At time t
/// the first used stage works on slice t, the second on slice t-1, and the third on slice t-2, so that a slice is still
/// in the caches at its next stage. With all three stages and 3 slices:
///
///     time      0     1     2     3     4
///     copy-in   0     1     2
///     reduce          0     1     2
///     copy-out              0     1     2
///
/// No deadlock is possible, because a rank waits only for steps of an earlier time.
class ShmPlan {
 public:
  ShmPlan() = default;
  explicit ShmPlan(const ShmFacts& facts);
  /// Sets the number of slices in the longest chunk.
  void set_slices(std::size_t slices) { slices_ = slices; }

  bool uses(ShmStage stage) const { return uses_[static_cast<std::size_t>(stage)]; }
  bool is_first(ShmStage stage) const;
  /// True if `rank` has work in this stage.
  bool is_active(ShmStage stage, int rank) const;
  /// The only rank whose data `stage` reads; -1 if the stage reads all ranks' data.
  int source(ShmStage stage) const;

  /// True if ranks read their peers' inputs in place: in reduce, or in copy-out if the plan has no reduce.
  bool reads_inputs() const { return reads_inputs_; }
  /// True if ranks write their peers' outputs in place, in reduce.
  bool writes_outputs() const { return writes_outputs_; }
  /// True if peers access this rank's buffers in place. This rank must then wait for the peers at the end.
  bool touches_buffers() const { return reads_inputs_ || writes_outputs_; }

  std::size_t slices() const { return slices_; }
  std::uint64_t steps() const { return slices_ * static_cast<std::size_t>(used_); }
  struct Step {
    ShmStage stage = ShmStage::kCopyIn;
    std::size_t slice = 0;
  };
  /// The first step, and the step that follows `step`. Undefined past the last step.
  Step first() const;
  Step after(const Step& step) const;
  /// Total number of steps that a rank has taken once it has taken this step.
  std::uint64_t done_after(ShmStage stage, std::size_t slice) const;

 private:
  int index(ShmStage stage) const;

  ShmFacts facts_;
  std::array<bool, kShmStages> uses_{};
  int used_ = 0;  // number of stages used
  bool reads_inputs_ = false, writes_outputs_ = false;
  std::size_t slices_ = 0;
};

}  // namespace farandole
