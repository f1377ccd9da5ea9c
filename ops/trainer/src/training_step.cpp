// SPDX-License-Identifier: Apache-2.0
#include "training_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "farandole/internal/deadline.h"
#include "program_code.h"

namespace farandole::trainer {
namespace {

// Layout of the sums of a training step.
constexpr std::size_t kLoss = 0, kSamples = 1, kStopVotes = 2, kCheckpointVotes = 3, kMetrics = 4;

template <class Scalar>
void add(std::span<Scalar> sum, std::span<const Scalar> more) {
  Scalar* to = sum.data();
  const Scalar* from = more.data();
  for (std::size_t i = 0; i < sum.size(); ++i) to[i] += from[i];
}

template <class Scalar>
bool is_finite(const Tensor<Scalar>& tensor, std::int64_t sample) {
  const Scalar* const first = tensor.data() + sample * tensor.sample_elements();
  return std::all_of(first, first + tensor.sample_elements(), [](Scalar value) { return std::isfinite(value); });
}

}  // namespace

template <class Scalar>
TrainingStep<Scalar>::TrainingStep(Communicator& communicator, Model<Scalar>& model, const Loss<Scalar>& loss,
                                   const MetricSums<Scalar>& metrics, const Dataset& data,
                                   const TrainerOptions& options)
    : communicator_(communicator),
      model_(model),
      loss_(loss),
      metrics_(metrics),
      data_(data),
      options_(options),
      reducing_(options.averaging && communicator.size() > 1) {
  if (reducing_ && !options.deterministic) make_averager();
  pass_.seed = options.seed;
  if (options.synchronized_layers) pass_.replicas = &communicator_;
}

template <class Scalar>
void TrainingStep<Scalar>::make_averager() {
  std::vector<GradientSpan> spans;
  for (const NamedSpan& parameter : model_.parameter_layout()) {
    spans.push_back({model_.gradients().subspan(parameter.first, parameter.count), parameter.name});
  }
  // The averager reduces the last entry first, and the batch statistics are known before any gradient.
  if (!model_.batch_statistics().empty()) spans.push_back({model_.batch_statistics(), "batch statistics"});
  // The averager needs a communicator of its own: layers that synchronise use the other communicator during backward.
  averager_.emplace(communicator_.duplicate(), std::move(spans), GradientOptions{.op = ReduceOp::kSum});
}

template <class Scalar>
StepResult TrainingStep<Scalar>::run(std::span<const std::uint32_t> batch, std::int64_t training_step,
                                     const std::function<StepVotes()>& vote) {
  pass_.training_step = training_step;
  exposed_ = Seconds{0};
  sums_.assign(kMetrics + metrics_.size(), 0);
  options_.deterministic ? run_deterministic(batch, vote) : run_overlapped(batch, vote);
  return {.loss_sum = sums_[kLoss],
          .samples = static_cast<std::int64_t>(sums_[kSamples]),
          .votes = {.stop = sums_[kStopVotes] > 0, .checkpoint = sums_[kCheckpointVotes] > 0},
          .metrics = std::span(sums_).subspan(kMetrics)};
}

template <class Scalar>
void TrainingStep<Scalar>::take_votes(const std::function<StepVotes()>& vote) {
  const StepVotes votes = vote();
  sums_[kStopVotes] = votes.stop ? 1 : 0;
  sums_[kCheckpointVotes] = votes.checkpoint ? 1 : 0;
}

template <class Scalar>
void TrainingStep<Scalar>::run_overlapped(std::span<const std::uint32_t> batch,
                                          const std::function<StepVotes()>& vote) {
  const auto all = static_cast<std::int64_t>(batch.size());
  const Range own = part_of(all, communicator_.size(), communicator_.rank());
  const double scale = 1.0 / static_cast<double>(options_.averaging ? all : std::max<std::int64_t>(own.count, 1));
  bool accumulated = false;
  for (std::int64_t index = 0; index < options_.accumulate; ++index) {
    Range part = part_of(own.count, options_.accumulate, index);
    if (part.count == 0) continue;  // the last micro-batch is empty only if all are empty
    part.first += own.first;
    forward(batch, {part, scale});
    if (index + 1 == options_.accumulate) {
      backward_and_average(accumulated);
    } else {
      model_.backward(pass_, micro_batch_.inputs, output_gradient_);
      accumulate(!accumulated);
      accumulated = true;
    }
  }
  if (own.count == 0) {
    std::fill(model_.reducible().begin(), model_.reducible().end(), Scalar{0});
    if (averager_) averager_->ready_all();
  }
  if (averager_) {
    averager_->wait();
    exposed_ = averager_->exposed();
  }
  take_votes(vote);
  if (averager_) communicator_.allreduce(sums_, ReduceOp::kSum);
}

template <class Scalar>
std::optional<std::uint32_t> TrainingStep<Scalar>::find_not_finite(std::span<const std::uint32_t> batch) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  const Range own = part_of(static_cast<std::int64_t>(batch.size()), communicator_.size(), communicator_.rank());
  const auto samples = batch.subspan(static_cast<std::size_t>(own.first), static_cast<std::size_t>(own.count));
  call_program(communicator_, "Dataset::gather", [&] { data_.gather(samples, micro_batch_); });
  std::array<std::int64_t, 1> found{kNone};
  for (std::int64_t i = 0; i < own.count; ++i) {
    if (is_finite(micro_batch_.inputs, i) && std::isfinite(micro_batch_.weight(i)) &&
        (micro_batch_.targets.samples() == 0 || is_finite(micro_batch_.targets, i))) {
      continue;
    }
    found[0] = std::min<std::int64_t>(found[0], samples[static_cast<std::size_t>(i)]);
  }
  if (reducing_) communicator_.allreduce(found, ReduceOp::kMin);
  return found[0] == kNone ? std::nullopt : std::optional(static_cast<std::uint32_t>(found[0]));
}

