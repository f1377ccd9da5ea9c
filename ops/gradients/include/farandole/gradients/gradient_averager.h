// SPDX-License-Identifier: Apache-2.0
// Gradient averaging for any training loop: buckets, reduced while backward still runs.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// The gradient of one parameter.
struct GradientSpan {
  BufferView values;  ///< memory that stays in place for the life of the averager
  std::string name;   ///< for messages
};

struct GradientOptions {
  ReduceOp op = ReduceOp::kAverage;   ///< kSum where the loop weights samples itself
  std::size_t bucket_bytes = 0;       ///< 0: FARANDOLE_BUCKET_BYTES
  std::size_t last_bucket_bytes = 0;  ///< 0: FARANDOLE_LAST_BUCKET_BYTES. Small: nothing hides it
  std::string_view algorithm = {};    ///< of the allreduces
  StreamView stream = {};             ///< of gradients on a device: the stream that produces them, and uses them
  /// Gradients of the same memory are one, as of tied weights: reduced once, when all of them are ready. False: such
  /// gradients are refused, because each element would be reduced twice. The same on all ranks.
  bool tied_spans = false;
};

/// Reduces gradients over all ranks of a communicator in buckets, in one fixed order: from the last span given to the
/// first, as backward produces them. A bucket starts once all its gradients are ready and the buckets before it have
/// started. Spans that follow each other in memory are reduced where they lie; others are packed.
///
/// Gradients on a device, all on that of the rank, are averaged in the order of their stream: `ready` says that what
/// produces the gradient is enqueued there, and `wait` returns when what comes into the stream later waits for all
/// averages. The processor waits for the device only if no stream is given; then all gradients are there after `wait`.
///
/// No two averagers of a process may have the same memory: the second raises InvalidArgument. So one that replaces
/// another is made after that was destroyed, for example by `reset()` of the std::optional that keeps it.
///
/// One that was moved from raises InvalidArgument; so does one that outlives its World, once nothing is pending.
///
/// One thread. The communicator must not be used for anything else between the first `ready` and the end of `wait`.
class GradientAverager {
 public:
  /// Collective: all ranks name the same sizes and types in the same order.
  /// @throws Mismatch  they do not, or another rank raises InvalidArgument for its gradients
  /// @throws InvalidArgument  the communicator is empty; gradients overlap (but see GradientOptions::tied_spans), or
  /// one overlaps a gradient of another living averager of this process; or they are not all in one memory: the host's,
  /// or that of this rank's device
  GradientAverager(Communicator communicator, std::vector<GradientSpan> gradients, const GradientOptions& options = {});
  ~GradientAverager();
  GradientAverager(GradientAverager&&) noexcept;
  GradientAverager& operator=(GradientAverager&&) noexcept;

  /// Gradient `index` holds its final value for this training step; it is not to be touched until `wait` returns.
  /// Does not block. @throws InvalidArgument  it was ready already.
  void ready(std::size_t index);
  /// Blocks until every gradient is reduced; those not marked are taken as ready. Afterwards the next training step
  /// may begin. @throws Error  as Communicator::allreduce.
  void wait();

  std::size_t bucket_count() const;
  /// Seconds that `wait` blocked in the last training step: communication that computation did not hide.
  Seconds exposed() const;

 private:
  class State;
  State& state() const;
  std::unique_ptr<State> state_;
};

}  // namespace FARANDOLE_API
