// SPDX-License-Identifier: Apache-2.0
#include "farandole/gradients/gradient_averager.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "farandole/collectives/agreement.h"
#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/device_use.h"
#include "farandole/internal/endpoint.h"
#include "farandole/internal/first_error.h"
#include "farandole/sdk/device.h"
#include "gradient_buckets.h"
#include "gradient_checks.h"
#include "gradient_memory.h"
#include "side_stream.h"

namespace farandole {
namespace {

/// The weights of a training step, if GradientOptions::weighted.
struct StepWeights {
  double own = 1;
  double total = 1;    ///< memory of `sum`: sum of all ranks' weights once `is_total` is set
  bool begun = false;  ///< `begin` was called in this training step
  bool is_total = false;
  Work sum;
  std::exception_ptr error;  ///< why no bucket of this training step can be reduced, on any rank
};

}  // namespace

/// Implementation of GradientAverager. Used by one thread at a time. A training step: `ready` counts a bucket's missing
/// gradients down; `launch` packs and starts complete buckets in order; `wait` completes all, unpacks, and begins the
/// next training step.
///
/// Every rank starts the same allreduces in every training step: the sum of weights if weighted, then each bucket. A
/// rank that cannot contribute to an allreduce starts it as a refused call, so that no peer waits. If the sum of
/// weights fails, it fails on all ranks, and no rank starts a bucket.
class GradientAverager::State {
 public:
  State(Communicator communicator, const GradientOptions& options)
      : communicator_(std::move(communicator)), options_(options), algorithm_(options.algorithm) {
    options_.algorithm = algorithm_;
    const Settings& settings = internals(communicator_).settings();
    if (options_.bucket_bytes == 0) options_.bucket_bytes = static_cast<std::size_t>(settings.gradients.bucket_bytes);
    if (options_.last_bucket_bytes == 0) {
      options_.last_bucket_bytes = static_cast<std::size_t>(settings.gradients.last_bucket_bytes);
    }
  }

  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (internals(communicator_).endpoint().faults().is_forked_child()) return;
    if (std::uncaught_exceptions() > exceptions_at_start_ && is_in_training_step() && has_pending()) {
      communicator_.abort("an exception ended the training step while gradients were being reduced");
    }
    // Buckets in flight write to memory that is about to be released.
    if (is_in_training_step()) {
      refuse_rest();
      finish_all();
    }
    device_use_.wait_for_end(internals(communicator_).endpoint().faults());
  }

  void add(std::vector<GradientSpan> more) {
    internals(communicator_).endpoint().faults().check_process();
    if (is_in_training_step())
      throw InvalidArgument("add: gradients are being reduced; call wait() or abandon() first");
    std::vector<GradientSpan> gradients = spans_;
    std::move(more.begin(), more.end(), std::back_inserter(gradients));
    std::vector<std::size_t> tied;
    std::list<ClaimedMemory> claim(1);
    throw_if_refused(communicator_, check(gradients, tied, claim.front()));
    require_same(communicator_, shared_facts(gradients, tied, options_));
    open_device(gradients);
    if (device_ != nullptr && bucket_count() > 0) device_->synchronize(options_.stream);  // may use the old buckets
    GradientBuckets plan;
    const auto make_plan = [&] { plan = GradientBuckets(communicator_, gradients, std::move(tied), options_); };
    throw_if_refused(communicator_, refusal_of(make_plan));  // a rank may have no memory left for packed buckets
    plan_ = std::move(plan);
    spans_ = std::move(gradients);
    memory_.splice(memory_.end(), claim);
    begin_training_step();
  }

  void begin(double weight) {
    internals(communicator_).endpoint().faults().check_process();
    if (!options_.weighted) throw InvalidArgument("begin: weights need GradientOptions::weighted");
    if (!(weight >= 0) || !std::isfinite(weight)) {
      throw InvalidArgument(fmt::format("begin: a weight must be a finite number from 0 on, got {}", weight));
    }
    if (weights_.begun) throw InvalidArgument("begin was called already in this training step; call wait() first");
    weights_.own = weights_.total = weight;
    if (communicator_.size() > 1) {
      weights_.sum = communicator_.allreduce_async(BufferView(&weights_.total, 1, DType::kF64), ReduceOp::kSum);
    }
    weights_.begun = true;
  }

