// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench.h"
#include "farandole/internal/communicator_access.h"

namespace farandole::bench {
namespace {

/// A column of measured values in a half of a line (out of place, or in place).
struct Column {
  std::string_view title;
  int width;     // characters, including the blank before
  int decimals;  // digits after the point
  double (*value)(const Result&);
};

double median(const Result& result) {
  return result.ours.p50_us;
}
double percentile_99(const Result& result) {
  return result.ours.p99_us;
}
double bus_bandwidth(const Result& result) {
  return result.busbw_gbs();
}
double peer_median(const Result& result) {
  return result.peer.p50_us;
}
double peer_ratio(const Result& result) {
  return result.ratio();
}

constexpr Column kWide[] = {{"p50 us", 13, 2, median},
                            {"p99 us", 12, 2, percentile_99},
                            {"algbw", 9, 2, [](const Result& result) { return result.algbw_gbs(); }},
                            {"busbw", 9, 2, bus_bandwidth},
                            {"#wrong", 8, 0, [](const Result& result) { return static_cast<double>(result.wrong); }}};
constexpr Column kWidePeer[] = {{"peer p50 us", 13, 2, peer_median},
                                {"peer p99 us", 13, 2, [](const Result& result) { return result.peer.p99_us; }},
                                {"ratio", 8, 2, peer_ratio}};
// Widths in characters: names 45 + half 27 + bar 1 + half 27 = 100. With one half: 45 + 27 = 72. The narrowest line
// drops the half's middle column and takes 43 for the names: 60.
constexpr std::size_t kColumnsOfBothHalves = 100, kColumnsOfOneHalf = 72;
constexpr Column kNarrow[] = {
    {"p50 us", 10, 2, median}, {"p99 us", 10, 2, percentile_99}, {"busbw", 7, 2, bus_bandwidth}};
constexpr Column kNarrowPeer[] = {
    {"p50 us", 10, 2, median}, {"peer us", 10, 2, peer_median}, {"ratio", 7, 2, peer_ratio}};

/// True if the terminal is too narrow for a line with both halves.
bool shows_one_half(const Options& options) {
  return !options.wide && options.columns < kColumnsOfBothHalves;
}
bool is_narrowest(const Options& options) {
  return !options.wide && options.columns < kColumnsOfOneHalf;
}

std::vector<Column> columns(const Options& options) {
  std::vector<Column> all;
  const auto add = [&all](const auto& more) { all.insert(all.end(), std::begin(more), std::end(more)); };
  if (options.wide) {
    add(kWide);
    if (options.with_peer) add(kWidePeer);
  } else {
    options.with_peer ? add(kNarrowPeer) : add(kNarrow);
    if (is_narrowest(options)) all.erase(all.begin() + 1);
  }
  return all;
}

int width(const Options& options) {
  int sum = 0;
  for (const Column& column : columns(options)) sum += column.width;
  return sum;
}

std::string half(const Options& options, const Result* result) {
  if (result == nullptr) return std::string(static_cast<std::size_t>(width(options)), ' ');
  std::string text;
  for (const Column& column : columns(options)) {
    text += fmt::format(" {:>{}.{}f}", column.value(*result), column.width - 1, column.decimals);
  }
  return text;
}

std::string half_header(const Options& options) {
  std::string text;
  for (const Column& column : columns(options)) text += fmt::format("{:>{}}", column.title, column.width);
  return text;
}

/// The names at the beginning of a line, before the halves. @param first  "#" or " "
std::string names(const Options& options, std::string_view first, std::string_view collective,
                  std::string_view algorithm, std::string_view bytes, std::string_view count) {
  if (!options.wide) {
    return fmt::format("{}{:<14} {:<18} {:>{}}", first, collective, algorithm, bytes, is_narrowest(options) ? 8 : 10);
  }
  return fmt::format("{}{:<14} {:<20} {:>11} {:>11}", first, collective, algorithm, bytes, count);
}

std::string_view describe(Memory memory) {
  if (memory == Memory::kDevice) return "of devices";
  return memory == Memory::kUser ? "ordinary" : "windows";
}

std::string_view describe(TimeOf time_of) {
  if (time_of == TimeOf::kAverage) return "average of the ranks";
  return time_of == TimeOf::kRank0 ? "on rank 0" : "on the slowest rank of each";
}

/// The measured halves of a line (out of place, in place), side by side.
std::string halves(const Options& options, const std::string& out_of_place, const std::string& in_place) {
  if (!options.measures_any(true)) return out_of_place;
  if (!options.measures_any(false)) return in_place;
  if (shows_one_half(options)) return options.out_of_place ? out_of_place : in_place;
  return out_of_place + (options.wide ? " |" : "|") + in_place;
}

}  // namespace

std::string_view name(Memory memory) {
  if (memory == Memory::kDevice) return "device";
  return memory == Memory::kUser ? "user" : "window";
}

std::string_view name(TimeOf time_of) {
  if (time_of == TimeOf::kAverage) return "average";
  return time_of == TimeOf::kRank0 ? "rank0" : "slowest";
}

void print_header(const Options& options, const Communicator& ranks, const Peer* peer) {
  const int hosts = ranks.placement().host_count;
  fmt::print("# farandole-bench: {} rank{} on {} host{}, {}, type {}, op {}, root {}\n", ranks.size(),
             ranks.size() == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s", internals(ranks).transport(),
             name(options.dtype), name(options.op), options.root);
  fmt::print("# memory: {}, {} pair{}\n", describe(options.memory), options.pairs,
             options.pairs == 1 ? " of buffers" : "s of buffers, in turn");
  if (options.beside_bytes > 0) {
    fmt::print("# beside: an allreduce of {} bytes on another communicator\n", options.beside_bytes);
  }
  fmt::print("# time: median of calls after a barrier, {}\n", describe(options.time_of));
  if (options.wide) {
    fmt::print("# algbw, busbw: GB/s as nccl-tests define them; #wrong: elements, all ranks\n");
  } else if (peer == nullptr) {
    fmt::print("# busbw: GB/s as nccl-tests define it\n");
  }
  if (peer != nullptr) {
    fmt::print("# peer: the blocking collectives of {} on {} memory, alternating with ours\n", peer->version,
               options.peer_is_nccl ? "the same" : "ordinary");
    fmt::print("# ratio: median of the peer / ours; above 1 Farandole is faster\n");
  }
  if (shows_one_half(options) && options.out_of_place && options.measures_any(true) && options.measures_any(false)) {
    const auto& all = options.collectives;
    const bool has_broadcast = std::find(all.begin(), all.end(), Collective::kBroadcast) != all.end();
    fmt::print("# {}{} columns show both placements\n", has_broadcast ? "broadcast: in place; " : "",
               kColumnsOfBothHalves);
  }
  const std::string places = halves(options, fmt::format("{:>{}}", "out of place", width(options)),
                                    fmt::format("{:>{}}", "in place", width(options)));
  const std::string titles = half_header(options);
  fmt::print("{}{}\n", names(options, "#", "", "", "", ""), places);
  fmt::print("{}{}\n", names(options, "#", "collective", "algorithm", "bytes", "count"),
             halves(options, titles, titles));
}

void print_line(const Options& options, const Result* out_of_place, const Result* in_place) {
  const Result& any = out_of_place != nullptr ? *out_of_place : *in_place;
  fmt::print(
      "{}{}",
      names(options, " ", any.measured.name(), any.algorithm, std::to_string(any.bytes), std::to_string(any.count)),
      shows_one_half(options) ? half(options, &any)
                              : halves(options, half(options, out_of_place), half(options, in_place)));
  const long long wrong =
      (out_of_place != nullptr ? out_of_place->wrong : 0) + (in_place != nullptr ? in_place->wrong : 0);
  if (!options.wide && wrong > 0) fmt::print("  WRONG: {} elements", wrong);
  fmt::print("\n");
  std::fflush(stdout);
}

void print_verdict(const std::vector<Result>& results) {
  long long wrong = 0;
  for (const Result& result : results) wrong += result.wrong;
  fmt::print("# {}\n", wrong == 0 ? "all results right" : fmt::format("{} elements are wrong", wrong));
}

std::string to_json(const Options& options, const Peer* peer, const std::vector<Result>& results) {
  nlohmann::json list = nlohmann::json::array();
  for (const Result& result : results) {
    nlohmann::json entry = {{"collective", result.measured.name()},
                            {"algorithm", result.algorithm},
                            {"transport", result.transport},
                            {"ranks", result.ranks},
                            {"bytes", result.bytes},
                            {"dtype", name(options.dtype)},
                            {"op", name(options.op)},
                            {"memory", name(options.memory)},
                            {"buffer_pairs", options.pairs},
                            {"beside_bytes", options.beside_bytes},
                            {"in_place", result.in_place},
                            {"time_of", name(options.time_of)},
                            {"p50_us", result.ours.p50_us},
                            {"p99_us", result.ours.p99_us},
                            {"busbw_gbs", result.busbw_gbs()},
                            {"wrong", result.wrong}};
    if (peer != nullptr) {
      entry["peer"] = peer->version;
      entry["peer_p50_us"] = result.peer.p50_us;
      entry["peer_p99_us"] = result.peer.p99_us;
      entry["ratio"] = result.ratio();
    }
    list.push_back(std::move(entry));
  }
  return list.dump(1) + '\n';
}

}  // namespace farandole::bench
