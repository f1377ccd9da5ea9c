// SPDX-License-Identifier: Apache-2.0
// farandole-train: trains a model on many replicas.
#include <fmt/format.h>
#include <sysexits.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>

#include "csv_log.h"
#include "farandole/collectives/agreement.h"
#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/error_report.h"
#include "farandole/trainer/metric.h"
#include "farandole/trainer/models.h"
#include "farandole/trainer/strategy.h"
#include "farandole/trainer/trainer.h"
#include "interrupts.h"
#include "json_log.h"
#include "progress_line.h"
#include "train_data.h"
#include "train_options.h"
#include "used_devices.h"

namespace farandole::trainer {
namespace {

/// @param devices  on which all replicas compute
template <class Scalar>
std::string describe_start(const TrainCommand& command, const World& world, const Communicator& replica,
                           Trainer<Scalar>& trainer, const std::string& devices) {
  std::string text = fmt::format(
      "model {}, {} parameters in {}, {} replica{} on {} host{}, global batch {}, transport {}, backend {}",
      command.model, trainer.model().parameters().size(), command.double_precision ? "f64" : "f32", replica.size(),
      replica.size() == 1 ? "" : "s", replica.placement().host_count, replica.placement().host_count == 1 ? "" : "s",
      command.training.global_batch, internals(replica).transport(), world.backend_description());
  if (command.training.device != ComputeDevice::kCpu) text += fmt::format(", computing on {}", devices);
  if (command.training.compute) {
    text += fmt::format(", products and convolutions in {}", farandole::name(*command.training.compute));
  }
  if (command.training.deterministic) {
    text += fmt::format(", deterministic with {} micro-batches", command.training.micro_batches);
  }
  if (!command.training.averaging) {
    text +=
        "\nWITHOUT AVERAGING: each replica trains a model of its own; loss and accuracy are rank 0's, use the times "
        "only";
  }
  if (!trainer.resumed_from().empty()) {
    text += fmt::format("\nresumed from {} after {} training steps", trainer.resumed_from().string(),
                        trainer.training_steps());
  }
  if (!trainer.changed_options().empty()) {
    text += fmt::format("\nchanged since then: {}", fmt::join(trainer.changed_options(), "; "));
  }
  return text;
}

/// Returns the status of a training that a signal has ended; the same on all ranks. Collective. The status is 128 + the
/// signal, as shells do, but 75 (EX_TEMPFAIL: try again) for SIGUSR1, by which job schedulers announce the end of the
/// job's time.
int interrupted_status(Communicator& replica) {
  std::int64_t signal = Interrupts::received();
  replica.allreduce(BufferView(&signal, 1, DType::kI64), ReduceOp::kMax);
  return signal == SIGUSR1 ? EX_TEMPFAIL : 128 + static_cast<int>(signal);
}

/// The profile as a table, or why there is none.
std::string profile_text(const EpochReport& report) {
  if (report.profile) return describe(*report.profile);
  return "no profile: the first three training steps and incomplete batches do not count, and there were no others; "
         "raise --max-steps, --epochs or --samples\n";
}

/// Where replica 0 reports to; empty on other replicas.
struct Reports {
  std::optional<ProgressLine> progress;
  std::optional<JsonLog> json;
  std::optional<CsvLog> csv;
};

/// Opens the files, and keeps what they hold. Collective. @throws Error  on every replica, if replica 0 cannot open one
void open_reports(Reports& reports, const TrainCommand& command, Communicator& replica) {
  agree(replica, [&] {
    if (replica.rank() != 0) return;
    if (!command.json_file.empty() || command.log_steps) {
      reports.json.emplace(command.json_file);
    }
    if (!command.csv_file.empty()) reports.csv.emplace(command.csv_file);
    if (!command.quiet) {
      // With JSON lines on standard output, no progress line is rewritten between them.
      const bool shows_steps = !command.log_steps || !command.json_file.empty();
      reports.progress.emplace(command.training, shows_steps, standard_output());
    }
  });
}

/// Drops what an earlier training has written to the files after the training step from which this one goes on. Call it
/// when nothing can refuse the training any more.
void begin_reports(Reports& reports, std::int64_t training_steps) {
  if (reports.json) reports.json->begin(training_steps);
  if (reports.csv) reports.csv->begin(training_steps);
}

/// Makes a training report to `reports`, which outlives it.
void report_to(Reports& reports, const TrainCommand& command, TrainerOptions& options) {
  if (reports.progress || command.log_steps) {
    options.on_step = [&reports, logs_steps = command.log_steps](const StepReport& report) {
      if (reports.progress) reports.progress->step(report);
      if (reports.json && logs_steps) reports.json->step(report);
    };
  }
  options.on_epoch = [&reports, logs_epochs = !command.json_file.empty()](const EpochReport& report) {
    if (reports.progress) reports.progress->epoch(report);
    if (reports.json && logs_epochs) reports.json->epoch(report, false);
    if (reports.csv) reports.csv->epoch(report);
  };
}

/// Trains a replica. Returns the exit status.
template <class Scalar>
int train(const TrainCommand& command, const TrainingData& data, const World& world, Communicator& replica,
          Interrupts& interrupts) {
  Reports reports;
  open_reports(reports, command, replica);
  auto& [progress, json, csv] = reports;
  TrainerOptions options = command.training;
  options.device_times = true;
  report_to(reports, command, options);
  // Replicas without averaging share nothing in a training step and could not stop together.
  const bool stops_on_signals = options.averaging || replica.size() == 1;
  if (stops_on_signals) options.stop_requested = [] { return Interrupts::received() != 0; };
  Model<Scalar> model(data.training->shape(),
                      layers_of<Scalar>(command.model, model_options_for(command, *data.training)));
  std::vector<MetricPointer<Scalar>> metrics{accuracy<Scalar>()};
  if (command.top_k > 0) metrics.push_back(top_k_accuracy<Scalar>(command.top_k));
  Trainer<Scalar> trainer(replica, std::move(model), data.training, data.test, std::move(options),
                          cross_entropy_loss<Scalar>(), std::move(metrics));
  const std::vector<LayerWork>& layers = trainer.model().work();
  const std::string devices = describe_used_devices(replica, trainer.model().execution(), layers);
  const std::string attention = describe_attention(trainer.model().execution(), layers);
  if (progress) {
    progress->start(describe_start(command, world, replica, trainer, devices));
    if (command.summary) progress->table(trainer.model().describe());
  }
  begin_reports(reports, trainer.training_steps());
  const SignalStack for_handlers;
  if (stops_on_signals) interrupts.watch(replica.rank() == 0);
  const EpochReport report = trainer.fit();
  if (csv) csv->epoch(report);
  if (progress && command.training.profile) progress->table(profile_text(report));
  const std::string used = describe_attention(trainer.model().execution(), layers);
  if (progress && used != attention) progress->table(used + "\n");
  if (report.stopped) {
    if (progress) progress->interrupted(report, command.training.checkpoints.directory);
    return interrupted_status(replica);
  }
  if (progress) progress->finish(report);
  if (json && !command.json_file.empty()) json->epoch(report, true);
  return kExitDone;
}

/// Reads the data once per process. If reading fails, every replica of the process gets the error.
class SharedData {
 public:
  const TrainingData& load(const DataCommand& command) {
    std::call_once(loaded_, [&] {
      try {
        data_ = load_data(command);
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

/// Joins the job and trains on the replicas of this process.
int run(const TrainCommand& command, ErrorReport& errors) {
  WorldOptions options;
  options.replicas = command.replicas;
  options.replica_for_each_device = command.replica_for_each_device;
  options.expected_size = command.expected_ranks;
  MirroredStrategy strategy(options);
  SharedData shared;
  Interrupts interrupts;
  std::atomic<int> status{kExitDone};
  strategy.run([&](Communicator& replica) {
    int of_replica = kExitDone;
    const int of_error = errors.print_errors_of(replica, [&] {
      require_same(replica, command.shared);
      TrainingData data;
      agree(replica, [&] { data = shared.load(command.data); });
      of_replica = command.double_precision ? train<double>(command, data, strategy.world(), replica, interrupts)
                                            : train<float>(command, data, strategy.world(), replica, interrupts);
    });
    // An error's exit status takes precedence. Every replica has the same status.
    status = of_error != kExitDone ? of_error : of_replica;
  });
  return status;
}

/// Makes OpenMP's threads sleep soon when they wait for each other, unless the user has chosen how they wait. By
/// default they spin for milliseconds, and if another program runs on one of their cores, the training is 10 times
/// slower or more. libgomp reads the variable when it is loaded, so this program starts itself once more. No-op without
/// /proc.
void limit_spinning(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("GOMP_SPINCOUNT", "1000", 1);
  std::error_code no_proc;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", no_proc);
  if (!no_proc) execv(program.c_str(), argv);  // comes back only if it fails
}

int main(int argc, char** argv) {
  limit_spinning(argv);
  ErrorReport errors("farandole-train");
  return errors.exit_status([&] {
    const std::optional<TrainCommand> command = errors.print_errors_of_command_line([&] {
      return parse_command_line({argv + 1, argv + argc});
    });
    return command ? run(*command, errors) : kExitDone;
  });
}

}  // namespace
}  // namespace farandole::trainer

int main(int argc, char** argv) {
  return farandole::trainer::main(argc, argv);
}
