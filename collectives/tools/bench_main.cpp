// farandole-bench: how long collectives take.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <boost/program_options.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "bench.h"
#include "command_line.h"
#include "farandole/core/error.h"
#include "farandole/core/settings.h"
#include "output_file.h"

namespace po = boost::program_options;

namespace {

using farandole::bench::Options;

constexpr const char* kIntroduction =
    "Measures collectives and checks their results.\n"
    "  mpirun -np 2 farandole-bench --collective allreduce\n"
    "  mpirun -np 2 farandole-bench --peer mpi --memory window\n"
    "  farandole-bench --replicas 4 --collective all --max-bytes 1MiB\n"
    "  mpirun -np 2 farandole-bench --tune=table.json\n";

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

po::options_description description() {
  po::options_description all("Options");
  const auto text = [](const char* value) { return po::value<std::string>()->default_value(value); };
  all.add_options()("help,h", "show this text")(
      "collective,c", text("allreduce"), "one or more of allreduce, broadcast, …, separated by commas, or 'all'")(
      "algorithm,a", po::value<std::string>(), "one or more algorithms, or 'all' (default: what would be chosen)")(
      "min-bytes", text("4"), "smallest vector, e.g. 1K")("max-bytes", text("64MiB"), "largest vector")(
      "factor", po::value<double>()->default_value(4), "from one size to the next")("dtype,d", text("f32"),
                                                                                    "type of the elements")(
      "op,o", text("sum"), "reduction: sum, product, min, max, average")("root", po::value<int>()->default_value(0),
                                                                         "root of the rooted collectives")(
      "replicas", po::value<int>()->default_value(1), "ranks per process, as threads")(
      "iterations,n", po::value<int>()->default_value(0), "samples per size; 0: from the size")(
      "place", text("both"), "in, out, or both: whether input and output are the same memory")(
      "memory", text("user"), "user: ordinary memory; window: memory that all ranks of the host have mapped")(
      "rotate-buffers", po::value<int>()->default_value(1),
      "go round that many pairs of input and output, so that their data is no longer in the caches")(
      "peer", po::value<std::string>(),
      "mpi: also measure the blocking collectives of the MPI that the job was started with, alternating")(
      "mpi-threads", po::value<std::string>(),
      "one: initialise MPI for its main thread only, as MPI_Init does (default with --peer); any: for every thread")(
      "no-check", "do not check the results")("json", po::value<std::string>(), "also write the results to this file")(
      "tune", po::value<std::string>(),
      "measure every algorithm instead, of all collectives unless some are named, and write the fastest ones to this "
      "file, for FARANDOLE_TUNING")("tune-seconds", po::value<double>()->default_value(60),
                                    "how long that may take; what is left then keeps the built-in choice");
  return all;
}

/// @throws InvalidArgument  it is neither `first` nor `second`
bool is_first(const po::variables_map& values, const std::string& option, std::string_view first,
              std::string_view second) {
  const auto& value = values[option].as<std::string>();
  if (value == first || value == second) return value == first;
  throw farandole::InvalidArgument(fmt::format("--{} is '{}'; it must be {} or {}", option, value, first, second));
}

/// What is compared, and with what.
void read_comparison(const po::variables_map& values, Options& options) {
  const bool is_user = is_first(values, "memory", "user", "window");
  options.memory = is_user ? farandole::bench::Memory::kUser : farandole::bench::Memory::kWindow;
  options.pairs = values["rotate-buffers"].as<int>();
  constexpr int kMaxPairs = 4096;
  if (options.pairs < 1 || options.pairs > kMaxPairs) {
    throw farandole::InvalidArgument(
        fmt::format("--rotate-buffers is {}; it must be 1 … {} pairs of buffers", options.pairs, kMaxPairs));
  }
  options.with_peer = values.contains("peer");
  if (options.with_peer && values["peer"].as<std::string>() != "mpi") {
    throw farandole::InvalidArgument(
        fmt::format("--peer is '{}'; the only one is mpi", values["peer"].as<std::string>()));
  }
  options.mpi_from_any_thread =
      values.contains("mpi-threads") ? !is_first(values, "mpi-threads", "one", "any") : !options.with_peer;
  // The World would refuse these too, but does not know the options that led there.
  if (options.replicas == 1) return;
  if (options.with_peer) {
    throw farandole::Unsupported("--peer mpi needs one rank per process: start more processes instead of --replicas");
  }
  if (!options.mpi_from_any_thread) throw farandole::InvalidArgument("--mpi-threads one does not go with --replicas");
}

/// Whether a table is made, and of what.
void read_tuning(const po::variables_map& values, Options& options) {
  options.tune_seconds = values["tune-seconds"].as<double>();
  constexpr double kLongest = 24 * 3600.0;
  if (!(options.tune_seconds > 0 && options.tune_seconds <= kLongest)) {
    throw farandole::InvalidArgument(
        fmt::format("--tune-seconds is {}; it must be more than 0, and at most {}", options.tune_seconds, kLongest));
  }
  if (!values.contains("tune")) {
    if (!values["tune-seconds"].defaulted())
      throw farandole::InvalidArgument("--tune-seconds is only of use with --tune");
    return;
  }
  options.tune_file = values["tune"].as<std::string>();
  for (const char* other : {"algorithm", "json", "peer"}) {
    if (values.contains(other)) {
      throw farandole::InvalidArgument(
          fmt::format("--{} does not go with --tune, which measures all algorithms", other));
    }
  }
}

Options options_from(const po::variables_map& values) {
  Options options;
  read_tuning(values, options);
  const bool by_default = values["collective"].defaulted() && !options.tune_file.empty();
  const std::string collective = by_default ? "all" : values["collective"].as<std::string>();
  for (int i = 0; collective == "all" && i < farandole::kCollectiveCount; ++i) {
    options.collectives.push_back(static_cast<farandole::Collective>(i));
  }
  if (collective != "all") {
    for (const std::string& part : split(collective)) options.collectives.push_back(farandole::parse_collective(part));
  }
  if (values.contains("algorithm")) options.algorithms = split(values["algorithm"].as<std::string>());
  options.min_bytes = static_cast<std::size_t>(farandole::parse_bytes(values["min-bytes"].as<std::string>()));
  options.max_bytes = static_cast<std::size_t>(farandole::parse_bytes(values["max-bytes"].as<std::string>()));
  options.factor = values["factor"].as<double>();
  options.dtype = farandole::parse_dtype(values["dtype"].as<std::string>());
  options.op = farandole::parse_reduce_op(values["op"].as<std::string>());
  options.root = values["root"].as<int>();
  options.replicas = values["replicas"].as<int>();
  options.iterations = values["iterations"].as<int>();
  options.check = !values.contains("no-check");
  const auto& place = values["place"].as<std::string>();
  if (place != "in" && place != "out" && place != "both") {
    throw farandole::InvalidArgument(fmt::format("--place is '{}'; it must be in, out or both", place));
  }
  options.in_place = place != "out";
  options.out_of_place = place != "in";
  read_comparison(values, options);
  if (values.contains("json")) options.json_file = values["json"].as<std::string>();
  constexpr double kLargestFactor = 1e9;
  if (!(options.factor > 1 && options.factor <= kLargestFactor)) {
    throw farandole::InvalidArgument(
        fmt::format("--factor is {}; it must be greater than 1, and at most {}", options.factor, kLargestFactor));
  }
  if (options.iterations < 0) {
    throw farandole::InvalidArgument(
        fmt::format("--iterations is {}; it must be a number of samples, or 0", options.iterations));
  }
  if (options.collectives.empty()) {
    throw farandole::InvalidArgument("--collective is empty; name one or more, or 'all'");
  }
  if (options.min_bytes < 1 || options.min_bytes > options.max_bytes) {
    throw farandole::InvalidArgument("--min-bytes must be at least 1 and at most --max-bytes");
  }
  return options;
}

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
    const po::options_description options = description();
    const po::variables_map values = farandole::tools::parse_options({argv + 1, argv + argc}, options);
    if (values.contains("help")) {
      std::ostringstream text;
      text << options;
      fmt::print("{}\n{}", kIntroduction, text.str());
      farandole::tools::check_standard_output();
      return 0;
    }
    if (std::find(argv + 1, argv + argc, std::string_view("--tune")) != argv + argc) warn_of_open_mpi();
    std::string problem;
    const int status = run(options_from(values), problem);
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
