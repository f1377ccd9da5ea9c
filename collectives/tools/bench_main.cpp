// farandole-bench: how long collectives take.
#include <fmt/core.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "bench.h"
#include "command_line.h"
#include "farandole/core/error.h"
#include "farandole/core/settings.h"

namespace po = boost::program_options;

namespace {

using farandole::bench::Options;

constexpr const char* kIntroduction =
    "Measures collectives and checks their results.\n"
    "  mpirun -np 2 farandole-bench --collective allreduce\n"
    "  mpirun -np 2 farandole-bench --peer mpi --memory window\n"
    "  farandole-bench --replicas 4 --collective all --max-bytes 1MiB\n";

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
      "no-check", "do not check the results")("json", po::value<std::string>(), "also write the results to this file");
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

Options options_from(const po::variables_map& values) {
  Options options;
  const auto& collective = values["collective"].as<std::string>();
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

int run(Options options) {
  farandole::WorldOptions world_options;
  world_options.replicas = options.replicas;
  world_options.mpi_from_any_thread = options.mpi_from_any_thread;
  farandole::World world(world_options);
  expand_algorithms(options, world.size());
  if (options.root < 0 || options.root >= world.size()) {
    throw farandole::InvalidArgument(fmt::format("--root is {}; it must be 0 … {}", options.root, world.size() - 1));
  }
  std::optional<farandole::bench::Peer> opened;
  if (options.with_peer) opened = farandole::bench::open_peer(world);
  const farandole::bench::Peer* peer = opened ? &*opened : nullptr;
  long long wrong = 0;
  farandole::run_replicas(world, [&](farandole::Communicator& ranks) {
    if (ranks.rank() == 0) farandole::bench::print_header(options, ranks, peer);
    const auto results = farandole::bench::run(ranks, options, peer);
    if (ranks.rank() != 0) return;
    for (const auto& result : results) wrong += result.wrong;
    if (!options.json_file.empty()) farandole::bench::write_json(options, peer, results);
  });
  return wrong == 0 ? 0 : 1;
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
    const int status = run(options_from(values));
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
