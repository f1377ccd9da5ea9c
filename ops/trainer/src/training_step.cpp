// SPDX-License-Identifier: Apache-2.0
#include "training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "farandole/internal/deadline.h"
#include "kernels/transfer.h"
#include "program_code.h"
#include "wrong_label.h"

namespace farandole::trainer {
namespace {

// Layout of the sums of a training step.
constexpr std::size_t kLoss = 0, kSamples = 1, kMetrics = 2;

template <class Scalar>
bool is_finite(const Tensor<Scalar>& tensor, std::int64_t sample) {
  const auto elements = static_cast<std::size_t>(tensor.sample_elements());
  const auto values = tensor.host().subspan(static_cast<std::size_t>(sample) * elements, elements);
  return std::ranges::all_of(values, [](Scalar value) { return std::isfinite(value); });
}

/// A communicator of the same replicas whose calls can be captured into graphs. Collective.
Communicator for_graphs(Communicator& communicator) {
  return communicator.duplicate({.device_order = CommunicatorOptions::DeviceOrder::kCaller, .name = "graphs"});
}

}  // namespace

template <class Scalar>
TrainingStep<Scalar>::TrainingStep(Communicator& communicator, Model<Scalar>& model, const Loss<Scalar>& loss,
                                   const MetricSums<Scalar>& metrics, BatchSource<Scalar>& source,
                                   const TrainerOptions& options, const LossScale* loss_scale, StepProfiler* profiler)
    : communicator_(communicator),
      has_outer_calls_(options.graph && options.averaging && communicator.size() > 1 &&
                       !model.execution().space().is_host() && communicator.placement().host_count > 1),
      in_stream_(options.graph && !has_outer_calls_ ? for_graphs(communicator) : communicator),
      model_(model),
      loss_(loss),
      metrics_(metrics),
      source_(source),
      options_(options),
      loss_scale_(loss_scale),
      reducing_(options.averaging && communicator.size() > 1),
      output_gradient_(model.execution().memory()),
      feed_(source, model.execution(), options.graph),
      graphs_(model.execution(), options.graph),
      timer_(model.execution(), options.device_times) {
  if (graphs_.is_on() && reducing_) check_calls_can_be_captured();
  if (reducing_ && !options.deterministic) make_averager();
  pass_.seed = options.seed;
  pass_.step_numbers = graphs_.numbers();
  pass_.profiler = profiler;
  if (options.synchronized_layers) pass_.replicas = &in_stream_;
}

template <class Scalar>
void TrainingStep<Scalar>::check_calls_can_be_captured() const {
  if (has_outer_calls_) {
    if (!options_.synchronized_layers) return;
    raise_on_all(ErrorKind::kUnsupported,
                 "collectives between hosts cannot be captured into graphs, and synchronized layers make them in the "
                 "middle of a forward pass; train without TrainerOptions::graph (--graph), without "
                 "TrainerOptions::synchronized_layers, or on one host");
  }
  if (internals(communicator_).settings().faults.device_fault != "exit") {
    raise_on_all(
        ErrorKind::kUnsupported,
        "after a fault of the job a graph may be launched although its collectives were aborted, so graphs need "
        "FARANDOLE_DEVICE_FAULT=exit; set it, or train without TrainerOptions::graph");
  }
  if (!internals(in_stream_).enqueues_directly()) {
    raise_on_all(
        ErrorKind::kUnsupported,
        "collectives can be captured into graphs in the caller's order only, which FARANDOLE_CHECK=strict and an "
        "MPI that may be called by one thread at a time exclude; train without TrainerOptions::graph");
  }
}

template <class Scalar>
void TrainingStep<Scalar>::make_averager() {
  std::vector<GradientSpan> spans;
  for (const NamedSpan& parameter : model_.parameter_layout()) {
    spans.push_back({model_.gradients().subview(parameter.first, parameter.count), parameter.name});
  }
  // The averager reduces the last entry first, and the batch statistics are known before any gradient.
  if (!model_.batch_statistics().empty()) spans.push_back({model_.batch_statistics(), "batch statistics"});
  // The averager needs a communicator of its own: layers that synchronise use the other communicator during backward.
  averager_.emplace(options_.graph && !has_outer_calls_ ? for_graphs(communicator_) : communicator_.duplicate(),
                    std::move(spans), GradientOptions{.op = ReduceOp::kSum, .stream = model_.execution().stream()});
}

template <class Scalar>
void TrainingStep<Scalar>::run(std::int64_t training_step) {
  timer_.begin_step();
  pass_.training_step = training_step;
  exposed_ = Seconds{0};
  drop_from(training_step);
  if (kept_.size() == checked_) not_finite_.reset();
  sums_.assign(kMetrics + metrics_.size(), 0);
  if (on_device()) clear(model_.execution(), sums());
  const StepSamples samples = source_.samples(training_step);
  begin_graphs(samples);
  feed_.seek(training_step);
  options_.deterministic ? run_deterministic(samples) : run_overlapped(samples);
  if (on_device()) keep_device_sums();
  results_.insert(results_.end(), sums_.begin(), sums_.end());
  kept_.push_back({training_step});
}

template <class Scalar>
StepVotes TrainingStep<Scalar>::check(const StepVotes& votes) {
  const bool proposes = communicator_.rank() == 0 || !reducing_;
  results_.insert(results_.end(), {votes.stop ? 1.0 : 0.0, votes.checkpoint ? 1.0 : 0.0, votes.finish ? 1.0 : 0.0,
                                   proposes ? static_cast<double>(votes.next_check) : 0.0});
  if (on_device()) fetch_device_sums();
  const std::span<double> to_add = std::span(results_).subspan(checked_ * sums_.size());
  if (reducing_) {
    const ProfiledPart part = profiled(StepPart::kAveraging);
    const auto start = Clock::now();
    // Deterministic: continues the tree of each number, see above.
    communicator_.allreduce(to_add, ReduceOp::kSum,
                            options_.deterministic ? CallOptions{.algorithm = "recursive_doubling"} : CallOptions{});
    exposed_ += Clock::now() - start;
  }
  const std::span<const double> sums = to_add.last(4);
  const StepVotes all{.stop = sums[0] > 0,
                      .checkpoint = sums[1] > 0,
                      .finish = sums[2] > 0,
                      .next_check = static_cast<std::int64_t>(sums[3])};
  results_.resize(results_.size() - 4);
  checked_ = kept_.size();
  return all;
}

template <class Scalar>
VectorView<double> TrainingStep<Scalar>::sums() {
  if (!on_device()) return sums_;
  if (step_sums_.count() == 0) {
    const std::size_t rows =
        std::min({kMaxRows, kMaxResults / sums_.size() + 1, static_cast<std::size_t>(options_.check_every)});
    step_sums_ = allocate(model_.execution().memory(), sums_.size(), DType::kF64);
    device_sums_ = allocate(model_.execution().memory(), rows * sums_.size(), DType::kF64);
    loss_scales_ = allocate(model_.execution().memory(), rows * sizeof(LossScale), DType::kU8);
  }
  return {step_sums_.as<double>(), step_sums_.count(), step_sums_.space()};
}

template <class Scalar>
void TrainingStep<Scalar>::keep_device_sums() {
  const Execution& execution = model_.execution();
  device_of(execution).copy(device_sums_.as<double>() + unchecked() * sums_.size(), step_sums_.as<double>(),
                            sums_.size() * sizeof(double), execution.stream());
}

template <class Scalar>
void TrainingStep<Scalar>::keep_loss_scale() {
  if (loss_scale_ == nullptr) return;  // else on a device, because halves are
  const Execution& execution = model_.execution();
  device_of(execution).copy(loss_scales_.as<std::byte>() + (unchecked() - 1) * sizeof(LossScale), loss_scale_,
                            sizeof(LossScale), execution.stream());
}

template <class Scalar>
void TrainingStep<Scalar>::fetch_loss_scales(std::size_t first) {
  if (loss_scale_ == nullptr || first == unchecked()) return;
  std::vector<LossScale> scales(unchecked() - first);
  const std::size_t bytes = scales.size() * sizeof(LossScale);
  copy_now(model_.execution(), BufferView(scales.data(), bytes, DType::kU8),
           ConstBufferView(loss_scales_.as<std::byte>() + first * sizeof(LossScale), bytes, DType::kU8,
                           loss_scales_.space()));
  for (std::size_t i = 0; i < scales.size(); ++i) kept_[checked_ + first + i].loss_scale = scales[i];
}

template <class Scalar>
void TrainingStep<Scalar>::fetch_device_sums() {
  const std::size_t width = sums_.size(), first = std::max(fetched_, checked_) - checked_;
  const VectorView<const double> rows(device_sums_.as<double>(), unchecked() * width, device_sums_.space());
  const auto fetched = to_host<double>(model_.execution(), rows.subview(first * width, rows.size() - first * width));
  double* const to = results_.data() + (checked_ + first) * width;
  for (std::size_t i = 0; i < fetched.size(); ++i) to[i] += fetched[i];
  fetch_loss_scales(first);
  fetched_ = kept_.size();
}

template <class Scalar>
StepResult TrainingStep<Scalar>::result(std::size_t index) const {
  const std::span<const double> sums = std::span(results_).subspan(index * sums_.size(), sums_.size());
  return {.training_step = kept_[index].training_step,
          .loss_sum = sums[kLoss],
          .samples = static_cast<std::int64_t>(sums[kSamples]),
          .metrics = sums.subspan(kMetrics),
          .times = kept_[index].times,
          .loss_scale = kept_[index].loss_scale};
}

template <class Scalar>
void TrainingStep<Scalar>::drop_from(std::int64_t training_step) {
  while (!kept_.empty() && kept_.back().training_step >= training_step) kept_.pop_back();
  results_.resize(kept_.size() * sums_.size());
  checked_ = std::min(checked_, kept_.size());
  fetched_ = std::min(fetched_, kept_.size());
}

template <class Scalar>
std::vector<StepResult> TrainingStep<Scalar>::take() {
  std::vector<StepResult> results;
  for (std::size_t index = 0; index < checked_; ++index) results.push_back(result(index));
  kept_.clear();
  checked_ = fetched_ = 0;
  return results;  // their metrics stay in results_ until the next training step
}

template <class Scalar>
void TrainingStep<Scalar>::begin_graphs(const StepSamples& samples) {
  const bool is_usual = samples.all == source_.samples(0).all;
  std::array<std::int64_t, 1> mode{static_cast<std::int64_t>(graphs_.propose(is_usual))};
  if (graphs_.is_on() && reducing_) communicator_.allreduce(mode, ReduceOp::kMin);
  graphs_.begin(static_cast<StepGraphs::Mode>(mode[0]));
}

template <class Scalar>
std::int64_t TrainingStep<Scalar>::pieces() const {
  // In deterministic mode the last piece is the allreduce, if that can be captured.
  if (!options_.deterministic) return options_.accumulate;
  return options_.micro_batches / communicator_.size() + (has_outer_calls_ ? 0 : 1);
}

template <class Scalar>
template <class Enqueue>
void TrainingStep<Scalar>::run_piece(std::int64_t piece, const Enqueue& enqueue) {
  graphs_.run(static_cast<std::size_t>(piece), enqueue);
  if (graphs_.is_on()) timer_.end(DevicePhase::kGraph);
}

template <class Scalar>
void TrainingStep<Scalar>::run_overlapped(const StepSamples& samples) {
  const std::int64_t own = samples.own.count;
  const double scale = 1.0 / static_cast<double>(options_.averaging ? samples.all : std::max<std::int64_t>(own, 1));
  bool accumulated = false;
  for (std::int64_t index = 0; index < options_.accumulate; ++index) {
    const bool is_last = index + 1 == options_.accumulate;
    // The last micro-batch is empty only if all are empty.
    const bool is_empty = next_micro_batch() == 0;
    if (is_empty && !is_last) continue;
    if (!is_empty) place();
    run_piece(index, [&] {
      if (is_empty) {
        clear(model_.execution(), model_.reducible());
        if (averager_ && !has_outer_calls_) averager_->ready_all();
      } else {
        forward(scale);
        if (is_last) {
          backward_and_average(accumulated);
        } else {
          model_.backward(pass_, batch_->inputs, output_gradient_);
          accumulate(!accumulated);
        }
      }
      end_phase(DevicePhase::kBackward);
      if (is_last && !has_outer_calls_) finish_averaging();
    });
    if (is_last && has_outer_calls_) {
      averager_->ready_all();
      finish_averaging();
    }
    accumulated = !is_empty;
    if (!is_last) feed_.fetch_ahead();
  }
}

template <class Scalar>
void TrainingStep<Scalar>::finish_averaging() {
  if (!averager_) return;
  const ProfiledPart part = profiled(StepPart::kAveraging);
  averager_->wait();
  end_communication();
  exposed_ = averager_->exposed();
}

template <class Scalar>
std::string TrainingStep<Scalar>::find_not_finite(std::int64_t training_step) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  const std::int64_t size = communicator_.size();
  const bool is_here = not_finite_ && not_finite_->training_step == training_step;
  std::array<std::int64_t, 1> found{is_here ? not_finite_->sample * size + communicator_.rank() : kNone};
  if (reducing_) communicator_.allreduce(found, ReduceOp::kMin);
  if (found[0] == kNone) return {};
  return fmt::format("Sample {} of {}", found[0] / size, source_.plan().data_name(static_cast<int>(found[0] % size)));
}

