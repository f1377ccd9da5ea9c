// SPDX-License-Identifier: Apache-2.0
// The mirrored-replica trainer: data-parallel training of a model on all ranks of a communicator.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/export.h"
#include "farandole/trainer/dataset.h"
#include "farandole/trainer/learning_rate.h"
#include "farandole/trainer/loss.h"
#include "farandole/trainer/metric.h"
#include "farandole/trainer/model.h"
#include "farandole/trainer/optimizer.h"
#include "farandole/trainer/profile.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Report of a training step, over all replicas.
struct StepReport {
  std::int64_t training_step = 0;  ///< 1 for the first
  std::int64_t epoch = 0;          ///< 1 for the first
  std::int64_t step_of_epoch = 0;  ///< 1 for the first
  std::int64_t steps_per_epoch = 0;
  double loss = 0;                           ///< mean over the global batch
  double epoch_loss = 0;                     ///< mean over the epoch so far
  std::vector<MetricResult> metrics = {};    ///< over the epoch so far
  double seconds = 0;                        ///< duration of this training step on this replica, including waiting
  double exposed_communication_seconds = 0;  ///< part of `seconds` in which this replica waited for communication
  /// Part of `seconds` in which this replica gathered samples, or waited for a thread of the loader that gathers. On a
  /// device the samples of the next micro-batch are gathered while it computes: that time counts only if the device has
  /// run out of work meanwhile.
  double input_waiting_seconds = 0;
  double learning_rate = 0;  ///< of this training step

  /// @throws InvalidArgument  there is no metric of this name (lists the metrics)
  double metric(std::string_view name) const { return metric_value(metrics, name); }
};

/// Result of an evaluation over a data set.
struct Evaluation {
  double loss = 0;  ///< mean; NaN if there were no samples
  std::vector<MetricResult> metrics = {};

  /// @throws InvalidArgument  there is no metric of this name (lists the metrics)
  double metric(std::string_view name) const { return metric_value(metrics, name); }
};

/// Where the time of a training step goes on this replica's device, measured by events in its stream. The values are
/// medians over the measured training steps, the newest 1024 at most, in seconds per training step.
///
/// Each phase lasts from the end of the phase before, so it includes the time in which the device waits for the host to
/// enqueue work. With TrainerOptions::check_every = 1 all training steps are measured; else the training step before
/// each check, which the host enqueues while the device is busy with earlier ones. A training step is read in a later
/// check, so the last one of an epoch may count in the next.
struct DeviceTimes {
  std::int64_t steps = 0;            ///< number of measured training steps whose gradients were not a graph's
  double input = 0;                  ///< copying the batch to the device
  double forward = 0;                ///< forward pass, loss and metrics
  double backward = 0;               ///< backward pass, and accumulation
  double exposed_communication = 0;  ///< waiting after backward for the averaged gradients
  double update = 0;                 ///< parameters and moving statistics

  // With TrainerOptions::graph. A graph is measured as a whole: no event inside has a time. `steps` are then the first
  // training step, which takes longer, and those of incomplete batches.
  std::int64_t graph_steps = 0;  ///< number of measured training steps that launched graphs
  double graph_input = 0;        ///< copying the batch to the device
  double graph_gradients = 0;    ///< forward, backward and exposed communication
  double graph_update = 0;

  /// Time of a training step on the device: of one that launches graphs, if one was measured.
  double step() const {
    return graph_steps > 0 ? graph_input + graph_gradients + graph_update
                           : input + forward + backward + exposed_communication + update;
  }
};

