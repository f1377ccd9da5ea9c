// SPDX-License-Identifier: Apache-2.0
#include "shared_facts.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

std::string text(bool value) {
  return value ? "yes" : "no";
}
std::string text(std::int64_t value) {
  return std::to_string(value);
}
std::string text(std::uint64_t value) {
  return std::to_string(value);
}
std::string text(int value) {
  return std::to_string(value);
}
/// The shortest text that parses to the same number.
std::string text(double value) {
  return fmt::format("{}", value);
}
std::string text(const std::string& value) {
  return value;
}
std::string text(OptimizerKind kind) {
  return std::string(name(kind));
}
std::string text(LearningRateSchedule schedule) {
  return std::string(name(schedule));
}
std::string text(LossScaleOptions::Kind kind) {
  switch (kind) {
    case LossScaleOptions::Kind::kAutomatic:
      return "automatic";
    case LossScaleOptions::Kind::kNone:
      return "none";
    case LossScaleOptions::Kind::kFixed:
      return "fixed";
    case LossScaleOptions::Kind::kDynamic:
      return "dynamic";
  }
  throw InternalError("a loss scale without a name");
}
std::string text(const std::filesystem::path& path) {
  return fmt::format("'{}'", path.string());
}

std::string text(const ParameterGroup& group) {
  const auto& [pattern, rate_factor, weight_decay, trainable] = group;
  const std::string decay = weight_decay ? fmt::format(", weight decay {}", *weight_decay) : "";
  return fmt::format("'{}': rate factor {}{}{}", pattern, rate_factor, decay, trainable ? "" : ", frozen");
}
std::string text(const std::vector<ParameterGroup>& groups) {
  std::vector<std::string> texts;
  for (const ParameterGroup& group : groups) texts.push_back(text(group));
  return groups.empty() ? "none" : fmt::format("{}", fmt::join(texts, "; "));
}

/// Adds the options of a structure, each by its name.
class OptionFacts {
 public:
  OptionFacts(std::vector<SharedFact>& facts, std::string_view parent) : facts_(facts), parent_(parent) {}

  template <class Value>
  void add(std::string_view option, const Value& value) {
    facts_.push_back({fmt::format("TrainerOptions::{}{}", parent_, option), text(value)});
  }

 private:
  std::vector<SharedFact>& facts_;
  std::string_view parent_;
};

// Each function destructures its options completely, so that the code does not compile until a new option is listed
// here: as an option that the ranks compare, or as an option that may differ from rank to rank.

void add_options(std::vector<SharedFact>& facts, const OptimizerOptions& options) {
  const auto& [kind, weight_decay, momentum, nesterov, beta1, beta2, epsilon, groups, ema_decay, master, own] = options;
  (void)own;  // see facts_of_rule
  OptionFacts group(facts, "optimizer.");
  group.add("kind", kind);
  group.add("weight_decay", weight_decay);
  group.add("momentum", momentum);
  group.add("nesterov", nesterov);
  group.add("beta1", beta1);
  group.add("beta2", beta2);
  group.add("epsilon", epsilon);
  group.add("groups", groups);
  group.add("ema_decay", ema_decay);
  group.add("master", master ? std::string(name(*master)) : "the model's type");
}

void add_options(std::vector<SharedFact>& facts, const LearningRateOptions& options) {
  const auto& [base, schedule, warmup_steps, step_factor, step_epochs, scale_by_replicas, minimum, power, one_cycle,
               plateau, own] = options;
  (void)own;  // `schedule` tells whether there is a function; TrainingRate compares the rates that it returns
  OptionFacts group(facts, "learning_rate.");
  group.add("base", base);
  group.add("schedule", schedule);
  group.add("warmup_steps", warmup_steps);
  group.add("step_factor", step_factor);
  group.add("step_epochs", step_epochs);
  group.add("scale_by_replicas", scale_by_replicas);
  group.add("minimum", minimum);
  group.add("power", power);
  const auto& [pct_start, div_factor, final_div_factor] = one_cycle;
  group.add("one_cycle.pct_start", pct_start);
  group.add("one_cycle.div_factor", div_factor);
  group.add("one_cycle.final_div_factor", final_div_factor);
  const auto& [factor, patience, threshold] = plateau;
  group.add("plateau.factor", factor);
  group.add("plateau.patience", patience);
  group.add("plateau.threshold", threshold);
}

void add_options(std::vector<SharedFact>& facts, const CheckpointOptions& options) {
  const auto& [directory, every_epochs, every_steps, every_minutes, keep, keep_best, resume, resume_if_any] = options;
  OptionFacts group(facts, "checkpoints.");
  group.add("directory", directory);
  group.add("every_epochs", every_epochs);
  group.add("every_steps", every_steps);
  group.add("every_minutes", every_minutes);
  group.add("keep", keep);
  group.add("keep_best", keep_best);
  group.add("resume", resume);
  group.add("resume_if_any", resume_if_any);
}

void add_options(std::vector<SharedFact>& facts, const DataOptions& options) {
  const auto& [threads, batches_ahead, drop_last, own_shards] = options;
  (void)threads, (void)batches_ahead;  // depend on the machine
  OptionFacts group(facts, "data.");
  group.add("drop_last", drop_last);
  group.add("own_shards", own_shards);
}

void add_options(std::vector<SharedFact>& facts, const MonitorOptions& options) {
  const auto& [value, higher_is_better, min_delta, patience] = options;
  OptionFacts group(facts, "monitor.");
  group.add("value", value);
  group.add("higher_is_better", higher_is_better);
  group.add("min_delta", min_delta);
  group.add("patience", patience);
}