template <class Scalar>
void TrainingStep<Scalar>::backward_and_average(bool has_accumulated) {
  if (has_accumulated) add_accumulated(model_.gradients().size(), model_.batch_statistics().size());
  const auto average = [&](std::size_t index) {
    if (!averager_ || has_outer_calls_) return;
    const ProfiledPart part = profiled(StepPart::kAveraging);
    averager_->ready(index);
  };
  if (!model_.batch_statistics().empty()) average(model_.parameter_layout().size());
  model_.backward(pass_, batch_->inputs, output_gradient_, [&](std::size_t index) {
    const NamedSpan& span = model_.parameter_layout()[index];
    if (has_accumulated) add_accumulated(span.first, span.count);
    average(index);
  });
}

template <class Scalar>
void TrainingStep<Scalar>::accumulate(bool first) {
  const VectorView<Scalar> values = model_.reducible();
  const auto count = static_cast<std::int64_t>(values.size());
  const Kernels<Scalar>& kernels = kernels_of<Scalar>(model_.execution());
  if (accumulated_.count() == 0) accumulated_ = allocate(model_.execution().memory(), values.size(), dtype_of<Scalar>);
  Scalar* const sum = accumulated_.as<Scalar>();
  first ? kernels.copy(count, values.data(), sum) : kernels.add(count, sum, values.data(), sum);
}