  void ready(std::size_t index) {
    internals(communicator_).endpoint().faults().check_process();
    if (index >= spans_.size()) {
      throw InvalidArgument(fmt::format("gradient {} does not exist; there are {}", index, spans_.size()));
    }
    if (is_ready_[index]) {
      throw InvalidArgument(
          fmt::format("gradient {} ({}) was ready already in this training step; call wait() between training steps, "
                      "and mark accumulated gradients in the last backward pass only",
                      index, spans_[index].name));
    }
    if (options_.weighted && !weights_.begun) {
      throw InvalidArgument("ready: call begin(weight) first in each training step: the averages are weighted");
    }
    if (options_.weighted && side_stream_ && device_->is_capturing(options_.stream)) {
      throw InvalidArgument(
          "ready: a training step with weights cannot be captured into a graph, because each replay would use the "
          "weights of the capture; end the capture before, or average without weights");
    }
    mark(index);
    // Advance the latest collective here: the progress thread may get no core while all cores compute.
    if (next_to_launch_ == 0) return;
    if (Work& latest = plan_.buckets[next_to_launch_ - 1].work; latest.valid()) (void)latest.test();
  }

  void ready_all() {
    for (std::size_t i = spans_.size(); i-- > 0;) {
      if (!is_ready_[i]) ready(i);
    }
  }

  void wait() {
    internals(communicator_).endpoint().faults().check_process();
    const std::string problem = complete_marks();
    const auto start = Clock::now();
    refuse_rest();
    const std::exception_ptr error = finish_all();
    exposed_ = Clock::now() - start;
    begin_training_step();
    if (!problem.empty()) {
      internals(communicator_).endpoint().faults().check();
      throw InvalidArgument(problem);
    }
    if (error) rethrow(error);
    for (const Bucket& bucket : plan_.buckets) unpack(bucket);
    device_use_.record(options_.stream);
    if (waits_for_device_) device_->synchronize(options_.stream);
  }

  void abandon() {
    internals(communicator_).endpoint().faults().check_process();
    refuse_rest();
    finish_all();
    begin_training_step();
    internals(communicator_).endpoint().faults().check();
  }

  std::size_t bucket_count() const { return plan_.buckets.size(); }
  Seconds exposed() const { return exposed_; }

 private:
  /// True if an allreduce was started, and `wait` or `abandon` was not called since.
  bool is_in_training_step() const { return next_to_launch_ > 0 || weights_.begun; }

  /// True if an allreduce of this training step is not complete, or not started.
  bool has_pending() {
    if (next_to_launch_ < plan_.buckets.size()) return true;
    return std::any_of(plan_.buckets.begin(), plan_.buckets.end(),
                       [](Bucket& bucket) { return bucket.work.valid() && !bucket.work.test(); });
  }

  /// Waits until no allreduce is in flight, or until the stream waits for those on the device. Returns the first error.
  std::exception_ptr finish_all() {
    FirstError first(weights_.error);
    const auto finish = [&](Work& work, bool is_host_memory) {
      if (!work.valid()) return;
      // Without a stream of the caller the host waits anyway; `Work::wait` does so up to the deadline.
      first.run([&] { is_host_memory || waits_for_device_ ? work.wait() : work.wait_on(options_.stream); });
    };
    finish(weights_.sum, true);
    for (Bucket& bucket : plan_.buckets) finish(bucket.work, device_ == nullptr || bucket.refused);
    if (side_stream_) first.run([&] { side_stream_->join(options_.stream); });
    first.run([&] { device_use_.record(options_.stream); });
    return first.get();
  }

