// SPDX-License-Identifier: Apache-2.0
// farandole-bench: how long collectives take.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench.h"
#include "bench_options.h"
#include "command_line.h"
#include "farandole/core/error.h"
#include "output_file.h"

namespace {

using farandole::bench::Options;

/// "all" stands for every algorithm of the one collective named.
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

/// Open MPI's mpirun looks for its own --tune among the words that belong to the program.
void warn_of_open_mpi() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr || std::string_view(rank) != "0") return;
  fmt::print(stderr,
             "farandole-bench: mpirun of Open MPI takes '--tune FILE' for an option of its own, and complains of the "
             "file; write --tune=FILE\n");
}

/// The file that rank 0 writes. A problem with it is kept until all ranks have left the job in good order.
class Output {
 public:
  explicit Output(const Options& options) : path_(options.tune_file.empty() ? options.json_file : options.tune_file) {}
  /// Rank 0 opens the file, before anything is measured. Collective over `ranks`.
  bool open(farandole::Communicator& ranks) {
    if (path_.empty()) return true;
    if (ranks.rank() == 0) attempt([&] { file_.emplace(path_); });
    std::vector<std::uint8_t> failed{static_cast<std::uint8_t>(problem_.empty() ? 0 : 1)};
    ranks.broadcast(failed, 0);
    return failed[0] == 0;
  }
  void write(const std::string& text) {
    if (file_) attempt([&] { file_->write(text); });
  }
  const std::string& problem() const { return problem_; }

 private:
  template <class Action>
  void attempt(const Action& action) {
    try {
      action();
    } catch (const farandole::DataError& error) {
      problem_ = error.what();
    }
  }
  const std::string path_;
  std::optional<farandole::tools::OutputFile> file_;
  std::string problem_;
};

/// Whether all results are right. Collective over `ranks`.
bool measure(farandole::Communicator& ranks, const Options& options, const farandole::bench::Peer* peer,
             Output& output) {
  if (!output.open(ranks)) return false;
  if (!options.tune_file.empty()) {
    output.write(farandole::bench::tune(ranks, options).to_json());
    return true;
  }
  if (ranks.rank() == 0) farandole::bench::print_header(options, ranks, peer);
  const auto results = farandole::bench::run(ranks, options, peer);
  output.write(farandole::bench::to_json(options, peer, results));
  return std::all_of(results.begin(), results.end(), [](const auto& result) { return result.wrong == 0; });
}

/// @param problem  why the results can not be written, where this rank would write them
int run(Options options, std::string& problem) {
  farandole::WorldOptions world_options;
  world_options.replicas = options.replicas;
  world_options.mpi_from_any_thread = options.mpi_from_any_thread;
  farandole::World world(world_options);
  expand_algorithms(options, world.size());
  if (options.root < 0 || options.root >= world.size()) {
    throw farandole::InvalidArgument(fmt::format("--root is {}; it must be 0 … {}", options.root, world.size() - 1));
  }
  if (!options.tune_file.empty()) farandole::bench::check_tunable(world.settings(), options, world.size());
  std::optional<farandole::bench::Peer> opened;
  if (options.with_peer) opened = farandole::bench::open_peer(world);
  std::atomic<bool> good{true};
  farandole::run_replicas(world, [&](farandole::Communicator& ranks) {
    Output output(options);
    if (!measure(ranks, options, opened ? &*opened : nullptr, output)) good = false;
    if (ranks.rank() == 0) problem = output.problem();
  });
  if (good && problem.empty() && world.rank() == 0 && !options.tune_file.empty()) {
    fmt::print("The table is in {0}; FARANDOLE_TUNING={0} uses it.\n", options.tune_file);
  }
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const farandole::tools::Program program = farandole::bench::describe_program();
    const auto values = farandole::tools::parse_options({argv + 1, argv + argc}, program.options);
    if (farandole::tools::answer(values, program)) return 0;
    if (std::find(argv + 1, argv + argc, std::string_view("--tune")) != argv + argc) warn_of_open_mpi();
    std::string problem;
    const int status = run(farandole::bench::options_from(values), problem);
    // Not before the job has been left in good order.
    if (!problem.empty()) throw farandole::DataError(problem);
    farandole::tools::check_standard_output();
    return status;
  } catch (const farandole::InvalidArgument& error) {
    fmt::print(stderr, "farandole-bench: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "farandole-bench: {}\n", error.what());
    return 1;
  }
}