/// Report of an epoch, or of all epochs of a call. More than 15 members: programs and logs read each by its name.
struct EpochReport {
  std::int64_t epoch = 0;                  ///< number of epochs begun
  std::int64_t training_steps = 0;         ///< number of training steps since the first epoch
  double loss = 0;                         ///< mean over the epoch's training samples; NaN if there were none
  std::vector<MetricResult> metrics = {};  ///< over the epoch's training samples
  std::optional<Evaluation> test;          ///< result on the test set, if it was evaluated
  double learning_rate = 0;                ///< of the last training step; 0 if this call of `fit` has made none
  double images_per_second = 0;            ///< in training, all replicas together
  double seconds = 0;                      ///< duration of the training steps, without evaluation and checkpoints
  double exposed_communication_share = 0;  ///< fraction of `seconds` that this replica waited for communication
  /// Fraction of `seconds` in which this replica waited for samples: the sum of StepReport::input_waiting_seconds.
  double input_waiting_share = 0;
  /// With TrainerOptions::device_times, on devices.
  std::optional<DeviceTimes> device_times = {};
  /// Floating-point operations of a training step divided by `device_times->step()`, as a fraction of the speed that a
  /// large matrix product of the model's type reaches on this device. The operations are three times those of
  /// Model::flops for each sample of a full batch: backward costs twice a forward pass. Present if `device_times` is,
  /// in reports of `fit`; in reports of epochs from the second call on.
  std::optional<double> peak_share = {};
  /// CRC-32 of this replica's parameters; equal on all with averaging. Empty in reports of epochs without a comparison
  /// (TrainerOptions::compare_every).
  std::optional<std::uint32_t> parameters_checksum = {};
  /// With TrainerOptions::profile, in reports of `fit`: this replica's times by layer. Empty if no training step was
  /// measured.
  std::optional<TrainingProfile> profile = {};
  int replicas = 0;
  /// With a loss scale (TrainerOptions::loss_scale): training steps since the first whose update was skipped, because a
  /// gradient was no finite number, and the loss scale after the last one.
  std::int64_t skipped_steps = 0;
  std::optional<double> loss_scale = {};
  bool stopped = false;  ///< `Trainer::stop` or `TrainerOptions::stop_requested` ended the call before its last step
  bool stopped_early = false;  ///< the training ended because of `MonitorOptions::patience`

  /// The metric in training; `test->metric` is the metric on the test set.
  /// @throws InvalidArgument  there is no metric of this name (lists the metrics)
  double metric(std::string_view name) const { return metric_value(metrics, name); }
};

/// Report of a checkpoint that is whole on the disk.
struct CheckpointReport {
  std::int64_t training_step = 0;
  std::filesystem::path path;
  bool best = false;   ///< its epoch is the best so far (MonitorOptions)
  double seconds = 0;  ///< from the training step until it was reported as whole; training went on meanwhile
};

/// Which result tells whether an epoch was better than all epochs before: for early stopping and for the best
/// checkpoint. The result is the test set's where `fit` evaluates one between epochs; epochs without an evaluation do
/// not count then. Else it is the training's.
struct MonitorOptions {
  std::string value = "loss";     ///< "loss", or the name of a metric
  bool higher_is_better = false;  ///< true for an accuracy
  double min_delta = 0;           ///< a result counts as better if it is better by more than this
  /// The training ends after this number of results that are not better than the best one; 0: never.
  std::int64_t patience = 0;
};

/// When and where the trainer writes checkpoints. Rank 0 copies the values to host memory, and writes the copies while
/// training goes on; at most one checkpoint at a time.
struct CheckpointOptions {
  std::filesystem::path directory;  ///< empty: no checkpoints
  std::int64_t every_epochs = 1;    ///< 0: none at the end of an epoch. There is always one at the end of training.
  std::int64_t every_steps = 0;     ///< also after this number of training steps; 0: no
  double every_minutes = 0;         ///< also when this time has passed since the last one; 0: no
  int keep = 3;                     ///< number of checkpoints to keep, the newest
  /// True: write a checkpoint after each epoch that is better than all before (MonitorOptions), and keep the best one
  /// beside the newest. The link `best` in the directory names it.
  bool keep_best = false;
  bool resume = false;  ///< start from the newest complete checkpoint; there must be one
  /// Like `resume`, but begins a new training if the directory holds no checkpoint: for jobs that are put into the
  /// queue again with the same command.
  bool resume_if_any = false;
};

/// How the trainer reads the training data.
struct DataOptions {
  /// Threads of each replica that gather the samples of coming training steps while the replica computes; 0: the
  /// replica gathers itself, at the beginning of each training step. The order of the samples is the same. Threads help
  /// where gathering takes time (files, decoding, `augmented`) and there are cores beside the kernel threads. With
  /// kernel threads on all cores, lower TrainerOptions::kernel_threads. Samples in memory gain nothing, so the default
  /// is 0.
  int threads = 0;
  /// With threads: training steps whose samples are gathered ahead, at least one micro-batch per thread. Costs the
  /// memory of their samples. 0: as `threads` = 0.
  std::int64_t batches_ahead = 2;
  /// True: leave out the last global batch of an epoch if it is incomplete. The samples that are left out differ from
  /// epoch to epoch. Layers that synchronise may need this.
  bool drop_last = false;
  /// True: training data, test data, and the data of `evaluate` and `predict` are this rank's own, of any size, instead
  /// of the whole data set. An epoch has S training steps, S = all ranks' samples / `global_batch` rounded up; in
  /// training step s each rank uses part s of S of its shard, so an epoch uses each sample once. The loss is the mean
  /// over the samples of all ranks, so a sample counts the same in every shard. Not in deterministic mode; a checkpoint
  /// resumes only on ranks with shards of the same sizes.
  bool own_shards = false;
};

