// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/any.hpp>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <span>

#include "farandole/core/error.h"
#include "farandole/core/settings.h"
#include "farandole/trainer/models.h"
#include "train_option_table.h"

namespace farandole::trainer {
namespace {

namespace po = boost::program_options;
using std::int64_t;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

void check_range(const char* option, int64_t value, int64_t low, int64_t high = kUnlimited) {
  if (value >= low && value <= high) return;
  const std::string range =
      high == kUnlimited ? fmt::format("at least {}", low) : fmt::format("from {} to {}", low, high);
  throw InvalidArgument(fmt::format("--{} is {}; it must be {}", option, value, range));
}

void check_number(const char* option, double value, bool valid, const char* range) {
  if (!valid || !std::isfinite(value)) {
    throw InvalidArgument(
        fmt::format("--{} is {}; it must be {}{}", option, value, std::isfinite(value) ? "" : "finite and ", range));
  }
}

void check_choice(const char* option, const std::string& value, std::span<const std::string_view> choices) {
  for (const std::string_view choice : choices) {
    if (value == choice) return;
  }
  const auto close = nearest(value, choices);
  throw InvalidArgument(fmt::format("--{} cannot be '{}'; choose one of {}{}", option, value, fmt::join(choices, ", "),
                                    close ? fmt::format(" (did you mean {}?)", *close) : ""));
}

void check_schedule_ranges(const RawOptions& raw) {
  check_number("lr-minimum", raw.minimum, raw.minimum >= 0 && raw.minimum <= raw.rate,
               "at least 0 and at most the learning rate");
  check_number("lr-power", raw.power, raw.power > 0, "greater than 0");
  check_number("lr-pct-start", raw.pct_start, raw.pct_start >= 0 && raw.pct_start < 1, "at least 0 and less than 1");
  check_number("lr-div-factor", raw.div_factor, raw.div_factor >= 1, "at least 1");
  check_number("lr-final-div-factor", raw.final_div_factor, raw.final_div_factor >= 1, "at least 1");
  check_number("lr-plateau-factor", raw.plateau_factor, raw.plateau_factor > 0 && raw.plateau_factor < 1,
               "greater than 0 and less than 1");
  check_number("lr-plateau-threshold", raw.plateau_threshold, raw.plateau_threshold >= 0 && raw.plateau_threshold < 1,
               "at least 0 and less than 1");
}

void check_ranges(const RawOptions& raw) {
  check_range("replicas", raw.replicas, 1, kMaxReplicas);
  check_range("expect-ranks", raw.ranks, 0, 1'000'000);
  check_range("threads", raw.threads, 0, 1024);
  check_range("epochs", raw.epochs, 1, 1'000'000'000);
  check_range("max-steps", raw.max_steps, 0);
  check_range("global-batch", raw.batch, 1, 1'000'000'000);
  check_range("accumulate", raw.accumulate, 1, 1'000'000);
  check_range("micro-batches", raw.micro_batches, 1, 1024);
  check_range("lr-step-epochs", raw.step_epochs, 1);
  check_range("lr-plateau-patience", raw.plateau_patience, 0);
  check_range("warmup-steps", raw.warmup, 0);
  check_range("seed", raw.seed, 0);
  check_range("loader-threads", raw.loader_threads, 0, 1024);
  check_range("samples", raw.samples, 1, 100'000'000);
  check_range("top-k", raw.top_k, 0, 1'000'000);
  check_range("checkpoint-every", raw.checkpoint_every, 0);
  check_range("checkpoint-every-steps", raw.checkpoint_every_steps, 0);
  check_number("checkpoint-every-minutes", raw.checkpoint_every_minutes, raw.checkpoint_every_minutes >= 0,
               "at least 0");
  check_range("keep-checkpoints", raw.keep, 1, 1'000'000);
  check_range("evaluate-every", raw.evaluate_every, 0);
  check_number("learning-rate", raw.rate, raw.rate > 0, "greater than 0");
  check_number("momentum", raw.momentum, raw.momentum >= 0 && raw.momentum < 1, "at least 0 and less than 1");
  check_number("weight-decay", raw.decay, raw.decay >= 0, "at least 0");
  check_number("lr-step-factor", raw.step_factor, raw.step_factor > 0 && raw.step_factor <= 1,
               "greater than 0 and at most 1");
  check_number("clip-norm", raw.clip, raw.clip >= 0, "at least 0");
  check_number("ema-decay", raw.ema_decay, raw.ema_decay >= 0 && raw.ema_decay < 1, "at least 0 and less than 1");
  check_schedule_ranges(raw);
}

void check_ranges(const TrainCommand& command) {
  const ModelOptions& sizes = command.model_options;
  check_range("blocks", sizes.blocks, 1, 1000);
  check_range("units", sizes.units, 1, 65536);
  check_range("heads", sizes.heads, 1, sizes.units);
  check_number("dropout", sizes.dropout, sizes.dropout >= 0 && sizes.dropout < 1, "at least 0 and less than 1");
  const DataCommand& data = command.data;
  check_range("image-size", data.image_size, 8, 4096);
  check_range("text-length", data.text_length, 1, 65536);
  const AugmentationOptions& augmentation = data.augmentation;
  check_range("augment-crop", augmentation.crop_padding, 0, 4096);
  check_range("augment-cutout", augmentation.cutout, 0, 4096);
  check_number("augment-flip", augmentation.flip, augmentation.flip >= 0 && augmentation.flip <= 1, "from 0 to 1");
  check_number("mixup", augmentation.mixup, augmentation.mixup >= 0, "at least 0");
  check_range("batches-ahead", command.training.data.batches_ahead, 1, 1000);
  check_range("check-every", command.training.check_every, 1);
  check_range("compare-every", command.training.compare_every, 0);
  check_range("patience", command.training.monitor.patience, 0);
  check_number("min-delta", command.training.monitor.min_delta, command.training.monitor.min_delta >= 0, "at least 0");
}

}  // namespace

void check_values(const RawOptions& raw, const TrainCommand& command) {
  const std::vector<std::string> names = model_names();
  check_choice("model", command.model, std::vector<std::string_view>(names.begin(), names.end()));
  check_choice("data", command.data.kind, kDataKinds);
  check_choice("precision", raw.precision, std::vector<std::string_view>{"f32", "f64", "bf16", "f16"});
  check_choice("master-precision", raw.master, std::vector<std::string_view>{"model", "f64"});
  check_choice("device", raw.device, std::vector<std::string_view>{"cpu", "cuda", "auto"});
  check_choice("optimizer", raw.optimizer, std::vector<std::string_view>{"sgd", "adam", "adamw"});
  check_choice("lr-schedule", raw.schedule, kSchedules);
  check_ranges(raw);
  check_ranges(command);
}

namespace {

/// Checks options that exclude each other.
void check_choices(const TrainCommand& command) {
  if (command.training.checkpoints.resume && command.training.checkpoints.resume_if_any) {
    throw InvalidArgument("--resume and --resume-if-any: leave one out; --resume needs a checkpoint to go on from");
  }
  if (!command.json_file.empty() && command.json_file == command.csv_file) {
    throw InvalidArgument(
        fmt::format("--json and --csv write to the same file, {}; choose two", command.json_file.string()));
  }
}

}  // namespace

void check_effect(const po::variables_map& values, const RawOptions& raw, const TrainCommand& command) {
  const auto need = [&values](std::initializer_list<const char*> options, bool holds, std::string_view needed) {
    for (const char* option : options) {
      if (!values.contains(option)) continue;
      const po::variable_value& value = values[option];
      const auto* const flag = boost::any_cast<bool>(&value.value());
      const bool given = flag != nullptr ? *flag : !value.defaulted();
      if (given && !holds) throw InvalidArgument(fmt::format("--{} has no effect without {}", option, needed));
    }
  };
  need({"micro-batches"}, command.training.deterministic, "--deterministic");
  need({"momentum", "nesterov"}, raw.optimizer == "sgd", "--optimizer sgd");
  need({"loss-scale"}, raw.precision == "bf16" || raw.precision == "f16", "--precision bf16 or f16");
  need({"lr-step-epochs", "lr-step-factor"}, raw.schedule == "step", "--lr-schedule step");
  need({"lr-power"}, raw.schedule == "polynomial", "--lr-schedule polynomial");
  need({"lr-pct-start", "lr-div-factor", "lr-final-div-factor"}, raw.schedule == "one-cycle",
       "--lr-schedule one-cycle");
  need({"lr-plateau-factor", "lr-plateau-patience", "lr-plateau-threshold"}, raw.schedule == "plateau",
       "--lr-schedule plateau");
  need({"lr-minimum"}, raw.schedule == "cosine" || raw.schedule == "polynomial" || raw.schedule == "plateau",
       "--lr-schedule cosine, polynomial or plateau");
  need({"evaluate-with-ema"}, raw.ema_decay > 0, "--ema-decay");
  need({"sync-batch-norm"}, command.model == "cnn_bn" || command.model.starts_with("resnet"),
       "--model cnn_bn, resnet18 or resnet50, which have batch normalisation");
  need({"blocks", "units", "heads", "dropout"}, command.model == "gpt", "--model gpt");
  const DataCommand& data = command.data;
  need({"image-size"}, data.kind == "images", "--data images");
  need({"text-length"}, data.kind == "text", "--data text");
  need({"samples"}, data.synthetic, "--synthetic");
  need({"augment-crop", "augment-flip", "augment-cutout", "mixup"}, data.kind != "text", "--data of images");
  need({"batches-ahead"}, raw.loader_threads > 0, "--loader-threads");
  if ((command.model == "gpt") != (data.kind == "text")) {
    throw InvalidArgument(fmt::format("--model {} cannot learn --data {}: gpt needs text, and the other models images",
                                      command.model, data.kind));
  }
  if (command.training.profile && command.training.device == ComputeDevice::kCuda) {
    throw InvalidArgument(
        "--profile times layers on the CPU only; without it the last line of a training with --device cuda tells the "
        "times of its phases");
  }
  if (command.training.profile && command.training.graph) {
    throw InvalidArgument(
        "--profile has no times for layers in graphs, which are launched as a whole; leave out --graph");
  }
  need({"profile"}, !command.quiet || !command.json_file.empty(), "--json FILE where --quiet prints nothing");
  check_choices(command);
  if (data.synthetic && values.contains("data-dir")) {
    throw InvalidArgument("--data-dir has no effect with --synthetic");
  }
  if (!data.synthetic && data.kind != "fashion-mnist" && !values.contains("data-dir")) {
    throw InvalidArgument(fmt::format("--data {} needs --data-dir, or --synthetic", data.kind));
  }
  need({"resume", "resume-if-any", "checkpoint-every", "checkpoint-every-steps", "checkpoint-every-minutes",
        "keep-checkpoints", "keep-best"},
       !raw.checkpoint_directory.empty(), "--checkpoint-dir DIR");
  need({"monitor", "min-delta"}, command.training.checkpoints.keep_best || command.training.monitor.patience > 0,
       "--keep-best or --patience");
}

}  // namespace farandole::trainer
