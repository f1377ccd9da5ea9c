// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/trainer.h"
#include "farandole/internal/communicator_access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "batch_source.h"
#include "checksum.h"
#include "evaluation.h"
#include "farandole/collectives/agreement.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/endpoint.h"
#include "kernel_threads.h"
#include "mirror.h"
#include "program_code.h"
#include "shared_facts.h"
#include "trainer_options.h"
#include "training_checkpoints.h"
#include "training_rate.h"
#include "training_step.h"

namespace farandole::trainer {
namespace {

/// Sums over training steps.
struct Totals {
  double loss_sum = 0;
  std::int64_t correct = 0, samples = 0;  // in the epoch, including the part before a resume
  std::int64_t trained = 0;               // number of samples in this call
  Seconds training{0}, exposed{0};        // time in this call
  Seconds input_waiting{0};               // time in this call

  double loss() const { return per_sample(loss_sum); }
  double accuracy() const { return per_sample(static_cast<double>(correct)); }
  double images_per_second() const {
    return training.count() > 0 ? static_cast<double>(trained) / training.count() : 0;
  }
  double exposed_share() const { return training.count() > 0 ? exposed / training : 0; }
  double input_waiting_share() const { return training.count() > 0 ? input_waiting / training : 0; }

 private:
  double per_sample(double sum) const {
    return samples > 0 ? sum / static_cast<double>(samples) : std::numeric_limits<double>::quiet_NaN();
  }
};

void append(std::vector<SharedFact>& facts, const std::vector<SharedFact>& more) {
  facts.insert(facts.end(), more.begin(), more.end());
}

/// Exchanges the values of the parameters with their average; the destructor exchanges them back.
template <class Scalar>
class ParameterSwap {
 public:
  /// @param average  empty: exchange nothing
  ParameterSwap(std::span<Scalar> parameters, std::span<Scalar> average) : parameters_(parameters), average_(average) {
    exchange();
  }
  ~ParameterSwap() { exchange(); }
  ParameterSwap(const ParameterSwap&) = delete;
  ParameterSwap& operator=(const ParameterSwap&) = delete;

 private:
  void exchange() { std::swap_ranges(average_.begin(), average_.end(), parameters_.begin()); }
  const std::span<Scalar> parameters_, average_;
};

}  // namespace

template <class Scalar>
struct Trainer<Scalar>::State {
  State(Communicator world, Model<Scalar> network, std::shared_ptr<const Dataset> training_data,
        std::shared_ptr<const Dataset> test_data, TrainerOptions wanted, LossPointer<Scalar> wanted_loss,
        const std::vector<std::int64_t>& shards);

  std::int64_t total_steps() const { return options.epochs * loader.batches_per_epoch(); }
  std::int64_t last_step() const {
    return options.max_steps > 0 ? std::min(options.max_steps, total_steps()) : total_steps();
  }
  /// Returns true if a replica asks to stop.
  bool train_one_step(Totals& epoch);
  /// Raises DataError on all ranks if the loss is not a finite number. Says whether the data are the reason.
  void check_loss(const StepResult& result);
  void update();
  void report_step(const StepResult& result, const Totals& epoch, Seconds taken) const;
  void finish_epoch(const Totals& epoch);
  void finish_stopped_epoch(const Totals& epoch) {
    rate.end_epoch_unevaluated(epoch.loss(), steps_done / loader.batches_per_epoch());
  }
  EpochReport make_report(const Totals& totals);
  /// Throws in a forked child, which would wait for kernel threads that it does not have.
  void check_process() const { internals(communicator).endpoint().faults().check_process(); }
  /// Checks that the model can take the data, and that all ranks have the same. Collective.
  /// @param check_more  further checks of this rank
  template <class Check>
  void check_to_use(const Dataset& data, const std::string& what, const Check& check_more) {
    check_process();
    agree(communicator, [&] {
      check_data(data, what, model.input_shape());
      check_more();
    });
    require_same(communicator, facts_of(&data, what, options.data.own_shards));
  }
  ParameterSwap<Scalar> parameters_to_evaluate();
  Evaluation evaluate(const Dataset& data);
  /// The accuracy in training; NaN if the samples have no classes.
  double accuracy(const Totals& totals) const {
    return training->classes() > 0 ? totals.accuracy() : std::numeric_limits<double>::quiet_NaN();
  }
  void save(const Totals& epoch);
  std::uint32_t check_replicas();

