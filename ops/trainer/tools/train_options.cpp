// SPDX-License-Identifier: Apache-2.0
#include "train_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/any.hpp>
#include <boost/program_options.hpp>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <span>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/core/settings.h"
#include "program.h"

namespace farandole::trainer {
namespace {

namespace po = boost::program_options;
using std::int64_t;

/// Options that may differ from process to process, because they depend on the machine or only rank 0 uses them. The
/// ranks compare all other options.
constexpr std::array<std::string_view, 10> kOfOneProcess{"replicas", "expect-ranks", "threads", "data-dir", "json",
                                                         "csv",      "log-steps",    "quiet",   "help",     "version"};

constexpr std::array<std::string_view, 6> kSchedules{"constant",   "step",      "cosine",
                                                     "polynomial", "one-cycle", "plateau"};

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

/// Values as Boost parses them, before checks and translation. More than 15 members: one for each option.
struct Raw {
  std::string optimizer, schedule, precision, data_directory, json_file, csv_file, checkpoint_directory;
  int64_t replicas, ranks, threads, keep, epochs, max_steps, batch, accumulate, seed, micro_batches, warmup,
      step_epochs, plateau_patience, evaluate_every, checkpoint_every, checkpoint_every_steps;
  double rate, momentum, decay, clip, step_factor, minimum, power, pct_start, div_factor, final_div_factor,
      plateau_factor, plateau_threshold, ema_decay, checkpoint_every_minutes;
  bool alone;
};

/// Option with a default that --help shows as `shown`, instead of with all digits of a double.
po::typed_value<double>* number(double* into, double fallback, const char* shown) {
  return po::value(into)->default_value(fallback, shown)->value_name("X");
}
po::typed_value<int64_t>* count(int64_t* into, int64_t fallback) {
  return po::value(into)->default_value(fallback)->value_name("N");
}
po::typed_value<std::string>* word(std::string* into, const char* fallback, const char* choices) {
  return po::value(into)->default_value(fallback)->value_name(choices);
}

void add_model_options(po::options_description_easy_init add, Raw& raw, TrainCommand& command) {
  add                                                                                                                //
      ("model", word(&command.model, "cnn", "mlp|cnn|cnn_bn"), "model; cnn_bn has batch normalisation and dropout")  //
      ("data-dir", po::value(&raw.data_directory)->value_name("DIR"),
       fmt::format("directory of Fashion-MNIST's IDX files, gzipped or plain (default {})", kFashionMnistDirectory)
           .c_str())                                                                              //
      ("precision", word(&raw.precision, "f32", "f32|f64"), "type of parameters and arithmetic")  //
      ("sync-batch-norm", po::bool_switch(&command.synchronized_batch_normalization),
       "batch normalisation over all replicas instead of each one's part");
}

void add_training_options(po::options_description_easy_init add, Raw& raw, TrainerOptions& training) {
  add                                                                                                               //
      ("epochs", count(&raw.epochs, 5), "passes over the training data")                                            //
      ("max-steps", count(&raw.max_steps, 0), "stop after so many training steps in all; 0: after the last epoch")  //
      ("global-batch", count(&raw.batch, 128), "samples per training step, all replicas together")                  //
      ("accumulate", count(&raw.accumulate, 1), "micro-batches that each replica computes its part in")             //
      ("optimizer", word(&raw.optimizer, "sgd", "sgd|adam|adamw"), "update rule")                                   //
      ("momentum", number(&raw.momentum, 0.9, "0.9"), "momentum of sgd, in [0, 1)")                                 //
      ("nesterov", po::bool_switch(&training.optimizer.nesterov), "Nesterov's form of momentum")                    //
      ("weight-decay", number(&raw.decay, 0, "0"), "weight decay; not of biases and normalisation")                 //
      ("ema-decay", number(&raw.ema_decay, 0, "0"),
       "decay of the parameters' moving average, in [0, 1), such as 0.999; 0: no average")  //
      ("evaluate-with-ema", po::bool_switch(&training.evaluate_with_ema),
       "evaluate with the average instead of the parameters")                                   //
      ("clip-norm", number(&raw.clip, 0, "0"), "limit of the gradients' global norm; 0: none")  //
      ("seed", count(&raw.seed, 1), "of initial values, shuffling and dropout");
}

void add_schedule_options(po::options_description_easy_init add, Raw& raw, LearningRateOptions& rate) {
  add                                                                                             //
      ("learning-rate", number(&raw.rate, 0.05, "0.05"), "learning rate")                         //
      ("warmup-steps", count(&raw.warmup, 0), "training steps in which the rate rises linearly")  //
      ("scale-learning-rate", po::bool_switch(&rate.scale_by_replicas),
       "multiply the learning rate by the number of replicas")  //
      ("lr-schedule", word(&raw.schedule, "constant", "NAME"),
       fmt::format("course of the learning rate: {}", fmt::join(kSchedules, ", ")).c_str())                          //
      ("lr-minimum", number(&raw.minimum, 0, "0"), "cosine, polynomial, plateau: lowest rate")                       //
      ("lr-step-epochs", count(&raw.step_epochs, 10), "step: epochs between drops")                                  //
      ("lr-step-factor", number(&raw.step_factor, 0.1, "0.1"), "step: factor of each drop, in (0, 1]")               //
      ("lr-power", number(&raw.power, 1, "1"), "polynomial: power of the remaining fraction of the training steps")  //
      ("lr-pct-start", number(&raw.pct_start, 0.3, "0.3"),
       "one-cycle: fraction of the training steps in which the rate rises, in [0, 1)")                            //
      ("lr-div-factor", number(&raw.div_factor, 25, "25"), "one-cycle: the first rate is the learning rate / X")  //
      ("lr-final-div-factor", number(&raw.final_div_factor, 1e4, "1e4"),
       "one-cycle: the last rate is the first rate / X")  //
      ("lr-plateau-factor", number(&raw.plateau_factor, 0.1, "0.1"),
       "plateau: factor of each drop, in (0, 1)")  //
      ("lr-plateau-patience", count(&raw.plateau_patience, 10),
       "plateau: losses without progress that are tolerated; test losses, or training losses without evaluations")  //
      ("lr-plateau-threshold", number(&raw.plateau_threshold, 1e-4, "1e-4"),
       "plateau: progress is a loss below the best one * (1 - X), in [0, 1)");
}

void add_job_options(po::options_description_easy_init add, Raw& raw, TrainCommand& command) {
  add                                                                                                               //
      ("replicas", count(&raw.replicas, 1), "replicas per process, as threads; farandole-run -np multiplies them")  //
      ("expect-ranks", count(&raw.ranks, 0), "refuse to start unless there are so many replicas in all; 0: any")    //
      ("threads", count(&raw.threads, 0), "kernel threads per replica; 0: cores / local replicas")                  //
      ("deterministic", po::bool_switch(&command.training.deterministic),
       "same bits on 1, 2, 4, 8 replicas of one type of machine")  //
      ("micro-batches", count(&raw.micro_batches, 8),
       "deterministic: parts of a global batch, a power of two that the replicas divide")  //
      ("no-averaging", po::bool_switch(&raw.alone),
       "each replica trains a model of its own: only to measure what communication costs");
}

void add_output_options(po::options_description_easy_init add, Raw& raw, TrainCommand& command) {
  MonitorOptions& monitor = command.training.monitor;
  add                                                                                                           //
      ("checkpoint-dir", po::value(&raw.checkpoint_directory)->value_name("DIR"), "where to keep checkpoints")  //
      ("checkpoint-every", count(&raw.checkpoint_every, 1),
       "epochs between checkpoints, 0: none of epochs; one more at the end")  //
      ("checkpoint-every-steps", count(&raw.checkpoint_every_steps, 0),
       "training steps between further checkpoints; 0: none")  //
      ("checkpoint-every-minutes", number(&raw.checkpoint_every_minutes, 0, "0"),
       "minutes after which there is a new checkpoint at the latest; 0: any time")   //
      ("keep-checkpoints", count(&raw.keep, 3), "newest checkpoints that are kept")  //
      ("keep-best", po::bool_switch(&command.training.checkpoints.keep_best),
       "also keep the checkpoint of the best epoch; the link DIR/best names it")  //
      ("resume", po::bool_switch(&command.training.checkpoints.resume),
       "go on from the newest whole checkpoint, with any number of replicas")                              //
      ("evaluate-every", count(&raw.evaluate_every, 1), "epochs between evaluations; 0: only at the end")  //
      ("monitor", po::value(&monitor.value)->default_value("loss")->value_name("NAME"),
       "result that tells which epoch is the best: loss, or accuracy; of the test set")  //
      ("patience", count(&monitor.patience, 0),
       "end the training after so many epochs in a row that are not better than the best one; 0: never")         //
      ("min-delta", number(&monitor.min_delta, 0, "0"), "smallest change of the result that counts as better")   //
      ("json", po::value(&raw.json_file)->value_name("FILE"), "write a JSON line per epoch and one at the end")  //
      ("csv", po::value(&raw.csv_file)->value_name("FILE"), "write a row per epoch, comma-separated")            //
      ("log-steps", po::bool_switch(&command.log_steps),
       "also a JSON line per training step, to FILE or standard output")  //
      ("quiet", po::bool_switch(&command.quiet), "print nothing but errors");
}

void check_range(const char* option, int64_t value, int64_t low, int64_t high = kUnlimited) {
  if (value >= low && value <= high) return;
  const std::string range =
      high == kUnlimited ? fmt::format("at least {}", low) : fmt::format("from {} to {}", low, high);
  throw InvalidArgument(fmt::format("--{} is {}; it must be {}", option, value, range));
}

void check_number(const char* option, double value, bool valid, const char* range) {
  if (!valid || !std::isfinite(value)) {
    throw InvalidArgument(fmt::format("--{} is {}; it must be {}", option, value, range));
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

void check_schedule_ranges(const Raw& raw) {
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

void check_ranges(const Raw& raw) {
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

/// Throws if an option was given that would have no effect.
void check_effect(const po::variables_map& values, const Raw& raw, const TrainCommand& command) {
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
  need({"lr-step-epochs", "lr-step-factor"}, raw.schedule == "step", "--lr-schedule step");
  need({"lr-power"}, raw.schedule == "polynomial", "--lr-schedule polynomial");
  need({"lr-pct-start", "lr-div-factor", "lr-final-div-factor"}, raw.schedule == "one-cycle",
       "--lr-schedule one-cycle");
  need({"lr-plateau-factor", "lr-plateau-patience", "lr-plateau-threshold"}, raw.schedule == "plateau",
       "--lr-schedule plateau");
  need({"lr-minimum"}, raw.schedule == "cosine" || raw.schedule == "polynomial" || raw.schedule == "plateau",
       "--lr-schedule cosine, polynomial or plateau");
  need({"evaluate-with-ema"}, raw.ema_decay > 0, "--ema-decay");
  need({"sync-batch-norm"}, command.model == "cnn_bn", "--model cnn_bn, which alone has batch normalisation");
  need({"resume", "checkpoint-every", "checkpoint-every-steps", "checkpoint-every-minutes", "keep-checkpoints",
        "keep-best"},
       !raw.checkpoint_directory.empty(), "--checkpoint-dir DIR");
  need({"monitor", "min-delta"}, command.training.checkpoints.keep_best || command.training.monitor.patience > 0,
       "--keep-best or --patience");
}

void translate(const Raw& raw, LearningRateOptions& rate) {
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

void translate(const Raw& raw, TrainCommand& command) {
  check_ranges(raw);
  const std::vector<std::string> names = model_names();
  check_choice("model", command.model, std::vector<std::string_view>(names.begin(), names.end()));
  check_choice("precision", raw.precision, std::vector<std::string_view>{"f32", "f64"});
  check_choice("optimizer", raw.optimizer, std::vector<std::string_view>{"sgd", "adam", "adamw"});
  check_choice("lr-schedule", raw.schedule, kSchedules);
  command.data_directory = raw.data_directory;
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
  training.kernel_threads = static_cast<int>(raw.threads);
  training.evaluate_every = raw.evaluate_every;
  training.optimizer.kind = parse_optimizer(raw.optimizer);
  training.optimizer.momentum = raw.momentum;
  training.optimizer.weight_decay = raw.decay;
  training.optimizer.ema_decay = raw.ema_decay;
  translate(raw, training.learning_rate);
  training.synchronized_layers = command.synchronized_batch_normalization;
  training.checkpoints.directory = raw.checkpoint_directory;
  training.checkpoints.every_epochs = raw.checkpoint_every;
  training.checkpoints.every_steps = raw.checkpoint_every_steps;
  training.checkpoints.every_minutes = raw.checkpoint_every_minutes;
  training.monitor.higher_is_better = training.monitor.value == "accuracy";
  training.checkpoints.keep = static_cast<int>(raw.keep);
}

std::string value_text(const boost::any& value) {
  if (const auto* word = boost::any_cast<std::string>(&value)) return *word;
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
tools::Program describe_program(Raw& raw, TrainCommand& command) {
  tools::Program program;
  program.name = "farandole-train";
  program.purpose = "train a model on Fashion-MNIST on many replicas";
  program.ends_on_signals = true;
  program.description = {
      "Each rank is a replica: it computes the gradients of its part of the global batch, and all replicas take the "
      "same training step with their average. The result does not depend on how the replicas are spread over processes "
      "and threads.",
      "Checkpoints are written whole or not at all, and training goes on from the newest with --resume, on any number "
      "of replicas.",
      "SIGINT (Ctrl-C), SIGTERM and SIGUSR1 end training after the training step at hand, on all ranks: with a "
      "checkpoint if --checkpoint-dir is given, and with the exit status 130, 143 or 75 (put the job into the queue "
      "again, and it goes on with --resume). A second signal ends the process at once. With --no-averaging the first "
      "signal does."};
  const auto add_group = [&program](const char* title) -> tools::OptionGroup& {
    return program.options.emplace_back(title);
  };
  add_model_options(add_group("Model and data").options.add_options(), raw, command);
  add_training_options(add_group("Training").options.add_options(), raw, command.training);
  add_schedule_options(add_group("Learning rate").options.add_options(), raw, command.training.learning_rate);
  add_job_options(add_group("Replicas").options.add_options(), raw, command);
  add_output_options(add_group("Checkpoints and output").options.add_options(), raw, command);
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
                           {"--num-workers", "--threads"},
                           {"--np", "--replicas"},
                           {"--num-replicas", "--replicas"},
                           {"--dtype", "--precision"},
                           {"--gradient-accumulation-steps", "--accumulate"},
                           {"--grad-clip", "--clip-norm"},
                           {"--max-grad-norm", "--clip-norm"}};
  program.examples = {
      {"farandole-run -np 2 farandole-train --epochs 5 --checkpoint-dir run1", "Two processes, with checkpoints:"},
      {"farandole-run -np 4 farandole-train --epochs 8 --checkpoint-dir run1 --resume", "Go on, with four:"},
      {"farandole-train --model mlp --replicas 2 --deterministic", "Two threads, and the bits of any number of them:"}};
  program.see_also = {"farandole-bench", "farandole-info", "farandole-run"};
  return program;
}

}  // namespace

std::optional<TrainCommand> parse_command_line(const std::vector<std::string>& arguments) {
  TrainCommand command;
  Raw raw{};
  const tools::Program program = describe_program(raw, command);
  po::variables_map values = tools::parse_options(arguments, program.options, {}, program.foreign_names);
  if (tools::answer(values, program)) return std::nullopt;
  po::notify(values);
  command.shared = shared_options(program.options, values);
  translate(raw, command);
  check_effect(values, raw, command);
  return command;
}

}  // namespace farandole::trainer
