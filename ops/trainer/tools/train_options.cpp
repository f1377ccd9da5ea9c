// SPDX-License-Identifier: Apache-2.0
#include "train_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <boost/any.hpp>
#include <boost/program_options.hpp>
#include <sstream>
#include <vector>

#include "command_line.h"
#include "farandole/core/error.h"
#include "program.h"
#include "train_option_table.h"

namespace farandole::trainer {
namespace {

namespace po = boost::program_options;
using std::int64_t;

/// Options that may differ from process to process, because they depend on the machine or only rank 0 uses them. The
/// ranks compare all other options.
constexpr std::array<std::string_view, 13> kOfOneProcess{
    "replicas", "expect-ranks", "threads", "loader-threads", "batches-ahead", "data-dir", "json",
    "csv",      "log-steps",    "summary", "quiet",          "help",          "version"};

void translate(const RawOptions& raw, LearningRateOptions& rate) {
  rate.base = raw.rate;
  rate.schedule = parse_learning_rate_schedule(raw.schedule);
  rate.warmup_steps = raw.warmup;
  rate.step_epochs = raw.step_epochs;
  rate.step_factor = raw.step_factor;
  rate.minimum = raw.minimum;
  rate.power = raw.power;
  rate.one_cycle = {.pct_start = raw.pct_start, .div_factor = raw.div_factor, .final_div_factor = raw.final_div_factor};
  rate.plateau = {.factor = raw.plateau_factor, .patience = raw.plateau_patience, .threshold = raw.plateau_threshold};
}

/// Parses "PATTERN:rate=X,decay=X" or "PATTERN:frozen". @throws InvalidArgument
ParameterGroup parse_group(const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(fmt::format(
        "--group '{}' {}; expected a name, or the beginning of names and *, then ':', and 'frozen' or 'rate=X,decay=X'",
        text, why));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) refuse("has no name before a ':'");
  ParameterGroup group{.pattern = text.substr(0, colon)};
  std::istringstream words(text.substr(colon + 1));
  int count = 0;
  for (std::string word; std::getline(words, word, ','); ++count) {
    if (word == "frozen") {
      group.trainable = false;
    } else if (word.starts_with("rate=")) {
      group.rate_factor = tools::parse_decimal(word.substr(5), "--group, rate,");
    } else if (word.starts_with("decay=")) {
      group.weight_decay = tools::parse_decimal(word.substr(6), "--group, decay,");
    } else {
      refuse(fmt::format("has the word '{}'", word));
    }
  }
  if (count == 0) refuse("says nothing about the parameters");
  return group;
}

/// Parses "auto", "dynamic", "none" or a number. @throws InvalidArgument
LossScaleOptions parse_loss_scale(const std::string& text) {
  using Kind = LossScaleOptions::Kind;
  if (text == "auto") return {};
  if (text == "dynamic") return {.kind = Kind::kDynamic};
  if (text == "none") return {.kind = Kind::kNone};
  const double scale = tools::parse_decimal(text, "--loss-scale, beside auto, dynamic and none,");
  if (scale < 1) throw InvalidArgument(fmt::format("--loss-scale is {}; it must be at least 1", text));
  return {.kind = Kind::kFixed, .scale = scale};
}

void translate(const RawOptions& raw, TrainCommand& command) {
  check_values(raw, command);
  command.data.directory = raw.data_directory;
  command.data.samples = raw.samples;
  command.data.seed = static_cast<std::uint64_t>(raw.seed);
  command.top_k = static_cast<int>(raw.top_k);
  command.json_file = raw.json_file;
  command.csv_file = raw.csv_file;
  command.double_precision = raw.precision == "f64";
  command.replicas = static_cast<int>(raw.replicas);
  command.expected_ranks = static_cast<int>(raw.ranks);

  TrainerOptions& training = command.training;
  training.averaging = !raw.alone;
  training.epochs = raw.epochs;
  training.max_steps = raw.max_steps;
  training.global_batch = raw.batch;
  training.accumulate = raw.accumulate;
  training.seed = static_cast<std::uint64_t>(raw.seed);
  training.micro_batches = raw.micro_batches;
  training.clip_norm = raw.clip;
  training.device = parse_compute_device(raw.device);
  training.kernel_threads = static_cast<int>(raw.threads);
  training.evaluate_every = raw.evaluate_every;
  training.optimizer.kind = parse_optimizer(raw.optimizer);
  training.optimizer.momentum = raw.momentum;
  training.optimizer.weight_decay = raw.decay;
  training.optimizer.ema_decay = raw.ema_decay;
  if (raw.precision == "bf16" || raw.precision == "f16") training.compute = parse_dtype(raw.precision);
  training.loss_scale = parse_loss_scale(raw.loss_scale);
  if (raw.master == "f64") training.optimizer.master = DType::kF64;
  translate(raw, training.learning_rate);
  training.synchronized_layers = command.model_options.synchronized_batch_normalization;
  training.checkpoints.directory = raw.checkpoint_directory;
  training.checkpoints.every_epochs = raw.checkpoint_every;
  training.checkpoints.every_steps = raw.checkpoint_every_steps;
  training.checkpoints.every_minutes = raw.checkpoint_every_minutes;
  training.monitor.higher_is_better = training.monitor.value != "loss";
  training.data.threads = static_cast<int>(raw.loader_threads);
  for (const std::string& group : raw.groups) training.optimizer.groups.push_back(parse_group(group));
  training.checkpoints.keep = static_cast<int>(raw.keep);
}

std::string value_text(const boost::any& value) {
  if (const auto* word = boost::any_cast<std::string>(&value)) return *word;
  if (const auto* words = boost::any_cast<std::vector<std::string>>(&value)) {
    return fmt::format("{}", fmt::join(*words, " "));
  }
  if (const auto* whole = boost::any_cast<int64_t>(&value)) return std::to_string(*whole);
  if (const auto* number = boost::any_cast<double>(&value)) return fmt::format("{}", *number);
  if (const auto* flag = boost::any_cast<bool>(&value)) return *flag ? "yes" : "no";
  throw InternalError("an option of a type that has no text");
}

std::vector<SharedFact> shared_options(const tools::OptionTable& table, const po::variables_map& values) {
  std::vector<SharedFact> shared;
  for (const tools::OptionGroup& group : table) {
    for (const auto& option : group.options.options()) {
      const std::string& name = option->long_name();
      if (std::find(kOfOneProcess.begin(), kOfOneProcess.end(), name) != kOfOneProcess.end()) continue;
      shared.push_back({"--" + name, values.contains(name) ? value_text(values[name].value()) : "not given"});
    }
  }
  return shared;
}

/// @param raw, command  set by the options in boost::program_options::notify
tools::Program describe_program(RawOptions& raw, TrainCommand& command) {
  tools::Program program;
  program.name = "farandole-train";
  program.purpose = "train a model on many replicas";
  program.ends_on_signals = true;
  program.description = {
      "Each rank is a replica: it computes the gradients of its part of the global batch, and all replicas take the "
      "same training step with their average. The result does not depend on how the replicas are spread over processes "
      "and threads.",
      "Checkpoints are written whole or not at all, and training goes on from the newest with --resume, on any number "
      "of replicas.",
      "SIGINT (Ctrl-C), SIGTERM and SIGUSR1 end training after the training step at hand, on all ranks: with a "
      "checkpoint if --checkpoint-dir is given, and with the exit status 130, 143 or 75 (put the job into the queue "
      "again, and it goes on with --resume or --resume-if-any). A second signal ends the process at once. With "
      "--no-averaging the first "
      "signal does."};
  add_options(program.options, raw, command);
  tools::add_common_options(program.options.back());
  program.foreign_names = {{"--batch-size", "--global-batch"},
                           {"--batch", "--global-batch"},
                           {"--bs", "--global-batch"},
                           {"--lr", "--learning-rate"},
                           {"--wd", "--weight-decay"},
                           {"--output", "--checkpoint-dir"},
                           {"--output-dir", "--checkpoint-dir"},
                           {"--save-dir", "--checkpoint-dir"},
                           {"--log-file", "--json"},
                           {"--data", "--data-dir"},
                           {"--data-path", "--data-dir"},
                           {"--num-epochs", "--epochs"},
                           {"--steps", "--max-steps"},
                           {"--num-steps", "--max-steps"},
                           {"--num-threads", "--threads"},
                           {"--num-workers", "--loader-threads"},
                           {"--workers", "--loader-threads"},
                           {"--dataset", "--data"},
                           {"--fake-data", "--synthetic"},
                           {"--np", "--replicas"},
                           {"--num-replicas", "--replicas"},
                           {"--dtype", "--precision"},
                           {"--amp", "--precision"},
                           {"--accelerator", "--device"},
                           {"--gpus", "--replicas"},
                           {"--gradient-accumulation-steps", "--accumulate"},
                           {"--grad-clip", "--clip-norm"},
                           {"--max-grad-norm", "--clip-norm"}};
  program.examples = {
      {"farandole-run -np 2 farandole-train --epochs 5 --checkpoint-dir run1", "Two processes, with checkpoints:"},
      {"farandole-run -np 4 farandole-train --epochs 8 --checkpoint-dir run1 --resume", "Go on, with four:"},
      {"farandole-train --model mlp --replicas 2 --deterministic", "Two threads, and the bits of any number of them:"},
      {"farandole-train --model mlp --device auto",
       "All GPUs of this machine, a replica on each; without GPUs the CPU:"}};
  program.see_also = {"farandole-bench", "farandole-info", "farandole-run"};
  return program;
}

}  // namespace

std::optional<TrainCommand> parse_command_line(const std::vector<std::string>& arguments) {
  TrainCommand command;
  RawOptions raw{};
  const tools::Program program = describe_program(raw, command);
  po::variables_map values = tools::parse_options(arguments, program.options, {}, program.foreign_names);
  if (tools::answer(values, program)) return std::nullopt;
  po::notify(values);
  command.shared = shared_options(program.options, values);
  translate(raw, command);
  command.replica_for_each_device = command.training.device != ComputeDevice::kCpu && values["replicas"].defaulted();
  check_effect(values, raw, command);
  return command;
}

}  // namespace farandole::trainer