  Communicator communicator;
  Model<Scalar> model;
  std::shared_ptr<const Dataset> training, test;
  const TrainerOptions options;
  const LossPointer<Scalar> loss;
  BatchSource<Scalar> loader;
  Optimizer<Scalar> optimizer;
  TrainingRate rate;
  TrainingCheckpoints<Scalar> checkpoints;
  TrainingStep<Scalar> step;
  std::int64_t steps_done = 0;
  double last_rate = 0;                       // of the last training step
  Totals resumed;                             // sums of the epoch that a checkpoint interrupted
  std::optional<Evaluation> last_evaluation;  // with the current parameters; empty after an update
};

/// Moves the gradients to a window (memory that all ranks of the host have mapped), so that collectives need no copies.
template <class Scalar>
Model<Scalar> with_gradients_in_windows(Model<Scalar> model, Communicator& communicator) {
  model.place_reducible([&](std::size_t count, DType dtype) { return communicator.allocate(count, dtype); });
  return model;
}

template <class Scalar>
Trainer<Scalar>::State::State(Communicator world, Model<Scalar> network, std::shared_ptr<const Dataset> training_data,
                              std::shared_ptr<const Dataset> test_data, TrainerOptions wanted,
                              LossPointer<Scalar> wanted_loss, const std::vector<std::int64_t>& shards)
    : communicator(std::move(world)),
      model(with_gradients_in_windows(std::move(network), communicator)),
      training(std::move(training_data)),
      test(std::move(test_data)),
      options(std::move(wanted)),
      loss(std::move(wanted_loss)),
      loader(*training, options.data, {options, *training, shards, communicator.rank(), communicator.size()}),
      optimizer(options.optimizer, model.parameter_layout(), model.parameters().size()),
      rate(communicator, options, test != nullptr, loader.batches_per_epoch(), total_steps(), last_step()),
      checkpoints(communicator, model, optimizer, options, loader.plan()),
      step(communicator, model, *loss, loader, options) {
  const KernelThreads threads(kernel_threads(options, communicator));
  if (options.initialize) model.initialize(options.seed);
  const CheckpointState state = checkpoints.open();
  steps_done = state.training_step;
  resumed.loss_sum = state.loss_sum;
  resumed.correct = state.correct;
  resumed.samples = state.position;
  rate.restore(state.plateau);
}

template <class Scalar>
bool Trainer<Scalar>::State::train_one_step(Totals& epoch) {
  const auto start = Clock::now();
  const StepResult result = step.run(steps_done);
  check_loss(result);
  epoch.trained += loader.samples(steps_done).all;
  update();
  ++steps_done;
  last_evaluation.reset();
  const Seconds taken = Clock::now() - start;
  epoch.training += taken;
  epoch.exposed += step.exposed();
  epoch.input_waiting += loader.waited();
  epoch.loss_sum += result.loss_sum;
  epoch.correct += result.correct;
  epoch.samples += result.samples;
  report_step(result, epoch, taken);
  return result.stop_requested;
}

template <class Scalar>
void Trainer<Scalar>::State::check_loss(const StepResult& result) {
  if (std::isfinite(result.loss_sum)) return;
  const std::string sample = step.find_not_finite();
  const std::string reason = sample.empty() ? "What to try: a lower --learning-rate, --warmup-steps, --clip-norm 1"
                                            : fmt::format("{} has a number that is NaN or infinite", sample);
  raise_on_all(ErrorKind::kDataError,
               fmt::format("training step {}, epoch {}: the loss is not a number ({}). Parameters are as they were "
                           "before it. {}",
                           steps_done + 1, steps_done / loader.batches_per_epoch() + 1,
                           std::isnan(result.loss_sum) ? "NaN" : "infinite", reason));
}

template <class Scalar>
void Trainer<Scalar>::State::update() {
  double scale = 1;
  if (options.clip_norm > 0) {
    scale = clipping_factor(optimizer.gradient_norm(model.gradients()), options.clip_norm);
  }
  last_rate = rate.at(steps_done);
  optimizer.update(model.parameters(), model.gradients(), last_rate, scale, steps_done);
  model.move_statistics();
}

template <class Scalar>
void Trainer<Scalar>::State::report_step(const StepResult& result, const Totals& epoch, Seconds taken) const {
  if (!options.on_step) return;
  const std::int64_t per_epoch = loader.batches_per_epoch();
  const StepReport report{.training_step = steps_done,
                          .epoch = (steps_done - 1) / per_epoch + 1,
                          .step_of_epoch = (steps_done - 1) % per_epoch + 1,
                          .steps_per_epoch = per_epoch,
                          .loss = result.loss_sum / static_cast<double>(result.samples),
                          .epoch_loss = epoch.loss(),
                          .epoch_accuracy = accuracy(epoch),
                          .seconds = taken.count(),
                          .input_waiting_seconds = loader.waited().count(),
                          .learning_rate = last_rate};
  call_program(communicator, "TrainerOptions::on_step", [&] { options.on_step(report); });
}

template <class Scalar>
std::uint32_t Trainer<Scalar>::State::check_replicas() {
  const std::uint32_t parameters = checksum(std::as_bytes(model.parameters()));
  if (options.averaging) check_mirrored(communicator, parameters, checksum(std::as_bytes(model.statistics())));
  return parameters;
}

template <class Scalar>
EpochReport Trainer<Scalar>::State::make_report(const Totals& totals) {
  const std::int64_t per_epoch = loader.batches_per_epoch();
  return {.epoch = (steps_done + per_epoch - 1) / per_epoch,
          .training_steps = steps_done,
          .loss = totals.loss(),
          .accuracy = accuracy(totals),
          .test = last_evaluation,
          .images_per_second = totals.images_per_second(),
          .seconds = totals.training.count(),
          .exposed_communication_share = totals.exposed_share(),
          .input_waiting_share = totals.input_waiting_share(),
          .parameters_checksum = check_replicas(),
          .replicas = communicator.size()};
}

template <class Scalar>
ParameterSwap<Scalar> Trainer<Scalar>::State::parameters_to_evaluate() {
  const bool swaps = options.evaluate_with_ema && steps_done > 0;
  return {model.parameters(), swaps ? optimizer.average() : std::span<Scalar>{}};
}

template <class Scalar>
Evaluation Trainer<Scalar>::State::evaluate(const Dataset& data) {
  const ParameterSwap<Scalar> swap = parameters_to_evaluate();
  return trainer::evaluate(communicator, model, *loss, data, options.evaluation_batch, options.data.own_shards);
}

template <class Scalar>
void Trainer<Scalar>::State::save(const Totals& epoch) {
  const std::int64_t per_epoch = loader.batches_per_epoch();
  CheckpointState state{.training_step = steps_done, .epoch = steps_done / per_epoch, .plateau = rate.state()};
  if (steps_done % per_epoch != 0) {
    state.position = epoch.samples;
    state.loss_sum = epoch.loss_sum;
    state.correct = epoch.correct;
  }
  checkpoints.save(std::move(state));
}

template <class Scalar>
void Trainer<Scalar>::State::finish_epoch(const Totals& epoch) {
  const std::int64_t done = steps_done / loader.batches_per_epoch();
  if (test && options.evaluate_every > 0 && done % options.evaluate_every == 0) {
    last_evaluation = evaluate(*test);
  }
  rate.end_epoch(epoch.loss(), last_evaluation);
  const EpochReport report = make_report(epoch);
  if (options.on_epoch) {
    call_program(communicator, "TrainerOptions::on_epoch", [&] { options.on_epoch(report); });
  }
  if (done % options.checkpoints.every_epochs == 0) save(epoch);
}

template <class Scalar>
Trainer<Scalar>::Trainer(Communicator communicator, Model<Scalar> model, std::shared_ptr<const Dataset> training,
                         std::shared_ptr<const Dataset> test, TrainerOptions options, LossPointer<Scalar> loss) {
  if (!communicator.valid()) {
    throw InvalidArgument("a trainer needs a communicator; this one is empty: never assigned, or moved from");
  }
  if (!loss) loss = cross_entropy_loss<Scalar>();
  std::vector<SharedFact> facts;
  agree(communicator, [&] {
    if (!training) throw InvalidArgument("a trainer needs training data");
    facts = facts_of(options);
    append(facts, facts_of(training.get(), kTrainingData, options.data.own_shards));
    append(facts, facts_of(test.get(), kTestData, options.data.own_shards));
    append(facts, facts_of_rule<Scalar>(options.optimizer));
    append(facts, facts_of(model));
    facts.push_back({"the loss", loss->name()});
  });
  require_same(communicator, facts);
  const std::vector<std::int64_t> shards = shard_sizes(communicator, options.data, training->size());
  agree(communicator, [&] {
    check(options, {communicator.size(), *training, test.get(), model.input_shape(), shards});
    loss->check(model.output_shape(), *training, kTrainingData);
    if (test) loss->check(model.output_shape(), *test, kTestData);
    const Optimizer<Scalar> checked(options.optimizer, model.parameter_layout(), 0);
    if (auto of_replica = training->for_replica()) training = std::move(of_replica);
  });
  state_ = std::make_unique<State>(std::move(communicator), std::move(model), std::move(training), std::move(test),
                                   std::move(options), std::move(loss), shards);
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
  State& state = this->state();
  state.check_process();
  const KernelThreads threads(kernel_threads(state.options, state.communicator));
  const typename BatchSource<Scalar>::Reading reading(state.loader, state.last_step());
  const std::int64_t per_epoch = state.loader.batches_per_epoch();
  Totals epoch = std::exchange(state.resumed, {}), all;
  if (state.rate.needs_test_loss()) {
    state.last_evaluation = state.evaluate(*state.test);
    state.rate.end_epoch(epoch.loss(), state.last_evaluation);
  }
  bool stopped = false;
  while (state.steps_done < state.last_step() && !stopped) {
    if (state.steps_done % per_epoch == 0) epoch = {};
    stopped = state.train_one_step(epoch) && state.steps_done < state.last_step();
    if (state.steps_done % per_epoch != 0 && state.steps_done != state.last_step() && !stopped) continue;
    all.training += epoch.training;
    all.exposed += epoch.exposed;
    all.input_waiting += epoch.input_waiting;
    all.trained += epoch.trained;
    if (state.steps_done % per_epoch == 0) stopped ? state.finish_stopped_epoch(epoch) : state.finish_epoch(epoch);
  }
  state.save(epoch);
  if (state.test && !state.last_evaluation && !stopped) state.last_evaluation = state.evaluate(*state.test);
  all.loss_sum = epoch.loss_sum;
  all.correct = epoch.correct;
  all.samples = epoch.samples;
  // If this epoch is not complete, a later `fit` of this object continues the epoch from these sums.
  state.resumed = {.loss_sum = epoch.loss_sum, .correct = epoch.correct, .samples = epoch.samples};
  EpochReport report = state.make_report(all);
  report.stopped = stopped;
  return report;
}

template <class Scalar>
Evaluation Trainer<Scalar>::evaluate(const Dataset& dataset) {
  State& state = this->state();
  const std::string what = "the data to evaluate";
  state.check_to_use(dataset, what, [&] { state.loss->check(state.model.output_shape(), dataset, what); });
  const KernelThreads threads(kernel_threads(state.options, state.communicator));
  return state.evaluate(dataset);
}

template <class Scalar>
Tensor<Scalar> Trainer<Scalar>::predict(const Dataset& dataset) {
  State& state = this->state();
  state.check_to_use(dataset, "the data to predict", [] {});
  const KernelThreads threads(kernel_threads(state.options, state.communicator));
  const ParameterSwap<Scalar> swap = state.parameters_to_evaluate();
  return trainer::predict(state.communicator, state.model, dataset, state.options.evaluation_batch,
                          state.options.data.own_shards);
}

template <class Scalar>
Model<Scalar>& Trainer<Scalar>::model() {
  return state().model;
}

template <class Scalar>
std::span<const Scalar> Trainer<Scalar>::averaged_parameters() const {
  return state().optimizer.average();
}

template <class Scalar>
std::int64_t Trainer<Scalar>::training_steps() const {
  return state().steps_done;
}

template <class Scalar>
std::filesystem::path Trainer<Scalar>::resumed_from() const {
  return state().checkpoints.resumed_from();
}

template class Trainer<float>;
template class Trainer<double>;

}  // namespace farandole::trainer
