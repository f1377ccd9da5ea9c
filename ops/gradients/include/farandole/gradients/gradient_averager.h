// SPDX-License-Identifier: Apache-2.0
// Gradient averaging for training loops of your own: buckets, reduced while backward still runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// The gradient of one parameter.
struct GradientSpan {
  BufferView values;  ///< the caller's memory; must stay in place until the averager is destroyed
  std::string name;   ///< for error messages
};

/// Behaviour of GradientAverager::wait if gradients are not marked. In both modes the values that an earlier training
/// step left in their memory are never reduced.
enum class UnmarkedGradients : std::uint8_t {
  kError,  ///< `wait` throws InvalidArgument, which names the gradients, on each rank with unmarked gradients, and
           ///< Mismatch on every other rank
  kZero,   ///< `wait` marks them as zeros, for models whose ranks skip different parameters
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
  /// For gradients in device memory: the stream whose work produces the gradients and uses the averages.
  ///
  /// If the communicator's device order is kCaller:
  /// - The calling thread enqueues buckets in a stream of the averager, so that they overlap work in this stream.
  /// - A training step without weights may be captured into a graph, once a step has run outside a graph.
  /// - A rank that abandons a step, or with UnmarkedGradients::kError leaves gradients unmarked, aborts the job,
  ///   because its peers have enqueued their allreduces already.
  StreamView stream = {};
  /// True: several gradients may share the same memory, as those of tied weights; the memory is reduced once, when all
  /// of them are ready. False: such gradients are an InvalidArgument, because each element would be reduced twice.
  bool tied_spans = false;
  /// Behaviour of `wait` if backward has skipped parameters.
  UnmarkedGradients unmarked = UnmarkedGradients::kError;
  /// True: each training step begins with `begin(weight)`, and the result is sum(weight * gradient) / sum(weight) over
  /// all ranks. Use it if the ranks' numbers of samples or tokens differ. Requires `op` kAverage and gradients of
  /// floating-point types. Costs an allreduce of 8 bytes in each training step.
  bool weighted = false;
  /// kF16 or kBF16: gradients of type f32 travel in this type, in half the bytes. Each gradient is rounded when its
  /// bucket is packed, the sums are rounded as in an allreduce of that type, and the result is converted back to f32.
  /// An element beyond the range of f16 (65504) becomes infinite; bf16 has the range of f32 and 8 bits of precision.
  /// Gradients of other types travel as they are. Empty: no conversion.
  std::optional<DType> communicate_as = {};
};

/// Averages the gradients of a data-parallel training loop over all ranks of a communicator, and overlaps the
/// communication with backward. Use an averager in a training loop of your own; trainer::Trainer averages gradients by
/// itself.
///
///     World world;
///     GradientAverager averager(Communicator::of_world(world), {{dw1, "w1"}, {dw2, "w2"}});
///     for (each batch) {
///       …compute dw2…
///       averager.ready(1);   // dw2 travels while dw1 is computed
///       …compute dw1…
///       averager.ready(0);
///       averager.wait();     // now both hold averages
///       …update w1 and w2…
///     }
///
/// How it works: like c10d's DDP reducer, except that buckets stay the same until `add`. The list of gradients is cut
/// into buckets from its last entry to its first, because backward produces gradients in the reverse order of the
/// layers. One allreduce reduces a bucket. It starts once all gradients of the bucket are ready and the allreduces of
/// all earlier buckets have started. Every rank therefore starts the allreduces in the same order, whatever the order
/// in which its gradients become ready. Gradients that are adjacent in memory are reduced in place. Other gradients,
/// and gradients that are converted, are packed into a buffer of the averager, as large as the bucket, at the cost of a
/// copy each way.
///
/// **A training step** lasts from the end of one `wait` or `abandon` to the end of the next. In each training step
/// every rank calls `begin` (if weighted), then `ready` once for each gradient, and then either `wait` or `abandon`.
///
/// **Accumulation.** Add the gradients of several backward passes in their own memory, and mark them in the last pass
/// only; nothing is communicated before. (DDP: `no_sync`.) If a gradient was marked in an earlier pass, marking it in
/// the last pass throws InvalidArgument. A loop that adds in other memory calls `ready_all` when the sums are in the
/// gradients' memory.
///
///     for (int pass = 0; pass < 4; ++pass) backward(pass, [&](std::size_t index) {
///       if (pass == 3) averager.ready(index);
///     });
///     averager.wait();
///
/// **Weights.** Ranks with different numbers of samples set `weighted`. A rank without samples calls `begin(0)` and
/// `wait()`; its gradients count as zeros, whatever their memory holds.
///
///     GradientAverager averager(ranks, gradients, {.weighted = true});
///     averager.begin(batch.samples());   // each gradient is the mean over this rank's samples
///     …backward, ready…
///     averager.wait();                   // the mean over all ranks' samples
///
/// **Giving up.** A rank that cannot finish a training step calls `abandon`, which fails the step on every rank and
/// leaves the job intact. If a loss that is not finite is found before the first `ready`, no `abandon` is needed:
/// reduce the loss (kMax) on the same communicator, and skip the step on every rank.
///
///     try { backward(…); averager.wait(); } catch (const DataError&) { averager.abandon(); }
///     // the other ranks: wait() throws Mismatch; all ranks go on with the next batch
///
/// **Several groups.** An averager belongs to one communicator. Parameters that fewer ranks share, such as the experts
/// of a model, get an averager of their own on a communicator of those ranks; the two reduce independently. Two
/// averagers of the same ranks need a communicator each.
///
///     GradientAverager shared(ranks.duplicate(), shared_gradients);
///     GradientAverager experts(ranks.split(expert), expert_gradients);
///
/// **16-bit communication.** `{.communicate_as = DType::kBF16}` halves the bytes of f32 gradients.
///
/// **Device memory.** All gradients must then be on this rank's device. `ready` means that the work that produces the
/// gradient is enqueued in `GradientOptions::stream`; `wait` returns once the stream is ordered after all averages, and
/// does not block the host until they are complete: enqueue the update in the same stream. Without a stream `wait`
/// blocks until all averages are complete.
///
///     GradientAverager averager(ranks, gradients, {.stream = StreamView(stream, ranks.device())});
///
/// **Memory.** No two averagers of a process may share memory; the second constructor throws InvalidArgument. To
/// replace an averager, destroy the old averager first, for example by `reset()` of a std::optional.
///
/// **Threads.** Not thread-safe; a single thread uses an averager at a time. The communicator must not be used for
/// anything else between the first `begin` or `ready` and the end of `wait` or `abandon`.
///
/// After a move the source throws InvalidArgument from every function. An averager that outlives its World throws
/// InvalidArgument, too, once nothing is pending.
class GradientAverager {
 public:
  /// Collective: all ranks pass gradients of the same sizes and types in the same order. Blocks until the ranks have
  /// compared them.
  /// @throws InvalidArgument  the communicator is empty; gradients overlap (see GradientOptions::tied_spans); a
  /// gradient overlaps a gradient of another averager of this process; the gradients are not all in host memory, or
  /// all in the memory of this rank's device; options do not fit each other; or `Communicator::allocate` has no memory
  /// for packed buckets
  /// @throws Mismatch  ranks differ in their gradients or options, or another rank throws InvalidArgument
  GradientAverager(Communicator communicator, std::vector<GradientSpan> gradients, const GradientOptions& options = {});
  /// Destroy an averager between training steps. Blocks until no allreduce uses the gradients' memory, and until a
  /// device has completed the work that `wait` has enqueued, even if the stream has been destroyed since. Errors are
  /// dropped. If this rank has started some buckets of a training step and not all, the destructor abandons the step as
  /// `abandon` does. During the unwinding of an exception the destructor instead aborts the job if allreduces are in
  /// flight or not started: the peers would wait for this rank's other buckets, and this rank for theirs.
  ~GradientAverager();
  GradientAverager(GradientAverager&&) noexcept;
  GradientAverager& operator=(GradientAverager&&) noexcept;

