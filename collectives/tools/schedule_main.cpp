// SPDX-License-Identifier: Apache-2.0
// farandole-schedule: verifies, shows and draws the algorithms' schedules, and predicts their costs. Needs no job and
// no network.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.h"
#include "farandole/collectives/algorithms.h"
#include "farandole/collectives/verifier.h"
#include "farandole/core/error.h"
#include "farandole/core/settings.h"
#include "farandole/internal/error_report.h"
#include "output_file.h"
#include "program.h"
#include "schedule_report.h"

namespace farandole::tools {
namespace {

namespace po = boost::program_options;

constexpr int kMaxRanks = 1 << 16;
constexpr int kMaxRanksDrawn = 128;

/// "1-4,8" → 1, 2, 3, 4, 8.
std::set<int> parse_numbers(const std::string& text, int low, int high, std::string_view option) {
  std::set<int> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto dash = part.find('-');
    const int first = parse_number(part.substr(0, dash), low, high, option);
    const int last = dash == std::string::npos ? first : parse_number(part.substr(dash + 1), low, high, option);
    if (last < first) {
      throw InvalidArgument(fmt::format("{} has the range '{}', which ends before it begins.", option, part));
    }
    for (int number = first; number <= last; ++number) {
      numbers.insert(number);
    }
  }
  if (numbers.empty()) {
    throw InvalidArgument(fmt::format("{} is empty; it takes numbers such as 1-8 or 1,2,4.", option));
  }
  return numbers;
}

/// Returns the algorithms that the options name; all algorithms if the options name none.
/// @throws InvalidArgument  the named algorithm does not exist; lists the valid names
std::vector<const Algorithm*> select_algorithms(const po::variables_map& options) {
  std::vector<const Algorithm*> selected;
  std::vector<std::string_view> names;
  for (const Algorithm& algorithm : algorithms()) {
    const bool in_collective = options.count("collective") == 0 ||
                               algorithm.collective == parse_collective(options["collective"].as<std::string>());
    if (in_collective && std::find(names.begin(), names.end(), algorithm.name) == names.end()) {
      names.push_back(algorithm.name);
    }
    if (in_collective &&
        (options.count("algorithm") == 0 || algorithm.name == options["algorithm"].as<std::string>())) {
      selected.push_back(&algorithm);
    }
  }
  if (selected.empty()) {
    const auto word = options["algorithm"].as<std::string>();
    const std::string of = options.count("collective") > 0 ? " of " + options["collective"].as<std::string>() : "";
    throw InvalidArgument(fmt::format("There is no algorithm '{}'{}; valid are {}.{}", word, of, fmt::join(names, ", "),
                                      did_you_mean(word, names)));
  }
  return selected;
}

struct Request {
  const Algorithm* algorithm;
  int size, root, segments;
};

int option_number(const po::variables_map& options, const char* option, int low, int high) {
  return parse_number(options[option].as<std::string>(), low, high, std::string("--") + option);
}

/// Reads the arguments of `show` and `svg`.
Request parse_request(const po::variables_map& options) {
  if (options.count("algorithm") == 0) {
    throw InvalidArgument("Which algorithm? Name one, for example: farandole-schedule show ring --size 8");
  }
  const Algorithm* algorithm = select_algorithms(options).front();
  const int size = option_number(options, "size", 1, kMaxRanks);
  if (!algorithm->supports(size)) {
    throw InvalidArgument(fmt::format("{} {} does not support {} ranks; it needs a power of two.",
                                      name(algorithm->collective), algorithm->name, size));
  }
  return {algorithm, size, option_number(options, "root", 0, size - 1),
          option_number(options, "segments", 1, kMaxSegments)};
}

void write_text(const std::string& file, const std::string& text) {
  if (file == "-") {
    std::cout << text;
    return;
  }
  OutputFile(file).write(text);
}

void draw(const Request& request, const std::string& file) {
  if (request.size > kMaxRanksDrawn) {
    throw InvalidArgument(
        fmt::format("A picture of {} ranks cannot be read; draw up to {}.", request.size, kMaxRanksDrawn));
  }
  write_text(file, svg_picture(*request.algorithm,
                               make_schedules(*request.algorithm, request.size, request.root, request.segments)));
}

struct VerifyCounts {
  int cases = 0;
  std::int64_t schedules = 0;
  int faults = 0;
  int max_dependencies = 0;
};

/// Verifies one algorithm and prints its first three faults.
VerifyCounts verify_algorithm(const Algorithm& algorithm, const std::set<int>& sizes,
                              const std::set<int>& all_segments) {
  VerifyCounts counts;
  for (const int size : sizes) {
    if (!algorithm.supports(size)) continue;
    const std::set<int> roots =
        is_rooted(algorithm.collective) ? std::set<int>{0, size / 2, size - 1} : std::set<int>{0};
    for (const int segments : algorithm.pipelined ? all_segments : std::set<int>{1}) {
      for (const int root : roots) {
        const Verdict verdict = verify(algorithm, size, root, segments);
        ++counts.cases;
        counts.schedules += size;
        counts.max_dependencies = std::max(counts.max_dependencies, verdict.max_dependencies);
        if (!verdict.correct && ++counts.faults <= 3) {
          fmt::print("FAULT {} {}, size {}, root {}, segments {}: {}\n", name(algorithm.collective), algorithm.name,
                     size, root, segments, verdict.fault);
        }
      }
    }
  }
  return counts;
}

int run_verify(const po::variables_map& options) {
  const auto selected = select_algorithms(options);
  const auto sizes_text = options["sizes"].as<std::string>();
  const std::set<int> sizes = parse_numbers(sizes_text, 1, kMaxRanks, "--sizes");
  const std::set<int> segments = parse_numbers(options["segments"].as<std::string>(), 1, kMaxSegments, "--segments");
  const bool any_supported = std::any_of(selected.begin(), selected.end(), [&](const Algorithm* algorithm) {
    return std::any_of(sizes.begin(), sizes.end(), [&](int size) { return algorithm->supports(size); });
  });
  if (!any_supported) {
    throw InvalidArgument(fmt::format("--sizes has '{}', none of which {} supports; it needs a power of two.",
                                      sizes_text, selected.front()->name));
  }
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const auto begin = Clock::now();
  VerifyCounts all;
  fmt::print("{:<15} {:<22} {:<10} {:>9}  {:<17} {:>17} {:>8}\n", "collective", "algorithm", "sizes", "schedules",
             "steps and rounds", "most dependencies", "seconds");
  for (const Algorithm* algorithm : selected) {
    const auto start = Clock::now();
    const VerifyCounts counts = verify_algorithm(*algorithm, sizes, segments);
    const std::string result = counts.faults > 0  ? fmt::format("{} faults", counts.faults)
                               : counts.cases > 0 ? "correct, =formula"
                                                  : "size unsupported";
    fmt::print("{:<15} {:<22} {:<10} {:>9}  {:<17} {:>17} {:>8.2f}\n", name(algorithm->collective), algorithm->name,
               sizes_text, counts.schedules, result, counts.max_dependencies, seconds_since(start));
    std::fflush(stdout);
    all.cases += counts.cases;
    all.schedules += counts.schedules;
    all.faults += counts.faults;
  }
  fmt::print("{} algorithms, {} cases, {} schedules: {} in {:.1f} s\n", selected.size(), all.cases, all.schedules,
             all.faults == 0 ? "all correct, free of deadlock and hazards, rounds and messages as their formulas say"
                             : fmt::format("{} cases are faulty", all.faults),
             seconds_since(begin));
  return all.faults == 0 ? kExitDone : kExitError;
}

int run_show(const po::variables_map& options) {
  const Request request = parse_request(options);
  const bool one = options.count("rank") > 0;
  const int first = one ? option_number(options, "rank", 0, request.size - 1) : 0;
  const int last = one ? first : request.size - 1;
  for (int rank = first; rank <= last; ++rank) {
    const Place place{rank, request.size, request.root};
    std::cout << (rank > first ? "\n" : "")
              << step_table(*request.algorithm, request.algorithm->make(place, request.segments));
  }
  if (options.count("svg") > 0) draw(request, options["svg"].as<std::string>());
  return 0;
}

int run_svg(const po::variables_map& options) {
  draw(parse_request(options), options["output"].as<std::string>());
  return 0;
}

std::vector<std::string> link_names() {
  std::vector<std::string> names;
  for (const Link& link : links()) names.emplace_back(link.name);
  return names;
}

/// Returns the link that --link names. --latency-us and --gbps override the link's values.
Link parse_link(const po::variables_map& options) {
  Link chosen{};
  if (options.count("link") > 0) {
    const auto word = options["link"].as<std::string>();
    const auto known = links();
    const auto found = std::find_if(known.begin(), known.end(), [&](const Link& link) { return link.name == word; });
    if (found == known.end()) {
      const std::vector<std::string> names = link_names();
      throw InvalidArgument(fmt::format("There is no link '{}'; valid are {}.{}", word, fmt::join(names, ", "),
                                        did_you_mean(word, {names.begin(), names.end()})));
    }
    chosen = *found;
  }
  const auto overrides = [&](const char* option) { return options.count("link") == 0 || !options[option].defaulted(); };
  if (overrides("latency-us"))
    chosen.latency_us = parse_decimal(options["latency-us"].as<std::string>(), "--latency-us");
  if (overrides("gbps")) chosen.gbps = parse_decimal(options["gbps"].as<std::string>(), "--gbps");
  if (chosen.gbps == 0) throw InvalidArgument("--gbps is 0; it must be more.");
  return chosen;
}

int run_cost(const po::variables_map& options) {
  const int size = option_number(options, "size", 1, 4096);
  const Place place{0, size, option_number(options, "root", 0, size - 1)};
  const std::int64_t bytes = parse_bytes(options["bytes"].as<std::string>());
  const Link link = parse_link(options);
  const auto selected = select_algorithms(options);
  // 0 stands for the fastest number for each algorithm.
  const int segments = options.count("segments") > 0 ? option_number(options, "segments", 1, kMaxSegments) : 0;
  const Network network{link.latency_us * 1e-6, link.gbps * 1e9 / 8};
  fmt::print("{} of {} among {} ranks; {} us a round, {} Gbit/s for each rank and direction\n",
             options["collective"].as<std::string>(), bytes_text(static_cast<double>(bytes)), size, link.latency_us,
             link.gbps);
  fmt::print("{:<22} {:>8} {:>7} {:>9} {:>18} {:>14}\n", "algorithm", "segments", "rounds", "messages",
             "most sent by rank", "predicted time");
  for (const Algorithm* algorithm : selected) {
    if (!algorithm->supports(size)) {
      fmt::print("{:<22} does not support {} ranks\n", algorithm->name, size);
      continue;
    }
    const auto total = static_cast<double>(bytes);
    const Prediction prediction = segments > 0
                                      ? predict(*algorithm, place, algorithm->pipelined ? segments : 1, total, network)
                                      : predict_best(*algorithm, place, total, network);
    fmt::print("{:<22} {:>8} {:>7} {:>9} {:>18} {:>14}\n", algorithm->name, prediction.segments, prediction.cost.rounds,
               prediction.cost.messages, bytes_text(prediction.bytes_sent), seconds_text(prediction.seconds));
  }
  return 0;
}

using AddOptions = void (*)(po::options_description_easy_init add);
using Run = int (*)(const po::variables_map& options);

void add_request(po::options_description_easy_init add) {
  add("collective,c", word("COLLECTIVE"), "which collective (default: the first that has the algorithm)");
  add("algorithm,a", word("ALGORITHM"), "which algorithm (also without --algorithm)");
  add("size,n", word("P", "8"), "number of ranks");
  add("root", word("RANK", "0"), "for broadcast, reduce, gather and scatter");
  add("segments,s", word("S", "1"), "segments of each chunk");
}

void add_verify(po::options_description_easy_init add) {
  add("collective,c", word("COLLECTIVE"), "only this collective");
  add("algorithm,a", word("ALGORITHM"), "only algorithms of this name");
  add("sizes,n", word("LIST", "1-64"), "numbers of ranks: 1-8,16");
  add("segments,s", word("LIST", "1,3"), "segments of each chunk, for algorithms that have them");
}

void add_show(po::options_description_easy_init add) {
  add_request(add);
  add("rank,r", word("RANK"), "only this rank");
  add("svg", word("FILE"), "draw it too, into this file");
}

void add_svg(po::options_description_easy_init add) {
  add_request(add);
  add("output,o", word("FILE", "-"), "where to; - is the terminal");
}

void add_cost(po::options_description_easy_init add) {
  add("collective,c", word("COLLECTIVE", "allreduce"), "which collective");
  add("algorithm,a", word("ALGORITHM"), "only this algorithm");
  add("size,n", word("P", "8"), "number of ranks");
  add("bytes,b", word("BYTES", "1MiB"), "of the whole vector (allgather, gather: all ranks' together)");
  add("root", word("RANK", "0"), "for rooted collectives");
  add("segments,s", word("S"), "segments of each chunk; without it the best of 1-256");
  add("link", word("LINK"), "between GPUs: latency and Gbit/s, nominal, not measured");
  add("latency-us", word("US", "1"), "of each round, in microseconds");
  add("gbps", word("GBPS", "10"), "Gbit/s of each rank, in each direction");
}

struct CommandEntry {
  const char* name;
  const char* operand;
  const char* purpose;
  AddOptions add_options;
  Run run;
};

constexpr CommandEntry kCommands[] = {
    {"verify", "", "run all ranks' schedules on symbols and prove them correct", add_verify, run_verify},
    {"show", "ALGORITHM", "print the steps of one rank or of all", add_show, run_show},
    {"svg", "ALGORITHM", "draw the messages of all ranks, round by round", add_svg, run_svg},
    {"cost", "", "compare what the algorithms of a collective cost", add_cost, run_cost},
};

Program describe_program() {
  Program program;
  program.name = "farandole-schedule";
  program.purpose = "verify, show, draw and cost the algorithms of the collectives";
  program.description = {
      "An algorithm is a function that makes a schedule for each rank: sends, receives, reductions and copies, as "
      "data. This program runs schedules on symbols to prove them, prints and draws them, and predicts their times on "
      "a network. It needs no job and no network."};
  add_common_options(program.options.emplace_back("Options"));
  for (const CommandEntry& entry : kCommands) {
    Command& command = program.commands.emplace_back();
    command.name = entry.name;
    command.operand = entry.operand;
    command.purpose = entry.purpose;
    OptionGroup& options = command.options.emplace_back("Options");
    entry.add_options(options.options.add_options());
    add_common_options(options);
  }
  program.values = {{"COLLECTIVE", collective_names()}, {"ALGORITHM", schedule_names()}, {"LINK", link_names()}};
  program.examples = {
      {"farandole-schedule verify --sizes 1-64", "All algorithms, for up to 64 ranks:"},
      {"farandole-schedule show double_tree --size 6 --rank 3", "One rank's steps:"},
      {"farandole-schedule svg halving_doubling --size 8 -o picture.svg", "A picture of all messages:"},
      {"farandole-schedule cost --collective allreduce --size 8 --bytes 1MiB", "Predicted times:"},
      {"farandole-schedule cost --bytes 1MiB --link nvlink4", "Between GPUs, by the links' nominal rates:"}};
  program.when_1 = "a schedule is faulty, or a file cannot be written";
  program.when_2 = "wrong options";
  program.is_part_of_job = false;
  program.see_also = {"farandole-bench", "farandole-info"};
  return program;
}

int run_command(const Program& program, std::size_t index, const std::vector<std::string>& arguments) {
  po::positional_options_description positional;
  positional.add("algorithm", 1);
  const Command& command = program.commands[index];
  const po::variables_map options = parse_options(arguments, command.options, positional);
  return answer(options, program, &command) ? 0 : kCommands[index].run(options);
}

int run(std::vector<std::string> arguments) {
  const Program program = describe_program();
  if (arguments.empty()) {
    fmt::print("{}", help_text(program, nullptr));
    return kExitUsage;
  }
  if (arguments[0] == "help") arguments[0] = "--help";
  if (arguments[0].starts_with('-')) {
    if (answer(parse_options(arguments, program.options), program)) return 0;
    throw InvalidArgument("Which command? farandole-schedule --help lists them.");
  }
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < program.commands.size(); ++i) {
    names.push_back(program.commands[i].name);
    if (arguments[0] == names.back()) return run_command(program, i, {arguments.begin() + 1, arguments.end()});
  }
  throw InvalidArgument(fmt::format("There is no command '{}'; valid are {}.{}", arguments[0], fmt::join(names, ", "),
                                    did_you_mean(arguments[0], names)));
}

}  // namespace
}  // namespace farandole::tools

int main(int argc, char** argv) {
  farandole::ErrorReport errors("farandole-schedule");
  return errors.exit_status([&] {
    const int status = farandole::tools::run({argv + 1, argv + argc});
    farandole::tools::check_standard_output();
    return status;
  });
}