void add_layout(std::vector<SharedFact>& facts, const char* kind, const std::vector<NamedSpan>& layout) {
  for (const NamedSpan& span : layout) {
    facts.push_back({fmt::format("{} '{}' of the model", kind, span.name),
                     fmt::format("{}{}", describe(span.shape), span.decays ? ", decays" : "")});
  }
}

}  // namespace

std::vector<SharedFact> facts_of(const TrainerOptions& options) {
  const auto& [global_batch, epochs, max_steps, optimizer, learning_rate, clip_norm, accumulate, seed, initialize,
               deterministic, micro_batches, synchronized_layers, averaging, device, compute, loss_scale, graph,
               device_times, profile, kernel_threads, evaluate_every, evaluation_batch, evaluate_with_ema, check_every,
               compare_every, checkpoints, data, monitor, before_epoch, before_step, on_step, on_epoch,
               before_checkpoint, on_checkpoint, stop_requested] = options;
  // Options that may differ from rank to rank: the machine's cores, and the program's callbacks.
  (void)kernel_threads, (void)before_epoch, (void)before_step, (void)on_step, (void)on_epoch, (void)before_checkpoint,
      (void)on_checkpoint, (void)stop_requested;
  std::vector<SharedFact> facts;
  OptionFacts group(facts, "");
  group.add("global_batch", global_batch);
  group.add("epochs", epochs);
  group.add("max_steps", max_steps);
  group.add("device", std::string(name(device)));
  group.add("compute", compute ? std::string(name(*compute)) : "the model's type");
  const auto& [kind, scale, growth_steps] = loss_scale;
  group.add("loss_scale.kind", text(kind));
  group.add("loss_scale.scale", scale);
  group.add("loss_scale.growth_steps", growth_steps);
  group.add("graph", graph);
  group.add("device_times", device_times);
  group.add("profile", profile);
  add_options(facts, optimizer);
  add_options(facts, learning_rate);
  group.add("clip_norm", clip_norm);
  group.add("accumulate", accumulate);
  group.add("seed", seed);
  group.add("initialize", initialize);
  group.add("deterministic", deterministic);
  group.add("micro_batches", micro_batches);
  group.add("synchronized_layers", synchronized_layers);
  group.add("averaging", averaging);
  group.add("evaluate_every", evaluate_every);
  group.add("evaluation_batch", evaluation_batch);
  group.add("evaluate_with_ema", evaluate_with_ema);
  group.add("check_every", check_every);
  group.add("compare_every", compare_every);
  add_options(facts, checkpoints);
  add_options(facts, data);
  add_options(facts, monitor);
  return facts;
}

template <class Scalar>
std::vector<SharedFact> facts_of_rule(const OptimizerOptions& options) {
  if (options.kind != OptimizerKind::kOwn) return {};
  if constexpr (std::is_same_v<Scalar, float>) {
    if (options.master == DType::kF64) return facts_of_rule<double>(options);
  }
  const auto rule = make_update_rule<Scalar>(options);
  return {{"the name of the own optimizer", rule->name()},
          {"the states of the own optimizer", fmt::format("{}", fmt::join(rule->states(), ", "))}};
}
template std::vector<SharedFact> facts_of_rule<float>(const OptimizerOptions&);
template std::vector<SharedFact> facts_of_rule<double>(const OptimizerOptions&);

std::vector<SharedFact> facts_of(const Dataset* data, const std::string& what, bool own_shards) {
  if (data == nullptr) return {};
  const std::string advice =
      own_shards
          ? "the shards of all ranks need samples of the same kind"
          : "every rank needs the whole data set, the same on all: the trainer deals each global batch out to the "
            "ranks; for data of each rank's own set data.own_shards";
  std::vector<SharedFact> facts{
      {fmt::format("the shape of the samples of {}", what), describe(data->shape()), advice},
      {fmt::format("the number of classes of {}", what), std::to_string(data->classes()), advice},
      {fmt::format("the labels per sample of {}", what), std::to_string(data->labels_per_sample()), advice},
      {fmt::format("the shape of the targets of {}", what),
       data->target_shape().empty() ? "none" : describe(data->target_shape()), advice},
      {fmt::format("the names of the classes of {}", what),
       data->class_names().empty() ? "none" : fmt::format("{}", fmt::join(data->class_names(), ", ")), advice},
      {fmt::format("whether the targets of {} are probabilities", what), text(data->targets_are_probabilities()),
       advice}};
  if (own_shards) return facts;
  facts.insert(facts.begin(), {fmt::format("the number of samples of {}", what), std::to_string(data->size()), advice});
  facts.push_back({fmt::format("whether {} can only be read in order", what), text(data->is_sequential()), advice});
  facts.push_back({fmt::format("the checksum of {}", what), fmt::format("{:08x}", data->checksum()), advice});
  return facts;
}

template <class Scalar>
std::vector<SharedFact> facts_of(const Model<Scalar>& model) {
  std::vector<SharedFact> facts{{"the precision", std::string(name(dtype_of<Scalar>))},
                                {"the input of the model", describe(model.input_shape())}};
  const std::vector<std::string> layers = model.description().layers;
  for (std::size_t place = 0; place < layers.size(); ++place) {
    facts.push_back({fmt::format("layer {} of the model", place), layers[place]});
  }
  add_layout(facts, "parameter", model.parameter_layout());
  add_layout(facts, "statistic", model.statistic_layout());
  return facts;
}
template std::vector<SharedFact> facts_of(const Model<float>&);
template std::vector<SharedFact> facts_of(const Model<double>&);

}  // namespace farandole::trainer
