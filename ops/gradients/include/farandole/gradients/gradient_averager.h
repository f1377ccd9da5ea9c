// SPDX-License-Identifier: Apache-2.0
// Gradient averaging for training loops of your own: buckets, reduced while backward still runs.
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
  BufferView values;  ///< the caller's memory; must stay in place until the averager is destroyed
  std::string name;   ///< for error messages
};

/// Options of a GradientAverager; each must be the same on all ranks, except `stream`.
struct GradientOptions {
  /// kAverage divides the sum by the number of ranks; kSum suits a loop that weights samples itself.
  ReduceOp op = ReduceOp::kAverage;
  /// Maximum size of a bucket; a larger gradient is a bucket of its own. 0: FARANDOLE_BUCKET_BYTES. Small buckets start
  /// earlier and overlap more of backward; large buckets cost fewer collectives.
  std::size_t bucket_bytes = 0;
  /// Maximum size of the bucket that is reduced last. 0: FARANDOLE_LAST_BUCKET_BYTES. A small value is best: backward
  /// has ended by then, so no computation hides this bucket.
  std::size_t last_bucket_bytes = 0;
  /// Algorithm of the allreduces; empty: Farandole's choice. Copied by the constructor.
  std::string_view algorithm = {};
  /// Gradients in device memory: the stream whose work produces the gradients and uses the averages.
  StreamView stream = {};
  /// True: several gradients may share the same memory, as those of tied weights; the memory is reduced once, when all
  /// of them are ready. False: such gradients are an InvalidArgument, because each element would be reduced twice.
  bool tied_spans = false;
};

/// Averages the gradients of a data-parallel training loop over all ranks of a communicator, and overlaps the
/// communication with backward. Use it where the loop is written by hand; farandole::Trainer averages gradients by
/// itself.
///
///     World world;
///     GradientAverager averager(Communicator::of_world(world), {{dw1, "w1"}, {dw2, "w2"}});
///     for (each batch) {
///       …compute dw2…
///       averager.ready(1);   // dw2 travels while dw1 is computed
///       …compute dw1…
///       averager.wait();     // marks dw1, too; afterwards both hold averages
///       …update w1 and w2…
///     }
///
/// How it works: as c10d's DDP reducer, with buckets that are fixed at construction. The list of gradients is cut into
/// buckets from its last entry to its first, because backward produces gradients in the reverse order of the layers. A
/// bucket is reduced by a single allreduce, which starts once all gradients of the bucket are ready and the allreduces
/// of all earlier buckets have started, so every rank starts them in the same order, in whatever order gradients become
/// ready. Gradients that are adjacent in memory are reduced in place. Other gradients are packed into a buffer of the
/// averager, as large as the bucket, at the cost of a copy each way.
///
/// Device memory: all gradients must then be on this rank's device. `ready` means that the work that produces the
/// gradient is enqueued in `GradientOptions::stream`; `wait` returns once the stream is ordered after all averages, and
/// does not block the host until they are complete. Without a stream `wait` blocks until all averages are complete.
///
/// Memory: no two averagers of a process may share memory; the second constructor throws InvalidArgument. To replace an
/// averager, destroy the old averager first, for example by `reset()` of a std::optional.
///
/// Threads: not thread-safe; a single thread uses an averager at a time. The communicator must not be used for anything
/// else between the first `ready` and the end of `wait`.
///
/// After a move the source throws InvalidArgument from every function. An averager that outlives its World throws
/// InvalidArgument, too, once nothing is pending.
class GradientAverager {
 public:
  /// Collective: all ranks pass gradients of the same sizes and types in the same order. Blocks until the ranks have
  /// compared them.
  /// @throws InvalidArgument  the communicator is empty; gradients overlap (see GradientOptions::tied_spans); a
  /// gradient overlaps a gradient of another averager of this process; or the gradients are not all in host memory, or
  /// all in the memory of this rank's device
  /// @throws Mismatch  ranks differ in their gradients or options, or another rank throws InvalidArgument
  GradientAverager(Communicator communicator, std::vector<GradientSpan> gradients, const GradientOptions& options = {});
  /// Blocks until no allreduce uses the gradients' memory; errors are dropped. During the unwinding of an exception
  /// with allreduces in flight the destructor first aborts the job, because the peers would wait for this rank's other
  /// buckets.
  ~GradientAverager();
  GradientAverager(GradientAverager&&) noexcept;
  GradientAverager& operator=(GradientAverager&&) noexcept;

  /// Marks gradient `index` as final for this training step, and starts the buckets that are now complete. The caller
  /// must not touch the gradient until `wait` returns. Non-blocking.
  /// @throws InvalidArgument  there is no such gradient, or the gradient is marked already
  void ready(std::size_t index);
  /// Blocks until every gradient is reduced, then begins the next training step. Gradients that are not marked are
  /// marked first, and reduced with the values that their memory holds, for example the last training step's averages:
  /// set a gradient to zero if backward skipped the parameter.
  /// @throws Error  as Communicator::allreduce; all allreduces have ended, and the next training step has begun
  void wait();

  /// Number of buckets, which is the number of allreduces in a training step.
  std::size_t bucket_count() const;
  /// Seconds that `wait` blocked in the last training step: communication that computation did not hide.
  Seconds exposed() const;

 private:
  class State;
  State& state() const;
  std::unique_ptr<State> state_;
};

}  // namespace FARANDOLE_API
