// SPDX-License-Identifier: Apache-2.0
// farandole-bench: measures the time of collectives.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench.h"
#include "bench_options.h"
#include "command_line.h"
#include "farandole/collectives/agreement.h"
#include "farandole/collectives/algorithms.h"
#include "farandole/core/error.h"
#include "farandole/internal/error_report.h"
#include "output_file.h"
#include "terminal.h"

namespace {

using farandole::ErrorReport;
using farandole::bench::Options;

/// Replaces "all" by the names of all algorithms. options_from ensures that there is only one collective then.
void expand_algorithms(Options& options, int size) {
  if (options.algorithms != std::vector<std::string>{farandole::bench::kAll}) return;
  options.algorithms.clear();
  for (const auto& algorithm : farandole::algorithms()) {
    if (algorithm.collective == options.collectives[0] && algorithm.supports(size)) {
      options.algorithms.emplace_back(algorithm.name);
    }
  }
}

/// Checks options whose valid values depend on the job. @throws InvalidArgument
void check_in_job(const Options& options, const farandole::World& world) {
  const int size = world.size();
  if (options.root < 0 || options.root >= size) {
    throw farandole::InvalidArgument(fmt::format("--root is {}; it must be 0 … {}", options.root, size - 1));
  }
  for (const farandole::Collective collective : options.collectives) {
    for (const std::string& name : options.algorithms) {
      const farandole::Algorithm* const algorithm = farandole::find_algorithm(collective, name);
      if (algorithm == nullptr || algorithm->supports(size)) continue;
      throw farandole::InvalidArgument(fmt::format("{} of {} does not support {} ranks; it needs a power of two", name,
                                                   farandole::name(collective), size));
    }
  }
  if (!options.tune_file.empty()) farandole::bench::check_tunable(world.settings(), options, size);
}

/// Warns that Open MPI's mpirun mistakes the program's `--tune FILE` for an option of mpirun. Only rank 0 prints.
void warn_of_open_mpi() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr || std::string_view(rank) != "0") return;
  fmt::print(stderr,
             "farandole-bench: mpirun of Open MPI takes '--tune FILE' for an option of its own, and complains of the "
             "file; write --tune=FILE\n");
}

/// The output file, which rank 0 writes. All ranks throw rank 0's error, so that the job shuts down cleanly.
class Output {
 public:
  Output(farandole::Communicator& ranks, const Options& options)
      : ranks_(ranks), path_(options.tune_file.empty() ? options.json_file : options.tune_file) {}
  /// Rank 0 opens the file, before the measurement. Collective. @throws DataError  on all ranks
  void open() {
    if (path_.empty()) return;
    agree(ranks_, [&] {
      if (ranks_.rank() == 0) file_.emplace(path_);
    });
  }
  /// Rank 0 writes the file. Collective. @throws DataError  on all ranks
  void write(const std::string& text) {
    if (path_.empty()) return;
    agree(ranks_, [&] {
      if (file_) file_->write(text);
    });
  }

 private:
  farandole::Communicator& ranks_;
  const std::string path_;
  std::optional<farandole::tools::OutputFile> file_;
};

/// Returns true if all results are correct. Collective over `ranks`.
bool measure(farandole::Communicator& ranks, const Options& options, const farandole::bench::Peer* peer) {
  Output output(ranks, options);
  output.open();
  if (!options.tune_file.empty()) {
    output.write(farandole::bench::tune(ranks, options).to_json());
    return true;
  }
  const auto results = farandole::bench::run(ranks, options, peer);
  if (options.check && ranks.rank() == 0) farandole::bench::print_verdict(results);
  output.write(farandole::bench::to_json(options, peer, results));
  return std::all_of(results.begin(), results.end(), [](const auto& result) { return result.wrong == 0; });
}

/// Measures in the job. Returns the exit status. Collective over the job's processes.
int run_in(farandole::World& world, Options options, ErrorReport& errors) {
  expand_algorithms(options, world.size());
  if (const auto terminal = farandole::tools::terminal_of_standard_output()) {
    options.columns = farandole::tools::columns_of(*terminal);
  }
  std::optional<farandole::bench::Peer> opened;
  if (options.with_peer && !options.peer_is_nccl) opened = farandole::bench::open_peer(world);
  if (options.peer_is_nccl) opened = farandole::bench::Peer{"NCCL", nullptr};
  std::atomic<int> status{farandole::kExitDone};
  farandole::run_replicas(world, [&](farandole::Communicator& ranks) {
    const int of_rank = errors.print_errors_of(ranks, [&] {
      agree(ranks, [&] { check_in_job(options, world); });
      if (!measure(ranks, options, opened ? &*opened : nullptr)) status = farandole::kExitError;
    });
    if (of_rank != farandole::kExitDone) status = of_rank;
  });
  if (status == farandole::kExitDone && world.rank() == 0 && !options.tune_file.empty()) {
    fmt::print("The table is in {0}; FARANDOLE_TUNING={0} uses it.\n", options.tune_file);
  }
  return status;
}

int run(const Options& options, ErrorReport& errors) {
  farandole::WorldOptions world_options;
  world_options.replicas = options.replicas;
  world_options.mpi_from_any_thread = options.mpi_from_any_thread;
  farandole::World world(world_options);
  return errors.print_errors_of([&] { return run_in(world, options, errors); });
}

}  // namespace

int main(int argc, char** argv) {
  ErrorReport errors("farandole-bench");
  return errors.exit_status([&] {
    const farandole::tools::Program program = farandole::bench::describe_program();
    const std::optional<Options> options = errors.print_errors_of_command_line([&]() -> std::optional<Options> {
      const auto values =
          farandole::tools::parse_options({argv + 1, argv + argc}, program.options, {}, program.foreign_names);
      if (farandole::tools::answer(values, program)) return std::nullopt;
      return farandole::bench::options_from(values);
    });
    if (!options) return farandole::kExitDone;
    if (std::find(argv + 1, argv + argc, std::string_view("--tune")) != argv + argc) warn_of_open_mpi();
    const int status = run(*options, errors);
    farandole::tools::check_standard_output();
    return status;
  });
}
