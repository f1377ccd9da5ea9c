// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>

#include "case.h"

namespace farandole::trainer::test {
namespace {

ParameterGroup make_group(const Json& object) {
  Fields fields(object, "a group of parameters");
  ParameterGroup group;
  group.pattern = fields.get<std::string>("pattern");
  fields.read("rate_factor", group.rate_factor);
  double weight_decay = 0;
  if (fields.read("weight_decay", weight_decay)) group.weight_decay = weight_decay;
  fields.read("trainable", group.trainable);
  fields.finish();
  return group;
}

OptimizerOptions make_optimizer(const Json& object) {
  Fields fields(object, "the optimizer");
  OptimizerOptions options;
  options.kind = parse_optimizer(fields.get<std::string>("kind"));
  fields.read("weight_decay", options.weight_decay);
  fields.read("momentum", options.momentum);
  fields.read("nesterov", options.nesterov);
  fields.read("beta1", options.beta1);
  fields.read("beta2", options.beta2);
  fields.read("epsilon", options.epsilon);
  fields.read("ema_decay", options.ema_decay);
  Json groups = Json::array();
  fields.read("groups", groups);
  for (const Json& group : groups) options.groups.push_back(make_group(group));
  fields.finish();
  return options;
}

/// The schedule "own" multiplies the rate by `gamma` after every training step.
LearningRateOptions make_learning_rate(const Json& object) {
  Fields fields(object, "the learning rate");
  LearningRateOptions options;
  options.base = fields.get<double>("base");
  std::string schedule = "constant";
  fields.read("schedule", schedule);
  double gamma = 1;
  if (schedule == "own") {
    gamma = fields.get<double>("gamma");
    options.schedule = LearningRateSchedule::kOwn;
    options.own = [gamma, base = options.base](std::int64_t step, std::int64_t, std::int64_t) {
      return base * std::pow(gamma, static_cast<double>(step));
    };
  } else {
    options.schedule = parse_learning_rate_schedule(schedule);
  }
  fields.read("warmup_steps", options.warmup_steps);
  fields.read("step_factor", options.step_factor);
  fields.read("step_epochs", options.step_epochs);
  fields.read("scale_by_replicas", options.scale_by_replicas);
  fields.read("minimum", options.minimum);
  fields.read("power", options.power);
  fields.read("pct_start", options.one_cycle.pct_start);
  fields.read("div_factor", options.one_cycle.div_factor);
  fields.read("final_div_factor", options.one_cycle.final_div_factor);
  fields.read("factor", options.plateau.factor);
  fields.read("patience", options.plateau.patience);
  fields.read("threshold", options.plateau.threshold);
  fields.finish();
  return options;
}

LossPointer<double> make_combined_loss(Fields& fields, const std::vector<GraphPort>& outputs) {
  OutputParts parts{outputs};
  fields.read("with_labels", parts.with_labels);
  std::vector<LossPart<double>> losses;
  for (const Json& object : fields.get<Json>("parts")) {
    Fields part(object, "a part of the loss");
    losses.push_back({part.get<std::string>("output"), make_loss(part.get<Json>("loss"), {})});
    part.read("weight", losses.back().weight);
    part.finish();
  }
  return combined_loss<double>(parts, std::move(losses));
}

}  // namespace

LossPointer<double> make_loss(const Json& object, const std::vector<GraphPort>& outputs) {
  Fields fields(object, "the loss");
  const auto kind = fields.get<std::string>("kind");
  LossPointer<double> loss;
  if (kind == "cross_entropy_loss") {
    CrossEntropyOptions options;
    fields.read("label_smoothing", options.label_smoothing);
    fields.read("class_weights", options.class_weights);
    loss = cross_entropy_loss<double>(options);
  } else if (kind == "binary_cross_entropy_loss") {
    loss = binary_cross_entropy_loss<double>();
  } else if (kind == "mean_squared_error") {
    loss = mean_squared_error<double>();
  } else if (kind == "mean_absolute_error") {
    loss = mean_absolute_error<double>();
  } else if (kind == "huber_loss") {
    loss = huber_loss<double>(fields.get<double>("delta"));
  } else if (kind == "combined_loss") {
    loss = make_combined_loss(fields, outputs);
  } else {
    throw InvalidArgument(fmt::format("there is no loss '{}'", kind));
  }
  fields.finish();
  return loss;
}

TrainerOptions make_options(const Json& object) {
  Fields fields(object, "the options");
  TrainerOptions options;
  options.global_batch = fields.get<std::int64_t>("global_batch");
  options.epochs = fields.get<std::int64_t>("epochs");
  options.optimizer = make_optimizer(fields.get<Json>("optimizer"));
  options.learning_rate = make_learning_rate(fields.get<Json>("learning_rate"));
  fields.read("clip_norm", options.clip_norm);
  fields.read("accumulate", options.accumulate);
  fields.read("deterministic", options.deterministic);
  fields.read("micro_batches", options.micro_batches);
  fields.read("synchronized_layers", options.synchronized_layers);
  fields.read("evaluate_with_ema", options.evaluate_with_ema);
  fields.finish();
  options.kernel_threads = 1;
  options.evaluate_every = 0;
  return options;
}

}  // namespace farandole::trainer::test