template <class Scalar>
void TrainingStep<Scalar>::add_accumulated(std::size_t first, std::size_t count) {
  Scalar* const values = model_.reducible().data() + first;
  kernels_of<Scalar>(model_.execution())
      .add(static_cast<std::int64_t>(count), values, accumulated_.as<Scalar>() + first, values);
}

template <class Scalar>
void TrainingStep<Scalar>::run_deterministic(const StepSamples& samples) {
  const Execution& execution = model_.execution();
  const std::int64_t own = options_.micro_batches / communicator_.size();
  gradient_tree_.start();
  sum_tree_.start();
  for (std::int64_t index = 0; index < own; ++index) {
    clear(execution, sums());  // on a device the samples are counted on, in sums_
    const bool is_empty = next_micro_batch() == 0;
    if (!is_empty) place();
    run_piece(index, [&] {
      if (is_empty) {
        clear(execution, model_.reducible());
      } else {
        forward(1.0 / static_cast<double>(samples.all));
        model_.backward(pass_, batch_->inputs, output_gradient_);
      }
      gradient_tree_.add(execution, model_.reducible());
      sum_tree_.add(execution, sums());
      end_phase(DevicePhase::kBackward);
    });
    if (index + 1 < own) feed_.fetch_ahead();
  }
  if (!reducing_) return;
  const auto reduce = [&] {
    const ProfiledPart part = profiled(StepPart::kAveraging);
    const auto start = Clock::now();
    in_stream_.allreduce(model_.reducible(), ReduceOp::kSum,
                         {.algorithm = "recursive_doubling", .stream = execution.stream()});
    end_communication();
    exposed_ = Clock::now() - start;
  };
  has_outer_calls_ ? reduce() : run_piece(own, reduce);
}