/// Where the replicas of a training compute.
enum class ComputeDevice {
  kCpu,   ///< on the processor
  kCuda,  ///< each on its rank's CUDA device: WorldOptions::devices, else FARANDOLE_DEVICE
  kAuto,  ///< kCuda if every rank has a device on which the trainer can compute, else kCpu. The number of ranks is the
          ///< job's: WorldOptions::replica_for_each_device starts one for each device.
};
/// "cpu", "cuda", "auto"
std::string_view name(ComputeDevice device);
/// @throws InvalidArgument  the name is unknown; lists the valid names
ComputeDevice parse_compute_device(std::string_view text);

/// Factor on the loss, which keeps small gradients above the smallest number of f16. The update divides by it. If a
/// gradient is no finite number after the averaging, all replicas skip the training step: parameters, moving
/// statistics, the optimizer's state and the average stay as they are. The training step counts for schedules, not for
/// Adam's bias correction. Its loss may be no finite number: then EpochReport::loss and metrics leave its samples out.
/// Losses that stay so end the training: DataError.
struct LossScaleOptions {
  enum class Kind : std::uint8_t {
    kAutomatic,  ///< kDynamic with TrainerOptions::compute = kF16, else kNone
    kNone,
    kFixed,    ///< `scale`
    kDynamic,  ///< begins with `scale`; halved by a skipped step, doubled after `growth_steps` steps without one
  };
  Kind kind = Kind::kAutomatic;
  double scale = 65536;  ///< a power of two changes no bits of gradients that f16 can hold
  std::int64_t growth_steps = 2000;
};

/// Options of a training. More than 15 members: each is a choice of the program. Choices on the same subject are
/// grouped in structures.
struct TrainerOptions {
  std::int64_t global_batch = 128;  ///< samples per training step, all replicas together
  std::int64_t epochs = 5;
  std::int64_t max_steps = 0;  ///< total number of training steps after which to stop; 0: no limit
  OptimizerOptions optimizer;
  LearningRateOptions learning_rate;
  double clip_norm = 0;  ///< limit of the gradients' global norm; 0: no clipping
  /// Number of micro-batches into which each replica cuts its part of a global batch. More micro-batches need less
  /// memory for activations.
  std::int64_t accumulate = 1;
  std::uint64_t seed = 1;
  bool initialize = true;  ///< true: draw the parameters from the seed; false: start with those of rank 0's model
  /// True: produce the same bits on 1, 2, 4 and 8 replicas, on machines of the same type. The number of replicas must
  /// be a power of two.
  bool deterministic = false;
  /// Deterministic mode: micro-batches of a global batch; a power of two, divisible by the number of replicas.
  std::int64_t micro_batches = 8;
  /// True: layers may communicate through Pass::replicas, as synchronised batch normalisation does.
  bool synchronized_layers = false;
  bool averaging = true;  ///< false: each replica trains alone, to measure the cost of communication
  /// The trainer moves the model there, and copies each batch. Layers, loss, metrics and optimizer need a form for
  /// devices (docs/trainer.md lists what has one). Not yet on devices: master values, weights of classes.
  /// `trainer.model().execution().space()` tells what kAuto has chosen.
  ComputeDevice device = ComputeDevice::kCpu;
  /// Type of matrix products and convolutions: empty, the model's; or for a model of floats on devices kBF16 or kF16,
  /// which is several times as fast there. Factors are rounded to that type, and products are added up in f32.
  /// Parameters, gradients, activations, normalisations, losses and the optimizer stay in f32.
  std::optional<DType> compute = {};
  LossScaleOptions loss_scale;  ///< with `compute` = kBF16 or kF16
  /// On devices: true captures the training step into CUDA graphs, and launches these, so that the host enqueues a few
  /// graphs instead of hundreds of kernels. The bits are those of a training without. The first training step, and the
  /// last one of an epoch if its batch is incomplete, run without. On several hosts the gradients are averaged between
  /// two graphs, after backward, and synchronized layers are refused. All replicas must share the data (not
  /// DataOptions::own_shards). Layers, losses, metrics and update rules of your own need DeviceForm::kGraphs. No effect
  /// on the CPU, if kAuto chooses that.
  bool graph = false;
  /// On devices: true measures the phases of training steps (EpochReport::device_times), by at most six events in the
  /// device's stream for each micro-batch and two for the update, and the speed of a large matrix product
  /// (EpochReport::peak_share), once at the end of the first `fit`. No effect on the CPU.
  bool device_times = false;
  /// On the CPU: true measures each layer, the loss, averaging, update and input in training steps
  /// (EpochReport::profile), and the speed of a large matrix product, once at the end of the first `fit`. The first
  /// three training steps of a `fit` and incomplete batches do not count; the newest 1024 others do. Costs two readings
  /// of the clock per layer and pass, and changes no bit of the training. Not on devices: see `device_times`.
  bool profile = false;
  /// Threads per replica; 0: 1 in deterministic mode, else allowed cores / local replicas.
  int kernel_threads = 0;
  std::int64_t evaluate_every = 1;      ///< number of epochs between evaluations; 0: only at the end
  std::int64_t evaluation_batch = 250;  ///< samples per batch of an evaluation
  /// True: evaluate with the parameters' moving average (OptimizerOptions::ema_decay) instead of the parameters.
  bool evaluate_with_ema = false;
  /// Largest number of training steps from one check to the next. In a check the replicas add up loss and metrics of
  /// each training step since the last check, make sure that the losses are numbers, and agree on requests to stop.
  /// More than 1 saves a small allreduce in the training steps between, and on a device the wait for results. The
  /// training is the same, and so are the reports, up to the last digits of sums over several hosts; they come later.
  /// But a loss that is not a number is found late, when parameters were updated with it; in `on_step` the model is
  /// already that of the check's training step; and requests to stop, also of `stop_requested`, wait for the next
  /// check. So there is a check about every second, whatever the number, and one after the first training step of
  /// `fit`, before each checkpoint and at the end of each epoch.
  std::int64_t check_every = 1;
  /// Epochs from one comparison of the replicas' parameters to the next, by checksum; 0: only at the end of `fit`.
  std::int64_t compare_every = 1;
  CheckpointOptions checkpoints;
  DataOptions data;
  MonitorOptions monitor;

