// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/trainer.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "batch_plan.h"
#include "farandole/collectives/agreement.h"
#include "kernel_threads.h"
#include "kernels/device_choice.h"
#include "kernels/transfer.h"
#include "metric_sums.h"
#include "parameter_swap.h"
#include "shared_facts.h"
#include "trainer_options.h"
#include "training.h"

namespace farandole::trainer {
namespace {

void append(std::vector<SharedFact>& facts, const std::vector<SharedFact>& more) {
  facts.insert(facts.end(), more.begin(), more.end());
}

}  // namespace

template <class Scalar>
struct Trainer<Scalar>::State final : Training<Scalar> {
  using Training<Scalar>::Training;
};

template <class Scalar>
Trainer<Scalar>::Trainer(Communicator communicator, Model<Scalar> model, std::shared_ptr<const Dataset> training,
                         std::shared_ptr<const Dataset> test, TrainerOptions options, LossPointer<Scalar> loss,
                         std::vector<MetricPointer<Scalar>> metrics) {
  if (!communicator.valid()) {
    throw InvalidArgument("a trainer needs a communicator; this one is empty: never assigned, or moved from");
  }
  std::vector<SharedFact> facts;
  agree(communicator, [&] {
    if (!training) throw InvalidArgument("a trainer needs training data");
    const bool one_output = model.outputs().size() == 1;
    if (!loss && !one_output) {
      throw InvalidArgument(
          "a model with several outputs needs a loss for each; pass combined_loss, or a loss of your own");
    }
    if (!loss) loss = cross_entropy_loss<Scalar>();
    facts = facts_of(options);
    append(facts, facts_of(training.get(), kTrainingData, options.data.own_shards));
    append(facts, facts_of(test.get(), kTestData, options.data.own_shards));
    append(facts, facts_of_rule<Scalar>(options.optimizer));
    append(facts, facts_of(model));
    facts.push_back({"the loss", loss->name()});
    if (metrics.empty() && one_output) metrics = default_metrics<Scalar>(model.output_shape(), *training);
    append(facts, facts_of(metrics));
  });
  require_same(communicator, facts);
  std::vector<std::int64_t> shards;  // empty: the ranks share the data
  if (options.data.own_shards) shards = shard_sizes(communicator, training->size());
  agree(communicator, [&] {
    check(options, {communicator.size(), *training, test.get(), model.input_shape(), shards, names_of(metrics),
                    dtype_of<Scalar>});
    loss->check(model.output_shape(), *training, kTrainingData);
    if (test) loss->check(model.output_shape(), *test, kTestData);
    check_metrics(metrics, model.output_shape(), *training, test.get());
    const Optimizer<Scalar> checked(options.optimizer, model.parameter_layout(), 0);
    if (auto of_replica = training->for_replica()) training = std::move(of_replica);
  });
  if (options.device != ComputeDevice::kCpu) {
    const TrainingParts<Scalar> parts{model, *loss, metrics, options};
    const std::string why_not = why_not_on_devices(parts);
    if (options.device == ComputeDevice::kAuto) {
      options.device = choose_device(communicator, why_not);
      if (options.device == ComputeDevice::kCpu) options.graph = false;
      if (options.device == ComputeDevice::kCuda && options.profile) {
        raise_on_all(ErrorKind::kUnsupported, profile_needs_cpu());
      }
      if (options.device == ComputeDevice::kCpu && is_half(options.compute.value_or(dtype_of<Scalar>))) {
        raise_on_all(ErrorKind::kUnsupported, why_not.empty() ? needs_device(*options.compute) : why_not);
      }
    } else if (!why_not.empty()) {
      raise_on_all(ErrorKind::kUnsupported, why_not);
    }
  }
  state_ = std::make_unique<State>(std::move(communicator), std::move(model), std::move(training), std::move(test),
                                   std::move(options), std::move(loss), std::move(metrics), shards);
}
template <class Scalar>
Trainer<Scalar>::~Trainer() = default;
template <class Scalar>
Trainer<Scalar>::Trainer(Trainer&&) noexcept = default;

template <class Scalar>
typename Trainer<Scalar>::State& Trainer<Scalar>::state() const {
  if (!state_) throw InvalidArgument("this trainer was moved from");
  return *state_;
}

template <class Scalar>
EpochReport Trainer<Scalar>::fit() {
  state().check_process();
  return state().fit();
}

template <class Scalar>
void Trainer<Scalar>::stop() {
  if (!state().options.averaging && state().communicator.size() > 1) {
    throw InvalidArgument(
        "without averaging the replicas share nothing in a training step, so they cannot stop together");
  }
  state().stop_asked = true;
}

template <class Scalar>
Evaluation Trainer<Scalar>::evaluate(const Dataset& dataset) {
  State& state = this->state();
  const std::string what = "the data to evaluate";
  state.check_to_use(dataset, what, [&] {
    state.loss->check(state.model.output_shape(), dataset, what);
    state.metrics.check(state.model.output_shape(), dataset, what);
    check_same_classes(*state.training, dataset, what);
  });
  const KernelThreads threads(kernel_threads(state.options, state.communicator));
  return state.evaluate(dataset, what);
}

template <class Scalar>
Tensor<Scalar> Trainer<Scalar>::predict(const Dataset& dataset) {
  State& state = this->state();
  const std::string what = "the data to predict";
  state.check_to_use(dataset, what, [] {});
  const KernelThreads threads(kernel_threads(state.options, state.communicator));
  return state.predict(dataset, what);
}

template <class Scalar>
Model<Scalar>& Trainer<Scalar>::model() {
  return state().model;
}

template <class Scalar>
std::vector<Scalar> Trainer<Scalar>::averaged_parameters() const {
  const BufferView average = state().optimizer.average();
  const Execution& execution = state().model.execution();
  if (!execution.space().is_host()) {
    return to_host<Scalar>(execution, {static_cast<const Scalar*>(average.data), average.count, average.space});
  }
  std::vector<Scalar> values(average.count);
  copy_average<Scalar>(average, values);
  return values;
}

template <class Scalar>
std::int64_t Trainer<Scalar>::training_steps() const {
  return state().steps_done;
}

template <class Scalar>
std::filesystem::path Trainer<Scalar>::resumed_from() const {
  return state().checkpoints.resumed_from();
}

template <class Scalar>
const std::vector<std::string>& Trainer<Scalar>::changed_options() const {
  return state().checkpoints.changed_options();
}

template class Trainer<float>;
template class Trainer<double>;

}  // namespace farandole::trainer
