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
#include "error_report.h"
#include "farandole/core/error.h"
#include "output_file.h"

namespace {

using farandole::bench::Options;
using farandole::tools::ErrorReport;

/// Replaces "all" by the names of all algorithms of the collective that the options name.
void expand_algorithms(Options& options, int size) {
  if (options.algorithms != std::vector<std::string>{"all"}) return;
  if (options.collectives.size() != 1) throw farandole::InvalidArgument("--algorithm all needs one --collective");
  options.algorithms.clear();
  for (const auto& algorithm : farandole::algorithms()) {
    if (algorithm.collective == options.collectives[0] && algorithm.supports(size)) {
      options.algorithms.emplace_back(algorithm.name);
    }
  }
}

/// Warns that Open MPI's mpirun takes the program's `--tune FILE` for its own option. Rank 0 prints.
void warn_of_open_mpi() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr || std::string_view(rank) != "0") return;
  fmt::print(stderr,
             "farandole-bench: mpirun of Open MPI takes '--tune FILE' for an option of its own, and complains of the "
             "file; write --tune=FILE\n");
}

/// The output file, which rank 0 writes. A problem with the file is printed instead of thrown, so that all ranks shut
/// down cleanly.
class Output {
 public:
  Output(const Options& options, ErrorReport& errors)
      : path_(options.tune_file.empty() ? options.json_file : options.tune_file), errors_(errors) {}
  /// Rank 0 opens the file, before the measurement. Returns false on all ranks if that fails. Collective over `ranks`.
  bool open(farandole::Communicator& ranks) {
    if (path_.empty()) return true;
    std::string problem = ranks.rank() == 0 ? attempt([&] { file_.emplace(path_); }) : "";
    problem = broadcast_text(ranks, std::move(problem), 0);
    if (!problem.empty()) errors_.print_of_all(ranks, 0, problem);
    return problem.empty();
  }
  /// Rank 0 writes the file. Returns false if the file cannot be written; other ranks always return true.
  bool write(const std::string& text) {
    if (!file_) return true;
    const std::string problem = attempt([&] { file_->write(text); });
    if (!problem.empty()) errors_.print(problem);
    return problem.empty();
  }

 private:
  template <class Action>
  static std::string attempt(const Action& action) {
    try {
      action();
    } catch (const farandole::DataError& error) {
      return error.what();
    }
    return {};
  }
  const std::string path_;
  ErrorReport& errors_;
  std::optional<farandole::tools::OutputFile> file_;
};

/// Returns true if all results are correct and the output file is written. Collective over `ranks`.
bool measure(farandole::Communicator& ranks, const Options& options, const farandole::bench::Peer* peer,
             Output& output) {
  if (!output.open(ranks)) return false;
  if (!options.tune_file.empty()) return output.write(farandole::bench::tune(ranks, options).to_json());
  if (ranks.rank() == 0) farandole::bench::print_header(options, ranks, peer);
  const auto results = farandole::bench::run(ranks, options, peer);
  const bool is_written = output.write(farandole::bench::to_json(options, peer, results));
  return is_written &&
         std::all_of(results.begin(), results.end(), [](const auto& result) { return result.wrong == 0; });
}

/// Measures in the job and returns the exit status. Collective over the job's processes.
int run_in(farandole::World& world, Options options, ErrorReport& errors) {
  expand_algorithms(options, world.size());
  if (options.root < 0 || options.root >= world.size()) {
    throw farandole::InvalidArgument(fmt::format("--root is {}; it must be 0 … {}", options.root, world.size() - 1));
  }
  if (!options.tune_file.empty()) farandole::bench::check_tunable(world.settings(), options, world.size());
  std::optional<farandole::bench::Peer> opened;
  if (options.with_peer && !options.peer_is_nccl) opened = farandole::bench::open_peer(world);
  if (options.peer_is_nccl) opened = farandole::bench::Peer{"NCCL", nullptr};
  std::atomic<bool> succeeded{true};
  farandole::run_replicas(world, [&](farandole::Communicator& ranks) {
    errors.print_errors_of(ranks, [&] {
      Output output(options, errors);
      if (!measure(ranks, options, opened ? &*opened : nullptr, output)) succeeded = false;
    });
  });
  if (succeeded && world.rank() == 0 && !options.tune_file.empty()) {
    fmt::print("The table is in {0}; FARANDOLE_TUNING={0} uses it.\n", options.tune_file);
  }
  return succeeded ? farandole::tools::kExitDone : farandole::tools::kExitError;
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
    const auto values = farandole::tools::parse_options({argv + 1, argv + argc}, program.options);
    if (farandole::tools::answer(values, program)) return farandole::tools::kExitDone;
    if (std::find(argv + 1, argv + argc, std::string_view("--tune")) != argv + argc) warn_of_open_mpi();
    const int status = run(farandole::bench::options_from(values), errors);
    farandole::tools::check_standard_output();
    return status;
  });
}