  // Callbacks, each called on this replica. docs/trainer.md says in which order. Numbers of epochs and training steps
  // begin with 1.
  std::function<void(std::int64_t epoch)> before_epoch;  ///< also when `fit` begins within an epoch
  std::function<void(std::int64_t training_step)> before_step;
  std::function<void(const StepReport&)> on_step;    ///< after each training step, or its check (check_every)
  std::function<void(const EpochReport&)> on_epoch;  ///< after each epoch, its evaluation and its checkpoint
  std::function<void(std::int64_t training_step)> before_checkpoint;
  /// When a checkpoint is whole: in the next check, before the next checkpoint, or at the end of `fit`.
  std::function<void(const CheckpointReport&)> on_checkpoint;
  /// Called on this replica once in each check (check_every); true asks all replicas to stop, as Trainer::stop does.
  /// Use the function to end on a signal. Needs `averaging` if there are several replicas.
  std::function<bool()> stop_requested;
};

/// Trains a model on all ranks of a communicator. Each training step splits a global batch over the ranks, sums the
/// gradients while backward still runs, and applies the same update on every rank. Use a Trainer for complete
/// trainings; for a loop of your own use Model, Optimizer and GradientAverager.
///
///     Model<float> model({28, 28, 1}, layers_of<float>("cnn"));
///     Trainer<float> trainer(replica, std::move(model), data.training, data.test, {.epochs = 10});
///     const EpochReport report = trainer.fit();
///
/// Data of your own: implement Dataset, or use `memory_dataset`. Numbers instead of classes: pass a loss such as
/// `mean_squared_error<float>()`, or implement Loss. Other numbers in the reports: pass metrics. If code of the program
/// (a data set, layer, loss, metric or callback) throws on a rank, that rank rethrows the exception, and every other
/// rank raises PeerLost with its text.
///
/// One object per rank, used by a single thread. Every function is collective and blocks, except the accessors. The
/// World must outlive the trainer. After a move the source throws InvalidArgument from every function. An error that
/// all ranks throw together also has the type RaisedByAll (agreement.h).
template <class Scalar>
class Trainer {
 public:
  /// Compares options, data (by size, shapes, classes and checksum), model, loss, metrics and precision across ranks;
  /// only `kernel_threads`, `data.threads`, `data.batches_ahead` and the callbacks may differ. Every rank needs the
  /// complete data, because the trainer gives each rank its part of each global batch; with `data.own_shards` each rank
  /// has data of its own, of which shapes and classes are compared. Then copies rank 0's parameters to all ranks; rank
  /// 0 reads them from a checkpoint (`resume`), draws them from the seed (`initialize`), or takes them from its model.
  /// Only rank 0 reads and writes checkpoints.
  ///
  /// While a function of the trainer runs, the calling thread's number of OpenMP threads is `kernel_threads`;
  /// afterwards the old number is restored.
  /// @param test  may be null   @param loss  null: cross_entropy_loss(), for samples with classes
  /// and a model with one output
  /// @param metrics  empty: accuracy() if the samples have classes and the model's only output has a number for each
  /// @throws InvalidArgument  another process writes to the checkpoint directory (names its host and process); there is
  /// no checkpoint to resume from; the directory has checkpoints and `resume` is false; or the options, the loss
  /// or the metrics do not fit each other, the data, the model or the number of replicas (lists valid choices)
  /// @throws Mismatch         a compared property differs between ranks; names the property, both values and both ranks
  /// @throws Unsupported      synchronised layers, own shards or streams in deterministic mode; a layer, loss, metric
  /// or optimizer that cannot compute on devices (names it), or libraries that are missing (says which); a profile of a
  /// training on devices
  /// @throws DeviceError      a device has failed, or has no memory for the model
  /// @throws DataError        no checkpoint is complete, or the checkpoint directory cannot be used
  Trainer(Communicator communicator, Model<Scalar> model, std::shared_ptr<const Dataset> training,
          std::shared_ptr<const Dataset> test, TrainerOptions options, LossPointer<Scalar> loss = {},
          std::vector<MetricPointer<Scalar>> metrics = {});
  ~Trainer();
  Trainer(Trainer&&) noexcept;