  /// Sets the weight of this rank's gradients in this training step, for example its number of samples. Call it as
  /// early as the weight is known, before the first `ready`. Non-blocking, but the first bucket does not start before
  /// every rank has called `begin`, so the `ready` that completes this bucket may block.
  /// @param weight  0 or more. If the weights of all ranks are 0, `wait` throws InvalidArgument on all ranks
  /// @throws InvalidArgument  GradientOptions::weighted is false, `weight` is negative or not finite, or a second call
  /// in a training step
  void begin(double weight);
  /// Marks gradient `index` as final for this training step, and starts the buckets that are now complete. The caller
  /// must not touch the gradient until `wait` returns. Non-blocking, but see `begin`.
  /// @throws InvalidArgument  there is no such gradient, the gradient is marked already, or `begin` was not called
  void ready(std::size_t index);
  /// Marks every gradient that is not marked, from the last to the first. For loops that compute all gradients before
  /// they communicate.
  void ready_all();
  /// Blocks until every gradient is reduced, then begins the next training step. On an error all allreduces have ended,
  /// the contents of the gradients are unspecified, and the next training step has begun, too; after InvalidArgument
  /// and Mismatch the averager and the job stay usable.
  /// @throws InvalidArgument  gradients are not marked (UnmarkedGradients::kError; the text names them), or `begin` was
  /// not called. With FARANDOLE_CHECK=off the job is aborted instead, because the ranks do not compare their calls
  /// @throws Mismatch  another rank throws InvalidArgument or has called `abandon`
  /// @throws Error  as Communicator::allreduce
  void wait();
  /// Gives up this training step, and begins the next; call it instead of `wait`. Buckets that this rank has not
  /// started fail on every rank before data is touched: a rank that calls `wait` gets Mismatch, a rank that calls
  /// `abandon` returns. Buckets in flight are completed, and their results are dropped; if this rank has marked all
  /// gradients, peers do not notice that it abandons the step. The contents of the gradients are unspecified
  /// afterwards. Blocks until every rank has called `wait` or `abandon`, or has started all buckets. With
  /// FARANDOLE_CHECK=off the job is aborted if buckets are not started.
  /// @throws Error  the fault of the job
  void abandon();

  /// Appends gradients; the indices go on from the last. Collective, between training steps; blocks. The new gradients
  /// are reduced first, and all buckets are cut anew. On an error the averager is as before.
  /// @throws InvalidArgument, Mismatch  as the constructor, or gradients are being reduced
  void add(std::vector<GradientSpan> gradients);

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
