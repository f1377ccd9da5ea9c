// SPDX-License-Identifier: Apache-2.0
#include "farandole/gradients/gradient_averager.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include "farandole/collectives/agreement.h"
#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/endpoint.h"
#include "farandole/internal/view_address.h"
#include "farandole/sdk/device.h"
#include "gradient_memory.h"

namespace farandole {
namespace {

/// Gradients that are reduced by the same allreduce: `count` entries of `reduced_` from `first` on.
struct Bucket {
  std::size_t first = 0, count = 0;
  std::size_t gradients = 0;  ///< number of the caller's gradients, each tied gradient counted
  std::size_t missing = 0;    ///< number of these that are not ready yet in this training step
  bool contiguous = false;    ///< reduced in place; otherwise packed
  Buffer packed;
  BufferView view;
  Work work;
};

bool follows(const BufferView& before, const BufferView& after) {
  return static_cast<const std::byte*>(before.data) + before.size_in_bytes() == after.data;
}

/// Cuts `spans` into buckets from the last entry to the first, in the order of reduction. A bucket holds gradients of
/// the same type and at most `bucket_bytes`, the bucket that is reduced last at most `last_bucket_bytes`; a larger span
/// is a separate bucket.
std::vector<Bucket> cut(const std::vector<BufferView>& spans, std::size_t bucket_bytes, std::size_t last_bucket_bytes) {
  std::size_t tail = 0;  // spans [0, tail) form the bucket that is reduced last
  for (std::size_t bytes = 0; tail < spans.size(); ++tail) {
    bytes += spans[tail].size_in_bytes();
    if (tail > 0 && (bytes > last_bucket_bytes || spans[tail].dtype != spans[0].dtype)) break;
  }
  std::vector<Bucket> buckets;
  std::size_t bytes = 0;
  for (std::size_t i = spans.size(); i-- > 0;) {
    const std::size_t next = spans[i].size_in_bytes();
    const bool opens =
        buckets.empty() || i + 1 == tail || bytes + next > bucket_bytes || spans[i].dtype != spans[i + 1].dtype;
    if (opens) {
      buckets.emplace_back();
      bytes = 0;
    }
    bytes += next;
    buckets.back().first = i;
    ++buckets.back().count;
  }
  return buckets;
}

}  // namespace

/// Implementation of GradientAverager. Used by one thread at a time. A training step: `ready` counts a bucket's missing
/// gradients down; `launch` packs and starts complete buckets in order; `wait` completes all, unpacks, and begins the
/// next training step.
class GradientAverager::State {
 public:
  State(Communicator communicator, std::vector<GradientSpan> spans, const GradientOptions& options)
      : communicator_(std::move(communicator)),
        spans_(std::move(spans)),
        options_(options),
        algorithm_(options.algorithm) {
    options_.algorithm = algorithm_;
    const Settings& settings = internals(communicator_).settings();
    if (options_.bucket_bytes == 0) options_.bucket_bytes = static_cast<std::size_t>(settings.gradients.bucket_bytes);
    if (options_.last_bucket_bytes == 0) {
      options_.last_bucket_bytes = static_cast<std::size_t>(settings.gradients.last_bucket_bytes);
    }
    compare_with_other_ranks(check_memory());
    open_device();
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      if (tied_[i] == i) reduced_.push_back(spans_[i].values);
    }
    buckets_ = cut(reduced_, options_.bucket_bytes, options_.last_bucket_bytes);
    for (Bucket& bucket : buckets_) prepare(bucket);
    find_buckets();
    begin_training_step();
  }

  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (internals(communicator_).endpoint().faults().is_forked_child()) return;
    // Buckets in flight write to memory that is about to be released.
    if (std::uncaught_exceptions() > exceptions_at_start_ && has_pending()) {
      communicator_.abort("an exception ended the training step while gradients were being reduced");
    }
    finish_all();
  }

  void ready(std::size_t index) {
    internals(communicator_).endpoint().faults().check_process();
    if (index >= spans_.size()) {
      throw InvalidArgument(fmt::format("gradient {} does not exist; there are {}", index, spans_.size()));
    }
    if (is_ready_[index]) {
      throw InvalidArgument(
          fmt::format("gradient {} ({}) was ready already in this training step; call wait() between training steps",
                      index, spans_[index].name));
    }
    is_ready_[index] = true;
    --buckets_[bucket_of_[index]].missing;
    launch();
    // Advance the latest collective here: the progress thread may get no core while all cores compute.
    if (next_to_launch_ > 0 && communicator_.size() > 1) (void)buckets_[next_to_launch_ - 1].work.test();
  }

  void wait() {
    internals(communicator_).endpoint().faults().check_process();
    for (std::size_t i = spans_.size(); i-- > 0;) {
      if (!is_ready_[i]) ready(i);
    }
    const auto start = Clock::now();
    const std::exception_ptr error = finish_all();
    exposed_ = Clock::now() - start;
    begin_training_step();
    if (error) std::rethrow_exception(error);
    for (Bucket& bucket : buckets_) unpack(bucket);
    if (waits_for_device_) device_->synchronize(options_.stream);
  }

  std::size_t bucket_count() const { return buckets_.size(); }
  Seconds exposed() const { return exposed_; }

 private:
  bool has_pending() {
    return std::any_of(buckets_.begin(), buckets_.end(), [](Bucket& b) { return b.work.valid() && !b.work.test(); });
  }

  /// Waits until no allreduce is in flight. Returns the first error.
  std::exception_ptr finish_all() {
    std::exception_ptr first;
    for (Bucket& bucket : buckets_) {
      try {
        if (!bucket.work.valid()) continue;
        // Without a stream of the caller the host waits anyway; `Work::wait` does so up to the deadline.
        device_ == nullptr || waits_for_device_ ? bucket.work.wait() : bucket.work.wait_on(options_.stream);
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    return first;
  }

  /// Finds tied gradients, and claims the memory of all. Returns why this rank cannot take part; empty if it can.
  std::string check_memory() {
    try {
      check_spaces();
      tied_ = find_tied(spans_, options_.tied_spans);
      memory_.claim(spans_, tied_, communicator_.describe(communicator_.rank()));
      return {};
    } catch (const InvalidArgument& error) {
      return error.what();
    }
  }

  void check_spaces() {
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      const BufferView& values = spans_[i].values;
      if (const MemorySpace space = spans_.front().values.space; values.space != space) {
        throw InvalidArgument(fmt::format("gradient {}: expected {}, where the first one is, got {}", i,
                                          describe(space), describe(values.space)));
      }
      if (values.space.is_host()) continue;
      if (const MemorySpace own = communicator_.device(); own != values.space) {
        throw InvalidArgument(fmt::format("gradients: expected {}, the device of this rank, got {}", describe(own),
                                          describe(values.space)));
      }
      const DeviceRuntime& runtime = *device_runtime(internals(communicator_).settings()).runtime;
      const std::string what = fmt::format("gradient {} ({})", i, spans_[i].name);
      if (const std::string problem = address_problem(runtime, what, values); !problem.empty()) {
        throw InvalidArgument(problem);
      }
    }
  }

  /// Everything on which the ranks must agree: sizes, types and kinds of memory, ties, options.
  std::vector<SharedFact> shared_facts() const {
    std::vector<SharedFact> facts{{"the number of gradients", std::to_string(spans_.size())}};
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      const BufferView& values = spans_[i].values;
      const std::string tie = tied_[i] == i ? "" : fmt::format(", tied to gradient {}", tied_[i]);
      facts.push_back({fmt::format("gradient {}", i),
                       fmt::format("{} elements of {} in {} memory{}", values.count, name(values.dtype),
                                   values.space.is_host() ? "host" : "device", tie)});
    }
    facts.push_back({"bucket_bytes", std::to_string(options_.bucket_bytes)});
    facts.push_back({"last_bucket_bytes", std::to_string(options_.last_bucket_bytes)});
    facts.push_back({"op", std::string(name(options_.op))});
    facts.push_back({"algorithm", fmt::format("'{}'", algorithm_)});
    return facts;
  }

  /// Throws on every rank if the ranks differ. A rank with invalid gradients takes part, so that no peer waits for that
  /// rank.
  void compare_with_other_ranks(const std::string& refusal) {
    std::int64_t refusing = refusal.empty() ? communicator_.size() : communicator_.rank();
    communicator_.allreduce(BufferView(&refusing, 1, DType::kI64), ReduceOp::kMin);
    if (refusing < communicator_.size()) {
      const int rank = static_cast<int>(refusing);
      const std::string why = broadcast_text(communicator_, refusal, rank);
      if (!refusal.empty()) throw InvalidArgument(refusal);
      throw Mismatch(fmt::format("{} refuses its gradients: {}", communicator_.describe(rank), why));
    }
    require_same(communicator_, shared_facts());
  }

  void open_device() {
    if (spans_.empty() || spans_.front().values.space.is_host()) return;
    const MemorySpace space = spans_.front().values.space;
    device_ = &device_runtime(internals(communicator_).settings()).runtime->open(space.ordinal);
    waits_for_device_ = !options_.stream.valid();
    if (waits_for_device_) options_.stream = StreamView(nullptr, space);
  }

  void prepare(Bucket& bucket) {
    const BufferView& front = reduced_[bucket.first];
    bucket.contiguous = true;
    std::size_t elements = 0;
    for (std::size_t i = bucket.first; i < bucket.first + bucket.count; ++i) {
      elements += reduced_[i].count;
      if (i > bucket.first) bucket.contiguous = bucket.contiguous && follows(reduced_[i - 1], reduced_[i]);
    }
    if (bucket.contiguous) {
      bucket.view = BufferView(front.data, elements, front.dtype, front.space);
    } else {
      bucket.packed = communicator_.allocate(elements, front.dtype, front.space);
      bucket.view = bucket.packed.view();
    }
  }

  /// Fills `bucket_of_`. Tied gradients belong to the bucket of the first of them, which backward produces last.
  void find_buckets() {
    std::vector<std::size_t> bucket_of_reduced(reduced_.size());
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      const Bucket& bucket = buckets_[index];
      std::fill_n(bucket_of_reduced.begin() + static_cast<std::ptrdiff_t>(bucket.first), bucket.count, index);
    }
    std::size_t reduced = 0;
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      bucket_of_.push_back(tied_[i] == i ? bucket_of_reduced[reduced++] : bucket_of_[tied_[i]]);
      ++buckets_[bucket_of_[i]].gradients;
    }
  }

  void begin_training_step() {
    is_ready_.assign(spans_.size(), false);
    for (Bucket& bucket : buckets_) {
      bucket.missing = bucket.gradients;
      bucket.work = Work();
    }
    next_to_launch_ = 0;
  }

  /// Starts the complete buckets whose predecessors have started, so that all ranks reduce in the same order.
  void launch() {
    for (; next_to_launch_ < buckets_.size() && buckets_[next_to_launch_].missing == 0; ++next_to_launch_) {
      if (communicator_.size() == 1) continue;
      Bucket& bucket = buckets_[next_to_launch_];
      CallOptions options;
      options.algorithm = options_.algorithm;
      options.stream = options_.stream;
      // The collective refuses a stream that is being captured, on all ranks; do not enqueue the pack either.
      if (device_ == nullptr || !device_->is_capturing(options_.stream)) pack(bucket);
      bucket.work = communicator_.allreduce_async(bucket.view, options_.op, options);
    }
  }

  /// Copies each span of a packed bucket into the packed memory, or back; on a device in one launch.
  void move(Bucket& bucket, bool packs) {
    if (bucket.contiguous || communicator_.size() == 1) return;
    std::vector<DeviceTask> tasks;
    std::size_t first = 0;
    for (std::size_t i = bucket.first; i < bucket.first + bucket.count; ++i) {
      const BufferView& values = reduced_[i];
      const BufferView packed = bucket.view.part(first, values.count);
      first += values.count;
      const BufferView& to = packs ? packed : values;
      const BufferView& from = packs ? values : packed;
      if (device_ != nullptr) {
        tasks.push_back(
            {DeviceTask::Kind::kCopy, to.dtype, to.dtype, ReduceOp::kSum, to.data, from.data, nullptr, to.count, 1.0});
      } else if (values.count > 0) {
        std::memcpy(to.data, from.data, to.size_in_bytes());
      }
    }
    if (device_ != nullptr) device_->launch(tasks, options_.stream);
  }
  void pack(Bucket& bucket) { move(bucket, /*packs=*/true); }
  void unpack(Bucket& bucket) { move(bucket, /*packs=*/false); }

  Communicator communicator_;
  const std::vector<GradientSpan> spans_;
  GradientOptions options_;
  const std::string algorithm_;
  const int exceptions_at_start_ = std::uncaught_exceptions();
  std::vector<std::size_t> tied_;    // per gradient: index of the first gradient of the same memory
  std::vector<BufferView> reduced_;  // memory of the gradients, tied gradients once
  ClaimedMemory memory_;
  Device* device_ = nullptr;  // null: gradients are in host memory
  bool waits_for_device_ = false;
  std::vector<Bucket> buckets_;         // in the order of reduction
  std::vector<std::size_t> bucket_of_;  // per gradient
  std::vector<bool> is_ready_;          // per gradient
  std::size_t next_to_launch_ = 0;
  Seconds exposed_{0};
};

GradientAverager::GradientAverager(Communicator communicator, std::vector<GradientSpan> gradients,
                                   const GradientOptions& options) {
  if (!communicator.valid()) {
    throw InvalidArgument("a gradient averager needs a communicator; this one is empty: never assigned, or moved from");
  }
  state_ = std::make_unique<State>(std::move(communicator), std::move(gradients), options);
}
GradientAverager::~GradientAverager() = default;
GradientAverager::GradientAverager(GradientAverager&&) noexcept = default;
GradientAverager& GradientAverager::operator=(GradientAverager&&) noexcept = default;

GradientAverager::State& GradientAverager::state() const {
  if (!state_) throw InvalidArgument("this GradientAverager was moved from: use the one that it was moved to");
  return *state_;
}

void GradientAverager::ready(std::size_t index) {
  state().ready(index);
}
void GradientAverager::wait() {
  state().wait();
}
std::size_t GradientAverager::bucket_count() const {
  return state().bucket_count();
}
Seconds GradientAverager::exposed() const {
  return state().exposed();
}

}  // namespace farandole