  /// Trains until the last epoch, `max_steps`, a request to stop, or the end of the monitor's patience. Returns a
  /// report over all training steps of this call. A later call goes on where this one has ended.
  /// @throws DataError  the loss is not a number (but see LossScaleOptions), or a checkpoint could not be written
  /// @throws Mismatch   the rates of LearningRateOptions::own differ
  /// @throws InternalError  replicas have different parameters
  EpochReport fit();
  /// Asks all replicas to stop. Callable from any callback on any rank, and from other threads and signal handlers of
  /// its process. `fit` ends on all ranks after the training step of the next check (TrainerOptions::check_every): with
  /// a check in each training step after the one at hand, or, if called from `on_step`, after the next one; from
  /// `on_epoch`, after that epoch. It writes a checkpoint if there is a directory, and evaluates nothing
  /// more. If no `fit` is running, the next one ends after its first training step. The replicas agree through the
  /// allreduce of the loss, at no further cost. Not collective.
  /// @throws InvalidArgument  there are several replicas without `averaging`, which cannot stop together
  void stop();
  /// Evaluates with moving statistics, each sample once, whatever the number of replicas. With `evaluate_with_ema`
  /// uses the averaged parameters.
  /// @param dataset  the complete data set, the same on all ranks; with `data.own_shards` this rank's shard: the result
  /// is that of all ranks' samples together
  /// @throws Mismatch  the ranks' data differ   @throws InvalidArgument  the samples do not fit the model
  Evaluation evaluate(const Dataset& dataset);

  /// Returns the model's outputs for all samples, in the order of the data, on every rank. The ranks share the samples;
  /// labels, targets and weights are ignored. Cost: one forward pass of the samples, and an allgather of the outputs.
  /// @param dataset  the complete data set, the same on all ranks; with `data.own_shards` this rank's shard: each rank
  /// gets the outputs of its own samples only, without an allgather
  /// @throws Mismatch  the ranks' data differ   @throws InvalidArgument  the samples do not fit the model
  Tensor<Scalar> predict(const Dataset& dataset);

  /// On a device the model uses memory of the trainer's communicator, and must not outlive the trainer.
  Model<Scalar>& model();
  /// A copy of the parameters' moving average in the model's type, laid out like model().parameters(); empty without
  /// `ema_decay`. Defined after the first training step.
  std::vector<Scalar> averaged_parameters() const;
  std::int64_t training_steps() const;  ///< number of training steps done, including those before a resume
  /// Returns the checkpoint from which training was resumed. Empty on ranks other than 0, and if training was not
  /// resumed.
  std::filesystem::path resumed_from() const;
  /// Returns the options that were changed by the resume, as texts: "epochs: 5, now 8". Empty on ranks other than 0.
  /// docs/trainer.md lists the options that may change.
  const std::vector<std::string>& changed_options() const;

 private:
  struct State;
  /// @throws InvalidArgument  this trainer was moved from
  State& state() const;
  std::unique_ptr<State> state_;
};

}  // namespace trainer
}  // namespace FARANDOLE_API