  /// Throws `error`. For a Mismatch, adds why a peer may have made another call.
  [[noreturn]] static void rethrow(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const Mismatch& mismatch) {
      throw Mismatch(
          fmt::format("gradients were not reduced, because a rank has left gradients unmarked, has abandoned "
                      "the training step, or has made another call: {}",
                      mismatch.message()));
    }
  }

  /// Checks the gradients, finds tied gradients, and claims the memory of new gradients. Returns why this rank cannot
  /// take part; empty if it can.
  std::string check(const std::vector<GradientSpan>& gradients, std::vector<std::size_t>& tied, ClaimedMemory& claim) {
    return refusal_of([&] {
      check_gradients(communicator_, gradients, options_);
      tied = find_tied(gradients, options_.tied_spans);
      claim.claim(gradients, tied, spans_.size(), communicator_.describe(communicator_.rank()));
    });
  }

  /// Runs `action`. Returns the text of its InvalidArgument; empty if it throws none.
  template <class Action>
  static std::string refusal_of(const Action& action) {
    try {
      action();
      return {};
    } catch (const InvalidArgument& error) {
      return error.message();
    }
  }

  void open_device(const std::vector<GradientSpan>& gradients) {
    if (device_ != nullptr || gradients.empty() || gradients.front().values.space.is_host()) return;
    const MemorySpace space = gradients.front().values.space;
    device_ = &device_runtime(internals(communicator_).settings()).runtime->open(space.ordinal);
    device_use_.open(*device_);
    waits_for_device_ = !options_.stream.valid();
    if (waits_for_device_) options_.stream = StreamView(nullptr, space);
    if (internals(communicator_).enqueues_directly()) side_stream_.emplace(*device_);
  }

  void begin_training_step() {
    is_ready_.assign(spans_.size(), false);
    for (Bucket& bucket : plan_.buckets) {
      bucket.missing = bucket.gradients;
      bucket.refused = false;
      bucket.work = Work();
    }
    next_to_launch_ = 0;
    weights_ = StepWeights();
  }

  void mark(std::size_t index) {
    is_ready_[index] = true;
    --plan_.buckets[plan_.bucket_of[index]].missing;
    launch();
  }

  /// Marks unmarked gradients as zeros, if the options or a weight of 0 allow that. Returns the error if gradients stay
  /// unmarked or `begin` was not called; empty otherwise.
  std::string complete_marks() {
    if (options_.weighted && !weights_.begun) return "wait: begin(weight) was not called in this training step";
    const bool are_zero = options_.unmarked == UnmarkedGradients::kZero || (options_.weighted && weights_.own == 0);
    std::vector<std::size_t> unmarked;
    std::vector<bool> has_values(spans_.size());  // by the first gradient of a tie
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      if (is_ready_[i]) has_values[plan_.tied[i]] = true;
    }
    for (std::size_t i = spans_.size(); i-- > 0;) {
      if (is_ready_[i]) continue;
      if (!are_zero) {
        unmarked.push_back(i);
        continue;
      }
      if (!has_values[plan_.tied[i]]) fill_with_zeros(spans_[i].values);
      has_values[plan_.tied[i]] = true;
      mark(i);
    }
    return unmarked.empty() ? std::string() : unmarked_error(spans_, unmarked);
  }

  void fill_with_zeros(const BufferView& values) {
    if (values.count == 0) return;
    if (device_ == nullptr) {
      std::memset(values.data, 0, values.size_in_bytes());
    } else if (side_stream_ || !device_->is_capturing(options_.stream)) {
      device_->fill_zero(values.data, values.size_in_bytes(), options_.stream);
    }
  }

  /// Starts each complete bucket once all earlier buckets have started, so that all ranks reduce in the same order.
  void launch() {
    for (; next_to_launch_ < plan_.buckets.size() && plan_.buckets[next_to_launch_].missing == 0; ++next_to_launch_) {
      if (communicator_.size() > 1 && knows_weights()) start(plan_.buckets[next_to_launch_]);
    }
  }

  void start(Bucket& bucket) {
    CallOptions options;
    options.algorithm = options_.algorithm;
    options.stream = options_.stream;
    if (options_.weighted) options.prescale = weights_.own / weights_.total;
    if (options_.weighted && weights_.own == 0) {
      for (std::size_t i = 0; i < bucket.count; ++i) fill_with_zeros(plan_.reduced[bucket.first + i]);
    }
    const ReduceOp op = options_.weighted ? ReduceOp::kSum : options_.op;
    if (side_stream_) {
      pack(bucket);
      options.stream = side_stream_->fork(options_.stream);
      return communicator_.allreduce(bucket.view, op, options);
    }
    // The collective refuses a stream that is being captured, on all ranks; do not enqueue the pack either.
    if (device_ == nullptr || !device_->is_capturing(options_.stream)) pack(bucket);
    bucket.work = communicator_.allreduce_async(bucket.view, op, options);
  }

  /// Blocks until the sum of weights is known; no-op if averages are not weighted. Returns false, and sets
  /// `error`, if no rank can reduce this training step.
  bool knows_weights() {
    if (!options_.weighted || weights_.is_total) return weights_.error == nullptr;
    weights_.is_total = true;
    try {
      if (weights_.sum.valid()) weights_.sum.wait();
      if (!(weights_.total > 0) || !std::isfinite(weights_.total)) {
        throw InvalidArgument(
            fmt::format("the weights of all ranks add up to {}: at least one rank must have samples", weights_.total));
      }
    } catch (...) {
      weights_.error = std::current_exception();
    }
    return weights_.error == nullptr;
  }

  /// Starts all allreduces that are not started yet as refused calls.
  void refuse_rest() {
    if (options_.weighted && !weights_.begun) {
      weights_.begun = true;
      weights_.sum = refused_call(BufferView(&weights_.total, 1, DType::kF64), ReduceOp::kSum);
    }
    if (!knows_weights()) return;
    for (; next_to_launch_ < plan_.buckets.size(); ++next_to_launch_) {
      Bucket& bucket = plan_.buckets[next_to_launch_];
      bucket.refused = true;
      bucket.work = refused_call(bucket.view, options_.weighted ? ReduceOp::kSum : options_.op);
    }
  }

  /// Starts an allreduce that this rank refuses: InvalidArgument here and Mismatch on every other rank, before data is
  /// touched. Where ranks do not compare their calls, aborts the job, because peers would wait for this rank.
  Work refused_call(const BufferView& view, ReduceOp op) {
    if (communicator_.size() == 1) return {};
    if (side_stream_) {
      communicator_.abort(
          "a rank has left gradients unmarked or has abandoned a training step, and its peers have enqueued their "
          "allreduces already, because the device order of the communicator is the caller's");
      return {};
    }
    try {
      return internals(communicator_)
          .refuse_allreduce(view, op, "this rank has left gradients unmarked, or has abandoned the training step");
    } catch (const Error&) {
      communicator_.abort(
          "a rank has left gradients unmarked or has abandoned a training step, and FARANDOLE_CHECK=off "
          "leaves no way to tell its peers");
      return {};
    }
  }

  void pack(Bucket& bucket) { plan_.pack(bucket, device_, options_.stream); }
  void unpack(const Bucket& bucket) {
    if (communicator_.size() > 1) plan_.unpack(bucket, device_, options_.stream);
  }

  Communicator communicator_;
  GradientOptions options_;
  const std::string algorithm_;
  const int exceptions_at_start_ = std::uncaught_exceptions();
  std::vector<GradientSpan> spans_;
  std::list<ClaimedMemory> memory_;
  Device* device_ = nullptr;  // null: gradients are in host memory
  bool waits_for_device_ = false;
  std::optional<SideStream> side_stream_;  // if buckets are enqueued directly
  DeviceUse device_use_;
  GradientBuckets plan_;
  std::vector<bool> is_ready_;      // per gradient
  std::size_t next_to_launch_ = 0;  // in the order of buckets
  StepWeights weights_;
  Seconds exposed_{0};
};