template <class Scalar>
std::int64_t TrainingStep<Scalar>::next_micro_batch() {
  const ProfiledPart part = profiled(StepPart::kInput);
  micro_batch_ = call_program(communicator_, "Dataset::gather", [&] { return &feed_.next(); });
  return micro_batch_->part.count;
}

template <class Scalar>
void TrainingStep<Scalar>::place() {
  pass_.first_sample = micro_batch_->part.first;
  timer_.start();
  call_program(communicator_, "a forward pass", [&] { batch_.emplace(feed_.place()); });
  timer_.end(DevicePhase::kInput);
  sums_[kSamples] += static_cast<double>(micro_batch_->part.count);
}

template <class Scalar>
void TrainingStep<Scalar>::forward(double scale) {
  const Execution& execution = model_.execution();
  const VectorView<double> sums = this->sums();
  const Tensor<Scalar>* outputs = nullptr;
  call_program(communicator_, "a forward pass", [&] {
    outputs = &model_.forward(pass_, batch_->inputs);
    const ProfiledPart part = profiled(StepPart::kLoss);
    Workspace::Scope scope(execution.workspace());
    const VectorView<double> loss = scope.take<double>(1);
    clear(execution, loss);
    name_samples(source_.data_name(), micro_batch_->samples,
                 [&] { loss_.evaluate(execution, *outputs, *batch_, scale, &output_gradient_, loss); });
    if (!on_device() && !std::isfinite(loss.host().front())) note_not_finite();
    kernels_of<Scalar>(execution).add_doubles(1, loss.data(), sums.data() + kLoss);
  });
  if (loss_scale_ != nullptr) {
    kernels_of<Scalar>(execution).scale_by(output_gradient_.size(), &loss_scale_->scale, output_gradient_.data());
  }
  call_program(communicator_, "Metric::add", [&] {
    const ProfiledPart part = profiled(StepPart::kLoss);
    name_samples(source_.data_name(), micro_batch_->samples,
                 [&] { metrics_.add(execution, *outputs, *batch_, sums.subview(kMetrics, metrics_.size())); });
  });
  const auto weight = static_cast<Scalar>(static_cast<double>(micro_batch_->part.count) * scale);
  const VectorView<Scalar> statistics = model_.batch_statistics();
  kernels_of<Scalar>(execution).scale(static_cast<std::int64_t>(statistics.size()), weight, statistics.data());
  end_phase(DevicePhase::kForward);
}

template <class Scalar>
void TrainingStep<Scalar>::note_not_finite() {
  const std::int64_t step = pass_.training_step;
  if (not_finite_ && not_finite_->training_step != step) return;
  const Batch<Scalar>& batch = micro_batch_->batch;
  for (std::int64_t i = 0; i < micro_batch_->part.count; ++i) {
    if (is_finite(batch.inputs, i) && (batch.targets.samples() == 0 || is_finite(batch.targets, i))) continue;
    const std::uint32_t sample = micro_batch_->samples[static_cast<std::size_t>(i)];
    if (!not_finite_ || sample < not_finite_->sample) not_finite_ = {step, sample};
  }
}

template class TrainingStep<float>;
template class TrainingStep<double>;

}  // namespace farandole::trainer
