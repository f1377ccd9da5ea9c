// SPDX-License-Identifier: Apache-2.0
#include "training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "farandole/internal/deadline.h"
#include "program_code.h"

namespace farandole::trainer {
namespace {

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
                                   BatchSource<Scalar>& source, const TrainerOptions& options)
    : communicator_(communicator),
      model_(model),
      loss_(loss),
      source_(source),
      options_(options),
      reducing_(options.averaging && communicator.size() > 1) {
  if (reducing_ && !options.deterministic) make_averager();
  pass_.seed = options.seed;
  if (options.synchronized_layers) pass_.replicas = &communicator_;
}

template <class Scalar>
double TrainingStep<Scalar>::stop_vote() const {
  if (!options_.stop_requested) return 0;
  return call_program(communicator_, "TrainerOptions::stop_requested", options_.stop_requested) ? 1 : 0;
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
StepResult TrainingStep<Scalar>::run(std::int64_t training_step) {
  pass_.training_step = training_step;
  exposed_ = Seconds{0};
  not_finite_.reset();
  const StepSamples samples = source_.samples(training_step);
  source_.seek(training_step);
  return options_.deterministic ? run_deterministic(samples) : run_overlapped(samples);
}

template <class Scalar>
StepResult TrainingStep<Scalar>::run_overlapped(const StepSamples& samples) {
  const std::int64_t own = samples.own.count;
  const double scale = 1.0 / static_cast<double>(options_.averaging ? samples.all : std::max<std::int64_t>(own, 1));
  // Sums of loss, right answers, samples, votes to stop.
  std::array<double, 4> result{0, 0, static_cast<double>(own), 0};
  bool accumulated = false;
  for (std::int64_t index = 0; index < options_.accumulate; ++index) {
    if (next_micro_batch() == 0) continue;  // the last micro-batch is empty only if all are empty
    const BatchResult partial = forward(scale);
    result[0] += partial.loss_sum;
    result[1] += static_cast<double>(partial.correct);
    if (index + 1 == options_.accumulate) {
      backward_and_average(accumulated);
    } else {
      model_.backward(pass_, micro_batch_->batch.inputs, output_gradient_);
      accumulate(!accumulated);
      accumulated = true;
    }
  }
  if (own == 0) {
    std::fill(model_.reducible().begin(), model_.reducible().end(), Scalar{0});
    if (averager_) averager_->ready_all();
  }
  if (averager_) {
    averager_->wait();
    exposed_ = averager_->exposed();
  }
  result[3] = stop_vote();
  if (averager_) communicator_.allreduce(result, ReduceOp::kSum);
  return {result[0], static_cast<std::int64_t>(result[1]), static_cast<std::int64_t>(result[2]), result[3] > 0};
}

template <class Scalar>
std::string TrainingStep<Scalar>::find_not_finite() {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  const std::int64_t size = communicator_.size();
  std::array<std::int64_t, 1> found{not_finite_ ? *not_finite_ * size + communicator_.rank() : kNone};
  if (reducing_) communicator_.allreduce(found, ReduceOp::kMin);
  if (found[0] == kNone) return {};
  const std::string whose =
      source_.plan().has_own_shards() ? fmt::format("rank {}'s own shard", found[0] % size) : "the training data";
  return fmt::format("Sample {} of {}", found[0] / size, whose);
}

template <class Scalar>
void TrainingStep<Scalar>::backward_and_average(bool add_accumulated) {
  const std::size_t parameters = model_.gradients().size();
  const std::span<const Scalar> accumulated(accumulated_);
  if (add_accumulated) add(model_.batch_statistics(), accumulated.subspan(parameters));
  if (averager_ && !model_.batch_statistics().empty()) averager_->ready(model_.parameter_layout().size());
  model_.backward(pass_, micro_batch_->batch.inputs, output_gradient_, [&](std::size_t index) {
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
StepResult TrainingStep<Scalar>::run_deterministic(const StepSamples& samples) {
  const std::int64_t own = options_.micro_batches / communicator_.size();
  std::array<double, 2> result{};  // loss, right answers
  gradient_tree_.start();
  result_tree_.start();
  for (std::int64_t index = 0; index < own; ++index) {
    result = {0, 0};
    if (next_micro_batch() > 0) {
      const BatchResult partial = forward(1.0 / static_cast<double>(samples.all));
      result = {partial.loss_sum, static_cast<double>(partial.correct)};
      model_.backward(pass_, micro_batch_->batch.inputs, output_gradient_);
    } else {
      std::fill(model_.reducible().begin(), model_.reducible().end(), Scalar{0});
    }
    gradient_tree_.add(model_.reducible());
    result_tree_.add(result);
  }
  std::array<double, 3> total{result[0], result[1], stop_vote()};
  if (reducing_) {
    const auto start = Clock::now();
    const CallOptions tree{.algorithm = "recursive_doubling"};
    communicator_.allreduce(model_.reducible(), ReduceOp::kSum, tree);
    communicator_.allreduce(total, ReduceOp::kSum, tree);
    exposed_ = Clock::now() - start;
  }
  return {total[0], static_cast<std::int64_t>(total[1]), samples.all, total[2] > 0};
}

template <class Scalar>
std::int64_t TrainingStep<Scalar>::next_micro_batch() {
  micro_batch_ = call_program(communicator_, "Dataset::gather", [&] { return &source_.next(); });
  return micro_batch_->part.count;
}

template <class Scalar>
BatchResult TrainingStep<Scalar>::forward(double scale) {
  pass_.first_sample = micro_batch_->part.first;
  const BatchResult result = call_program(communicator_, "a forward pass", [&] {
    const Tensor<Scalar>& outputs = model_.forward(pass_, micro_batch_->batch.inputs);
    return loss_.evaluate(outputs, micro_batch_->batch, scale, &output_gradient_);
  });
  if (!std::isfinite(result.loss_sum)) note_not_finite();
  const auto weight = static_cast<Scalar>(static_cast<double>(micro_batch_->part.count) * scale);
  for (Scalar& statistic : model_.batch_statistics()) statistic *= weight;
  return result;
}

template <class Scalar>
void TrainingStep<Scalar>::note_not_finite() {
  const Batch<Scalar>& batch = micro_batch_->batch;
  for (std::int64_t i = 0; i < micro_batch_->part.count; ++i) {
    if (is_finite(batch.inputs, i) && std::isfinite(batch.weight(i)) &&
        (batch.targets.samples() == 0 || is_finite(batch.targets, i))) {
      continue;
    }
    const std::uint32_t sample = micro_batch_->samples[static_cast<std::size_t>(i)];
    if (!not_finite_ || sample < *not_finite_) not_finite_ = sample;
  }
}

template class TrainingStep<float>;
template class TrainingStep<double>;

}  // namespace farandole::trainer
