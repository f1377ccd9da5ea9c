// SPDX-License-Identifier: Apache-2.0
#include "bench_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "farandole/core/error.h"
#include "farandole/core/settings.h"

namespace farandole::bench {
namespace {

namespace po = boost::program_options;
using tools::word;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

template <class Number>
po::typed_value<Number>* number(const char* value_name, Number default_value) {
  return po::value<Number>()->value_name(value_name)->default_value(default_value);
}

void add_calls(po::options_description_easy_init add) {
  add("collective,c", word("COLLECTIVE,...", "allreduce"), "one or more, or all; sendrecv: messages in a ring");
  add("algorithm,a", word("ALGORITHM,..."), "one or more, or all of the collective (default: what would be chosen)");
  add("min-bytes", word("BYTES", "4"), "smallest vector, e.g. 1K");
  add("max-bytes", word("BYTES", "64MiB"), "largest vector");
  add("factor", number<double>("X", 4), "from one size to the next");
  add("dtype,d", word("DTYPE", "f32"), "type of the elements");
  add("op,o", word("OP", "sum"), "reduction");
  add("root", number("RANK", 0), "root of the rooted collectives");
  add("replicas", number("N", 1), "ranks per process, as threads");
  add("iterations,n", number("N", 0), "samples per size; 0: from the size");
  add("time-of", word("rank0|average|slowest", "rank0"),
      "whose time of a sample counts; in a broadcast the root may end long before the slowest rank");
}

void add_memory(po::options_description_easy_init add) {
  add("place", word("in|out|both", "both"), "whether input and output are the same memory");
  add("memory", word("user|window|device", "user"),
      "ordinary memory, memory that all ranks of the host have mapped, or memory of each rank's device");
  add("rotate-buffers", number("N", 1),
      "go round that many pairs of input and output, so that their data is no longer in the caches");
  add("beside", word("BYTES"),
      "measure while an asynchronous allreduce of that many bytes runs on another communicator of the same ranks, "
      "again and again");
}

void add_comparison(po::options_description_easy_init add) {
  add("peer", word("mpi|nccl"),
      "also measure the blocking collectives of the MPI that the job was started with, or, with --memory device, those "
      "of NCCL, alternating");
  add("mpi-threads", word("one|any"),
      "initialise MPI for its main thread only, as MPI_Init does (default with --peer), or for every thread");
}

void add_results(po::options_description_easy_init add) {
  add("no-check", "do not check the results");
  add("wide", "print all columns, up to 232 characters a line");
  add("json", word("FILE"), "also write the results to this file");
  add("tune", word("FILE"),
      "measure every algorithm instead, of all collectives unless some are named, and write the fastest ones to this "
      "file, for FARANDOLE_TUNING");
  add("tune-seconds", number<double>("SECONDS", 60),
      "how long that may take; what is left then keeps the built-in choice");
}

template <class All>
std::vector<std::string> names_of(const All& all) {
  std::vector<std::string> names;
  for (const auto each : all) names.emplace_back(name(each));
  return names;
}

/// True if the option's value is `first`. @throws InvalidArgument  the value is neither `first` nor `second`
bool is_first(const po::variables_map& values, const std::string& option, std::string_view first,
              std::string_view second) {
  const auto& value = values[option].as<std::string>();
  if (value == first || value == second) return value == first;
  throw InvalidArgument(fmt::format("--{} is '{}'; it must be {} or {}", option, value, first, second));
}

/// Returns the member of `all` that the option names. @param names  names of all members, for the error
/// @throws InvalidArgument  the option names no member
template <class T>
T parse_named(const po::variables_map& values, const std::string& option, std::initializer_list<T> all,
              std::string_view names) {
  const auto& text = values[option].as<std::string>();
  for (const T each : all) {
    if (text == name(each)) return each;
  }
  throw InvalidArgument(fmt::format("--{} is '{}'; it must be {}", option, text, names));
}

/// Reads the kind of memory, the number of buffers, the background allreduce and the peer.
void read_comparison(const po::variables_map& values, Options& options) {
  options.memory =
      parse_named(values, "memory", {Memory::kUser, Memory::kWindow, Memory::kDevice}, "user, window or device");
  options.pairs = values["rotate-buffers"].as<int>();
  constexpr int kMaxPairs = 4096;
  if (options.pairs < 1 || options.pairs > kMaxPairs) {
    throw InvalidArgument(
        fmt::format("--rotate-buffers is {}; it must be 1 … {} pairs of buffers", options.pairs, kMaxPairs));
  }
  if (values.contains("beside")) {
    options.beside_bytes = static_cast<std::size_t>(parse_bytes(values["beside"].as<std::string>()));
    if (options.beside_bytes == 0) throw InvalidArgument("--beside is 0; it must be at least 1 byte");
  }
  options.with_peer = values.contains("peer");
  if (options.with_peer && options.beside_bytes > 0) {
    throw InvalidArgument("--beside does not go with --peer, whose collectives know nothing of ours");
  }
  options.peer_is_nccl = options.with_peer && !is_first(values, "peer", "mpi", "nccl");
  const bool with_mpi = options.with_peer && !options.peer_is_nccl;
  if (options.with_peer && options.peer_is_nccl != (options.memory == Memory::kDevice)) {
    throw InvalidArgument("--peer nccl goes with --memory device, and --peer mpi with the other kinds of memory");
  }
  options.mpi_from_any_thread =
      values.contains("mpi-threads") ? !is_first(values, "mpi-threads", "one", "any") : !with_mpi;
  // The World would reject these combinations too, but its message would not name the options.
  if (options.replicas == 1) return;
  if (with_mpi) throw Unsupported("--peer mpi needs one rank per process: start more processes instead of --replicas");
  if (!options.mpi_from_any_thread) throw InvalidArgument("--mpi-threads one does not go with --replicas");
}

/// Reads --tune and --tune-seconds, and rejects options that do not go with --tune.
void read_tuning(const po::variables_map& values, Options& options) {
  options.tune_seconds = values["tune-seconds"].as<double>();
  constexpr double kLongest = 24 * 3600.0;
  if (!(options.tune_seconds > 0 && options.tune_seconds <= kLongest)) {
    throw InvalidArgument(
        fmt::format("--tune-seconds is {}; it must be more than 0, and at most {}", options.tune_seconds, kLongest));
  }
  if (!values.contains("tune")) {
    if (!values["tune-seconds"].defaulted()) throw InvalidArgument("--tune-seconds is only of use with --tune");
    return;
  }
  options.tune_file = values["tune"].as<std::string>();
  if (!values["time-of"].defaulted()) {
    throw InvalidArgument("--time-of does not go with --tune, which takes the slowest rank's");
  }
  for (const char* other : {"algorithm", "beside", "json", "peer"}) {
    if (values.contains(other)) {
      throw InvalidArgument(fmt::format("--{} does not go with --tune, which measures all algorithms", other));
    }
  }
}

/// The value of --collective, which is "all" by default with --tune.
std::string collective_names_of(const po::variables_map& values) {
  const bool is_all = values["collective"].defaulted() && values.contains("tune");
  return is_all ? kAll : values["collective"].as<std::string>();
}

void read_collectives(const po::variables_map& values, Options& options) {
  const std::string names = collective_names_of(values);
  if (names == kAll) {
    for (int i = 0; i < kCollectiveCount; ++i) options.collectives.push_back(static_cast<Collective>(i));
    return;
  }
  for (const std::string& part : split(names)) {
    if (part == kSendRecv) {
      options.sends_and_receives = true;
    } else {
      options.collectives.push_back(parse_collective(part));
    }
  }
}

/// Drops barrier from tuning on device memory, because a barrier has no memory.
/// @param are_named  true if the user listed the collectives; then barrier is an error
void read_device_tuning(bool are_named, Options& options) {
  if (options.tune_file.empty() || options.memory != Memory::kDevice) return;
  const std::size_t left_out = std::erase(options.collectives, Collective::kBarrier);
  if (left_out > 0 && are_named) {
    throw InvalidArgument("--tune with --memory device does not measure barrier, which has no memory; leave it out");
  }
}

/// @throws InvalidArgument  kSendRecv is to be measured in a way that only collectives have
void check_messages(const Options& options) {
  if (!options.sends_and_receives) return;
  const char* const other = !options.algorithms.empty()  ? "--algorithm"
                            : options.with_peer          ? "--peer"
                            : !options.tune_file.empty() ? "--tune"
                                                         : nullptr;
  if (other == nullptr) return;
  throw InvalidArgument(
      fmt::format("{} is for collectives; --collective {} measures messages, so leave it out", other, kSendRecv));
}

/// @throws InvalidArgument  a collective has no algorithm of a given name; lists the valid names
void check_algorithms(const Options& options) {
  if (options.algorithms == std::vector<std::string>{kAll}) {
    if (options.collectives.size() != 1) throw InvalidArgument("--algorithm all needs one --collective");
    return;
  }
  for (const Collective collective : options.collectives) {
    const std::vector<std::string_view> valid = algorithm_names(collective);
    for (const std::string& wanted : options.algorithms) {
      if (std::find(valid.begin(), valid.end(), wanted) != valid.end()) continue;
      throw InvalidArgument(fmt::format("--algorithm is '{}', which {} does not have; valid are {}.{}", wanted,
                                        name(collective), fmt::join(valid, ", "), tools::did_you_mean(wanted, valid)));
    }
  }
}

}  // namespace

tools::Program describe_program() {
  tools::Program program;
  program.name = "farandole-bench";
  program.purpose = "measure collectives and check their results";
  program.description = {
      "Runs collectives on vectors of growing size and prints a table of the median and the 99th percentile of their "
      "times and of the bus bandwidth as nccl-tests define it. Every result is compared with what it must be; a line "
      "with wrong results says how many elements are wrong. With --wide, the table also has the counts and the "
      "algorithm bandwidth, the number of wrong elements of each result, and the 99th percentile of the peer.",
      "With --peer mpi, MPI's own collectives are measured in the same processes, alternating. With --tune, a table of "
      "measured choices is made, for programs that find its name in FARANDOLE_TUNING."};
  tools::OptionGroup& options = program.options.emplace_back("Options");
  add_calls(options.options.add_options());
  add_memory(options.options.add_options());
  add_comparison(options.options.add_options());
  add_results(options.options.add_options());
  tools::add_common_options(options);
  const auto plus = [](std::vector<std::string> words, std::initializer_list<const char*> more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  program.values = {{"COLLECTIVE", plus(tools::collective_names(), {kSendRecv, kAll})},
                    {"ALGORITHM", plus(tools::algorithm_names(), {kAll})},
                    {"DTYPE", names_of(kAllDTypes)},
                    {"OP", names_of(kAllReduceOps)}};
  program.foreign_names = {{"--minbytes", "--min-bytes"}, {"--maxbytes", "--max-bytes"},
                           {"--stepfactor", "--factor"},  {"--datatype", "--dtype"},
                           {"--iters", "--iterations"},   {"--nthreads", "--replicas"},
                           {"--algo", "--algorithm"},     {"--output", "--json"},
                           {"--np", "--replicas"},        {"--message-size", "--max-bytes"}};
  program.examples = {
      {"farandole-run -np 2 farandole-bench --collective allreduce", "Two processes:"},
      {"farandole-run -np 2 farandole-bench --peer mpi --memory window", "Compared with the MPI that starts them:"},
      {"farandole-bench --replicas 4 --collective all --max-bytes 1MiB", "Four threads of one process:"},
      {"farandole-run -np 2 farandole-bench --tune=table.json", "A table of measured choices:"}};
  program.when_1 = "wrong results, or an error";
  program.see_also = {"farandole-info", "farandole-schedule", "farandole-run"};
  return program;
}

Options options_from(const po::variables_map& values) {
  Options options;
  read_tuning(values, options);
  read_collectives(values, options);
  if (values.contains("algorithm")) options.algorithms = split(values["algorithm"].as<std::string>());
  options.min_bytes = static_cast<std::size_t>(parse_bytes(values["min-bytes"].as<std::string>()));
  options.max_bytes = static_cast<std::size_t>(parse_bytes(values["max-bytes"].as<std::string>()));
  options.factor = values["factor"].as<double>();
  options.dtype = parse_dtype(values["dtype"].as<std::string>());
  options.op = parse_reduce_op(values["op"].as<std::string>());
  options.root = values["root"].as<int>();
  options.replicas = values["replicas"].as<int>();
  options.iterations = values["iterations"].as<int>();
  options.time_of =
      parse_named(values, "time-of", {TimeOf::kRank0, TimeOf::kAverage, TimeOf::kSlowest}, "rank0, average or slowest");
  options.check = !values.contains("no-check");
  options.wide = values.contains("wide");
  const auto& place = values["place"].as<std::string>();
  if (place != "in" && place != "out" && place != "both") {
    throw InvalidArgument(fmt::format("--place is '{}'; it must be in, out or both", place));
  }
  options.in_place = place != "out";
  options.out_of_place = place != "in";
  read_comparison(values, options);
  read_device_tuning(/*are_named=*/collective_names_of(values) != kAll, options);
  if (values.contains("json")) options.json_file = values["json"].as<std::string>();
  constexpr double kLargestFactor = 1e9;
  if (!(options.factor > 1 && options.factor <= kLargestFactor)) {
    throw InvalidArgument(
        fmt::format("--factor is {}; it must be greater than 1, and at most {}", options.factor, kLargestFactor));
  }
  if (options.iterations < 0) {
    throw InvalidArgument(fmt::format("--iterations is {}; it must be a number of samples, or 0", options.iterations));
  }
  check_messages(options);
  if (options.collectives.empty() && !options.sends_and_receives) {
    throw InvalidArgument("--collective is empty; name one or more, or 'all'");
  }
  check_algorithms(options);
  if (options.min_bytes < 1 || options.min_bytes > options.max_bytes) {
    throw InvalidArgument("--min-bytes must be at least 1 and at most --max-bytes");
  }
  return options;
}

}  // namespace farandole::bench