template <class Scalar>
void TrainingStep<Scalar>::backward_and_average(bool add_accumulated) {
  const std::size_t parameters = model_.gradients().size();
  const std::span<const Scalar> accumulated(accumulated_);
  if (add_accumulated) add(model_.batch_statistics(), accumulated.subspan(parameters));
  if (averager_ && !model_.batch_statistics().empty()) averager_->ready(model_.parameter_layout().size());
  model_.backward(pass_, micro_batch_.inputs, output_gradient_, [&](std::size_t index) {
    const NamedSpan& span = model_.parameter_layout()[index];
    if (add_accumulated) {
      add(model_.gradients().subspan(span.first, span.count), accumulated.subspan(span.first, span.count));
    }
    if (averager_) averager_->ready(index);
  });
}

template <class Scalar>
void TrainingStep<Scalar>::accumulate(bool first) {
  const std::span<Scalar> values = model_.reducible();
  if (first) {
    accumulated_.assign(values.begin(), values.end());
  } else {
    add(std::span(accumulated_), std::span<const Scalar>(values));
  }
}

template <class Scalar>
void TrainingStep<Scalar>::run_deterministic(std::span<const std::uint32_t> batch,
                                             const std::function<StepVotes()>& vote) {
  const auto all = static_cast<std::int64_t>(batch.size());
  const std::int64_t own = options_.micro_batches / communicator_.size();
  gradient_tree_.start();
  sum_tree_.start();
  for (std::int64_t index = 0; index < own; ++index) {
    const Range part = part_of(all, options_.micro_batches, communicator_.rank() * own + index);
    std::fill(sums_.begin(), sums_.end(), 0.0);
    if (part.count > 0) {
      forward(batch, {part, 1.0 / static_cast<double>(all)});
      model_.backward(pass_, micro_batch_.inputs, output_gradient_);
    } else {
      std::fill(model_.reducible().begin(), model_.reducible().end(), Scalar{0});
    }
    gradient_tree_.add(model_.reducible());
    sum_tree_.add(sums_);
  }
  take_votes(vote);
  if (reducing_) {
    const auto start = Clock::now();
    const CallOptions tree{.algorithm = "recursive_doubling"};
    communicator_.allreduce(model_.reducible(), ReduceOp::kSum, tree);
    communicator_.allreduce(sums_, ReduceOp::kSum, tree);
    exposed_ = Clock::now() - start;
  }
}

template <class Scalar>
void TrainingStep<Scalar>::forward(std::span<const std::uint32_t> batch, const MicroBatch& part) {
  const auto samples =
      batch.subspan(static_cast<std::size_t>(part.samples.first), static_cast<std::size_t>(part.samples.count));
  call_program(communicator_, "Dataset::gather", [&] { data_.gather(samples, micro_batch_); });
  pass_.first_sample = part.samples.first;
  const Tensor<Scalar>* outputs = nullptr;
  call_program(communicator_, "a forward pass", [&] {
    outputs = &model_.forward(pass_, micro_batch_.inputs);
    sums_[kLoss] += loss_.evaluate(*outputs, micro_batch_, part.scale, &output_gradient_);
  });
  call_program(communicator_, "Metric::add",
               [&] { metrics_.add(*outputs, micro_batch_, std::span(sums_).subspan(kMetrics)); });
  sums_[kSamples] += static_cast<double>(part.samples.count);
  const auto weight = static_cast<Scalar>(static_cast<double>(part.samples.count) * part.scale);
  for (Scalar& statistic : model_.batch_statistics()) statistic *= weight;
}

template class TrainingStep<float>;
template class TrainingStep<double>;

}  // namespace farandole::trainer
