// SPDX-License-Identifier: Apache-2.0
// farandole-train: trains a model on Fashion-MNIST on many replicas.
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>

#include "error_report.h"
#include "farandole/collectives/agreement.h"
#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/trainer/strategy.h"
#include "farandole/trainer/trainer.h"
#include "json_log.h"
#include "progress_line.h"
#include "train_options.h"

namespace farandole::trainer {
namespace {

using tools::ErrorReport;

/// The rank that the launcher gave this process, for errors before the job is joined.
int launched_rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "FARANDOLE_RANK", "RANK"}) {
    if (const char* value = std::getenv(variable)) return std::atoi(value);
  }
  return 0;
}

std::string describe_error(const std::exception& error, std::optional<int> rank) {
  return fmt::format("rank {}: {}", rank.value_or(launched_rank()), error.what());
}

std::string describe_start(const TrainCommand& command, const World& world, const Communicator& replica,
                           std::size_t parameters, const std::filesystem::path& resumed_from, std::int64_t steps) {
  std::string text = fmt::format(
      "model {}, {} parameters in {}, {} replica{} on {} host{}, global batch {}, transport {}, backend {}",
      command.model, parameters, command.double_precision ? "f64" : "f32", replica.size(),
      replica.size() == 1 ? "" : "s", replica.placement().host_count, replica.placement().host_count == 1 ? "" : "s",
      command.training.global_batch, internals(replica).transport(), world.backend_description());
  if (command.training.deterministic) {
    text += fmt::format(", deterministic with {} micro-batches", command.training.micro_batches);
  }
  if (!command.training.averaging) {
    text +=
        "\nWITHOUT AVERAGING: each replica trains a model of its own; loss and accuracy are rank 0's, use the times "
        "only";
  }
  if (!resumed_from.empty())
    text += fmt::format("\nresumed from {} after {} training steps", resumed_from.string(), steps);
  return text;
}

/// The training of a replica.
template <class Scalar>
void train(const TrainCommand& command, const TrainingData& data, const World& world, Communicator& replica) {
  const bool speaks = replica.rank() == 0;
  std::optional<ProgressLine> progress;
  std::optional<JsonLog> json;
  agree(replica, [&] {
    if (!speaks) return;
    if (!command.json_file.empty() || command.log_steps) {
      json.emplace(command.json_file, command.training.checkpoints.resume);
    }
    if (!command.quiet) {
      progress.emplace(command.training.global_batch, command.training.epochs, command.training.max_steps);
    }
  });
  TrainerOptions options = command.training;
  if (progress || command.log_steps) {
    options.on_step = [&](const StepReport& report) {
      if (progress) progress->step(report);
      if (json && command.log_steps) json->step(report);
    };
  }
  options.on_epoch = [&](const EpochReport& report) {
    if (progress) progress->epoch(report);
    if (json && !command.json_file.empty()) json->epoch(report, false);
  };
  Model<Scalar> model(data.training->shape(),
                      layers_of<Scalar>(command.model, command.synchronized_batch_normalization));
  const std::size_t parameters = model.parameters().size();
  Trainer<Scalar> trainer(replica, std::move(model), data.training, data.test, std::move(options));
  if (progress) {
    progress->start(
        describe_start(command, world, replica, parameters, trainer.resumed_from(), trainer.training_steps()));
  }
  const EpochReport report = trainer.fit();
  if (progress) progress->finish(report);
  if (json && !command.json_file.empty()) json->epoch(report, true);
}

/// The data, read once per process. An error becomes the error of each replica of the process.
class SharedData {
 public:
  const TrainingData& load(const std::filesystem::path& directory) {
    std::call_once(loaded_, [&] {
      try {
        data_ = load_fashion_mnist(directory);
      } catch (...) {
        error_ = std::current_exception();
      }
    });
    if (error_) std::rethrow_exception(error_);
    return data_;
  }

 private:
  std::once_flag loaded_;
  TrainingData data_;
  std::exception_ptr error_;
};

/// Trains on a replica. Returns false after an error that all ranks raise together: the error is printed, and the job
/// is shut down cleanly.
bool run_replica(const TrainCommand& command, const World& world, Communicator& replica, SharedData& shared,
                 ErrorReport& errors) {
  try {
    require_same(replica, command.shared);
    TrainingData data;
    agree(replica, [&] { data = shared.load(command.data_directory); });
    command.double_precision ? train<double>(command, data, world, replica)
                             : train<float>(command, data, world, replica);
    return true;
  } catch (const RaisedByAll& error) {
    errors.print_of_all(replica, error.origin(),
                        describe_error(dynamic_cast<const std::exception&>(error), replica.rank()));
    return false;
  }
}

/// Joins the job and trains on the replicas of this process.
int run(const TrainCommand& command, ErrorReport& errors) {
  WorldOptions options;
  options.replicas = command.replicas;
  options.expected_size = command.expected_ranks;
  MirroredStrategy strategy(options);
  SharedData shared;
  std::atomic<bool> failed = false;
  strategy.run([&](Communicator& replica) {
    errors.print_errors_of(replica, [&] {
      if (!run_replica(command, strategy.world(), replica, shared, errors)) failed = true;
    });
  });
  return failed ? tools::kExitError : tools::kExitDone;
}

int main(int argc, char** argv) {
  ErrorReport errors("farandole-train", describe_error);
  std::optional<TrainCommand> command;
  const int status = errors.exit_status([&] {
    command = parse_command_line({argv + 1, argv + argc});
    return tools::kExitDone;
  });
  if (!command) return status;
  // After parsing, an InvalidArgument is not the command line's fault: the status is kExitError, not kExitUsage.
  return errors.exit_status([&] { return run(*command, errors); }) == tools::kExitDone ? tools::kExitDone
                                                                                       : tools::kExitError;
}

}  // namespace
}  // namespace farandole::trainer

int main(int argc, char** argv) {
  return farandole::trainer::main(argc, argv);
}
