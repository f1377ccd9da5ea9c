// SPDX-License-Identifier: Apache-2.0
#include "trainer_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "batch_plan.h"
#include "farandole/core/error.h"
#include "kernels/kernels.h"
#include "kernels/update_formulas.h"
#include "loss_scaling.h"

namespace farandole::trainer {
namespace {

bool is_power_of_two(std::int64_t value) {
  return value > 0 && std::has_single_bit(static_cast<std::uint64_t>(value));
}

void at_least(const char* what, std::int64_t value, std::int64_t least) {
  if (value < least) throw InvalidArgument(fmt::format("{} is {}; it must be at least {}", what, value, least));
}

void check_deterministic(const TrainerOptions& options, int replicas) {
  if (options.synchronized_layers) {
    throw Unsupported(
        "synchronised batch normalisation is not available in deterministic mode, because it sums over replicas "
        "instead "
        "of micro-batches; use local batch normalisation, whose statistics are averaged over the micro-batches");
  }
  if (!options.averaging) throw InvalidArgument("deterministic mode needs averaging");
  if (options.accumulate != 1) {
    throw InvalidArgument(fmt::format(
        "accumulation of {} micro-batches in deterministic mode, where the number of micro-batches of a global batch "
        "({}) says it already; leave it at 1",
        options.accumulate, options.micro_batches));
  }
  if (!is_power_of_two(replicas)) {
    throw InvalidArgument(fmt::format("deterministic mode needs 1, 2, 4, 8, … replicas; there are {}", replicas));
  }
  if (!is_power_of_two(options.micro_batches) || options.micro_batches < replicas ||
      options.micro_batches > options.global_batch) {
    std::vector<std::string> valid;
    for (std::int64_t count = replicas; count <= options.global_batch && count <= 1024; count *= 2) {
      valid.push_back(std::to_string(count));
    }
    throw InvalidArgument(
        fmt::format("{} micro-batches of a global batch of {} on {} replicas; valid are {}", options.micro_batches,
                    options.global_batch, replicas,
                    valid.empty() ? fmt::format("none: the global batch must have at least {} samples", replicas)
                                  : fmt::format("{}", fmt::join(valid, ", "))));
  }
  if (options.kernel_threads > 1) {
    throw InvalidArgument(
        fmt::format("{} kernel threads in deterministic mode; it needs 1 per replica", options.kernel_threads));
  }
}

void check_batches(const TrainerOptions& options, const TrainingFacts& facts) {
  at_least("the global batch", options.global_batch, 1);
  at_least("accumulation", options.accumulate, 1);
  if (options.global_batch < facts.replicas * options.accumulate) {
    const std::string with = options.accumulate == 1 ? "" : fmt::format(" x {} micro-batches", options.accumulate);
    throw InvalidArgument(
        fmt::format("a global batch of {} samples does not split over {} replicas{}; it must be at least {}",
                    options.global_batch, facts.replicas, with, facts.replicas * options.accumulate));
  }
  const BatchPlan plan(options, facts.training, facts.shards, 0, facts.replicas);
  if (options.synchronized_layers && !options.deterministic && plan.smallest_micro_batch() == 0) {
    const std::string reason =
        plan.has_own_shards()
            ? fmt::format("the smallest shard has {} samples for {} training steps",
                          *std::min_element(facts.shards.begin(), facts.shards.end()), plan.steps_per_epoch())
            : fmt::format("the last global batch of an epoch has {} samples", plan.loader().last_batch());
    const char* const remedy =
        plan.has_own_shards() ? "choose a larger global batch" : "set data.drop_last, or choose another global batch";
    throw InvalidArgument(
        fmt::format("{}, but layers that synchronise need one in each of {} replicas x {} micro-batches; {}", reason,
                    facts.replicas, options.accumulate, remedy));
  }
  at_least("the evaluation batch", options.evaluation_batch, 1);
}

void check_profile(const TrainerOptions& options) {
  if (!options.profile) return;
  if (options.graph) {
    throw InvalidArgument(
        "a training step that is captured into graphs is launched as a whole, so its layers have no times; train "
        "without TrainerOptions::profile (--profile), or without TrainerOptions::graph (--graph)");
  }
  if (options.device == ComputeDevice::kCuda) throw Unsupported(profile_needs_cpu());
}

void check_graph(const TrainerOptions& options) {
  if (!options.graph) return;
  if (options.device == ComputeDevice::kCpu) {
    throw InvalidArgument(
        "graphs are captured on devices only; set TrainerOptions::device to kCuda or kAuto (--device)");
  }
  if (options.data.own_shards) {
    throw InvalidArgument(
        "with shards of its own each rank has other numbers of samples in other training steps, so the ranks cannot "
        "run "
        "graphs in the same steps; train without TrainerOptions::graph, or let the ranks share the data");
  }
}

void check_loss_scale(const TrainerOptions& options, bool computes_in_halves) {
  using Kind = LossScaleOptions::Kind;
  const LossScaleOptions& scale = options.loss_scale;
  const Kind kind = loss_scale_kind(options);
  if (!(scale.scale >= kMinLossScale && scale.scale <= kMaxLossScale)) {
    throw InvalidArgument(
        fmt::format("the loss scale is {}; it must be from {} to {}", scale.scale, kMinLossScale, kMaxLossScale));
  }
  at_least("the number of training steps until the loss scale grows", scale.growth_steps, 1);
  if (kind == Kind::kNone) return;
  if (!computes_in_halves) {
    throw InvalidArgument(
        "a loss scale has an effect in f16 and bf16 only; set TrainerOptions::compute (--precision), or train without");
  }
  if (options.optimizer.kind == OptimizerKind::kOwn) {
    throw Unsupported(
        "an optimizer of your own does not know of loss scales; choose sgd, adam or adamw, or train in bf16 with "
        "LossScaleOptions::Kind::kNone");
  }
}

void check_precision(const TrainerOptions& options, DType model_type) {
  const DType compute = options.compute.value_or(model_type);
  const bool in_halves = is_half(compute);
  if (compute != model_type && !(in_halves && model_type == DType::kF32)) {
    throw InvalidArgument(fmt::format("a model of {} cannot compute in {}; it computes in {}",
                                      farandole::name(model_type), farandole::name(compute),
                                      model_type == DType::kF32 ? "f32, bf16 or f16" : farandole::name(model_type)));
  }
  if (in_halves && options.device == ComputeDevice::kCpu) throw Unsupported(needs_device(compute));
  check_loss_scale(options, in_halves);
}

void check_monitor(const MonitorOptions& monitor, const std::vector<std::string>& metrics) {
  at_least("the monitor's patience", monitor.patience, 0);
  if (!(monitor.min_delta >= 0) || !std::isfinite(monitor.min_delta)) {
    throw InvalidArgument(
        fmt::format("the monitor's smallest change is {}; it must be finite and at least 0", monitor.min_delta));
  }
  std::vector<std::string> known{"loss"};
  known.insert(known.end(), metrics.begin(), metrics.end());
  if (std::find(known.begin(), known.end(), monitor.value) != known.end()) return;
  throw InvalidArgument(fmt::format("the monitor watches '{}', which this training does not compute; it computes {}",
                                    monitor.value, fmt::join(known, ", ")));
}

void check_checkpoints(const CheckpointOptions& checkpoints) {
  at_least("the distance between checkpoints in epochs", checkpoints.every_epochs, 0);
  at_least("the distance between checkpoints in training steps", checkpoints.every_steps, 0);
  if (!(checkpoints.every_minutes >= 0) || !std::isfinite(checkpoints.every_minutes)) {
    throw InvalidArgument(fmt::format("checkpoints every {} minutes; the number must be finite and at least 0",
                                      checkpoints.every_minutes));
  }
  at_least("the number of checkpoints to keep", checkpoints.keep, 1);
  const bool has_directory = !checkpoints.directory.empty();
  if (!has_directory && (checkpoints.every_steps > 0 || checkpoints.every_minutes > 0)) {
    throw InvalidArgument("checkpoints after training steps or minutes need a checkpoint directory");
  }
  if ((checkpoints.resume || checkpoints.resume_if_any) && !has_directory) {
    throw InvalidArgument("resuming needs a checkpoint directory");
  }
  if (checkpoints.keep_best && !has_directory) {
    throw InvalidArgument("keeping the best checkpoint needs a checkpoint directory");
  }
}

}  // namespace

std::string_view name(ComputeDevice device) {
  switch (device) {
    case ComputeDevice::kCpu:
      return "cpu";
    case ComputeDevice::kCuda:
      return "cuda";
    case ComputeDevice::kAuto:
      return "auto";
  }
  throw InternalError("a compute device without a name");
}

ComputeDevice parse_compute_device(std::string_view text) {
  for (const ComputeDevice device : {ComputeDevice::kCpu, ComputeDevice::kCuda, ComputeDevice::kAuto}) {
    if (text == name(device)) return device;
  }
  throw InvalidArgument(fmt::format("there is no device '{}'; choose cpu, cuda or auto", text));
}

std::string needs_device(DType compute) {
  return fmt::format(
      "{} is computed on devices only; train on a device (--device cuda, TrainerOptions::device), or in f32 "
      "(--precision f32, without TrainerOptions::compute)",
      farandole::name(compute));
}

std::string profile_needs_cpu() {
  return "layers are timed on the CPU only; train on it (--device cpu, TrainerOptions::device), or without "
         "TrainerOptions::profile (--profile): TrainerOptions::device_times times the phases of a training step on "
         "devices";
}

void check_data(const Dataset& data, const std::string& what, const Shape& model_input) {
  if (data.shape() == model_input) return;
  throw InvalidArgument(fmt::format("the model takes samples of shape {}, but those of {} are {}",
                                    describe(model_input), what, describe(data.shape())));
}

void check_same_classes(const Dataset& training, const Dataset& data, const std::string& what) {
  const std::vector<std::string>&names = training.class_names(), &others = data.class_names();
  for (std::size_t index = 0; index < std::min(names.size(), others.size()); ++index) {
    if (names[index] == others[index]) continue;
    throw InvalidArgument(
        fmt::format("class {} is '{}' in {}, but '{}' in {}; give the names of the training data's classes to the "
                    "other data, so that a class has the same number in both",
                    index, others[index], what, names[index], kTrainingData));
  }
}

void check(const TrainerOptions& options, const TrainingFacts& facts) {
  at_least("the number of epochs", options.epochs, 1);
  at_least("the limit of training steps", options.max_steps, 0);
  at_least("the distance between evaluations", options.evaluate_every, 0);
  at_least("the number of kernel threads", options.kernel_threads, 0);
  at_least("the distance between checks in training steps", options.check_every, 1);
  at_least("the distance between comparisons of the replicas in epochs", options.compare_every, 0);
  if (!(options.clip_norm >= 0) || !std::isfinite(options.clip_norm)) {
    throw InvalidArgument(fmt::format("a clipping norm of {}; it must be finite and at least 0", options.clip_norm));
  }
  check(options.learning_rate);
  if (options.evaluate_with_ema && options.optimizer.ema_decay == 0) {
    throw InvalidArgument("evaluate_with_ema needs an average of the parameters; ema_decay is 0");
  }
  check_data_options(options, facts.training);
  check_batches(options, facts);
  if (options.deterministic) check_deterministic(options, facts.replicas);
  check_precision(options, facts.model_type);
  check_profile(options);
  check_graph(options);
  check_data(facts.training, kTrainingData, facts.model_input);
  if (facts.test != nullptr) {
    check_data(*facts.test, kTestData, facts.model_input);
    check_same_classes(facts.training, *facts.test, kTestData);
  }
  check_checkpoints(options.checkpoints);
  check_monitor(options.monitor, facts.metrics);
  if (!options.averaging && facts.replicas > 1 && (options.stop_requested || options.monitor.patience > 0)) {
    throw InvalidArgument(
        "without averaging the replicas share nothing in a training step, so they cannot stop together; "
        "leave stop_requested empty, and monitor.patience at 0");
  }
  if (!options.averaging && !options.checkpoints.directory.empty()) {
    throw InvalidArgument("without averaging each replica has a model of its own, which checkpoints cannot keep");
  }
}

}  // namespace farandole::trainer