GradientAverager::GradientAverager(Communicator communicator, std::vector<GradientSpan> gradients,
                                   const GradientOptions& options) {
  if (!communicator.valid()) {
    throw InvalidArgument("a gradient averager needs a communicator; this one is empty: never assigned, or moved from");
  }
  state_ = std::make_unique<State>(std::move(communicator), options);
  state_->add(std::move(gradients));
}
GradientAverager::~GradientAverager() = default;
GradientAverager::GradientAverager(GradientAverager&&) noexcept = default;
GradientAverager& GradientAverager::operator=(GradientAverager&&) noexcept = default;

GradientAverager::State& GradientAverager::state() const {
  if (!state_) throw InvalidArgument("this GradientAverager was moved from: use the one that it was moved to");
  return *state_;
}

void GradientAverager::begin(double weight) {
  state().begin(weight);
}
void GradientAverager::ready(std::size_t index) {
  state().ready(index);
}
void GradientAverager::ready_all() {
  state().ready_all();
}
void GradientAverager::wait() {
  state().wait();
}
void GradientAverager::abandon() {
  state().abandon();
}
void GradientAverager::add(std::vector<GradientSpan> gradients) {
  state().add(std::move(gradients));
}
std::size_t GradientAverager::bucket_count() const {
  return state().bucket_count();
}
Seconds GradientAverager::exposed() const {
  return state().exposed();
}

}  // namespace farandole
