// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench.h"
#include "farandole/internal/communicator_access.h"

namespace farandole::bench {
namespace {

std::string half(const Options& options, const Result* result) {
  if (result == nullptr) return std::string(options.with_peer ? 84 : 50, ' ');
  std::string text = fmt::format("{:>12.2f} {:>11.2f} {:>8.2f} {:>8.2f} {:>7}", result->ours.p50_us,
                                 result->ours.p99_us, result->algbw_gbs(), result->busbw_gbs(), result->wrong);
  if (options.with_peer)
    text += fmt::format(" {:>12.2f} {:>12.2f} {:>7.2f}", result->peer.p50_us, result->peer.p99_us, result->ratio());
  return text;
}

std::string half_header(const Options& options) {
  std::string text = fmt::format("{:>12} {:>11} {:>8} {:>8} {:>7}", "p50 us", "p99 us", "algbw", "busbw", "#wrong");
  if (options.with_peer) text += fmt::format(" {:>12} {:>12} {:>7}", "peer p50 us", "peer p99 us", "ratio");
  return text;
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
  return options.measures_any(false) ? out_of_place + " |" + in_place : in_place;
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
  fmt::print("# farandole-bench: {} ranks on {} host{}, {}, type {}, op {}, root {}\n", ranks.size(),
             ranks.placement().host_count, ranks.placement().host_count == 1 ? "" : "s", internals(ranks).transport(),
             name(options.dtype), name(options.op), options.root);
  fmt::print("# memory: {}, {} pair{}\n", describe(options.memory), options.pairs,
             options.pairs == 1 ? " of buffers" : "s of buffers, in turn");
  if (options.beside_bytes > 0) {
    fmt::print("# beside: an allreduce of {} bytes on another communicator\n", options.beside_bytes);
  }
  fmt::print(
      "# time: median of calls after a barrier, {}; algbw, busbw: GB/s as nccl-tests define them; "
      "#wrong: elements, all ranks\n",
      describe(options.time_of));
  if (peer != nullptr) {
    fmt::print(
        "# peer: the blocking collectives of {} on {} memory, alternating with ours; ratio: peer p50 / p50, above 1 "
        "Farandole is faster\n",
        peer->version, options.peer_is_nccl ? "the same" : "ordinary");
  }
  const std::string columns = half_header(options);
  fmt::print("#{:60}{}\n", "",
             halves(options, fmt::format("{:>{}}", "out of place", columns.size()),
                    fmt::format("{:>{}}", "in place", columns.size())));
  fmt::print("#{:<14} {:<20} {:>11} {:>11} {}\n", "collective", "algorithm", "bytes", "count",
             halves(options, columns, columns));
}

void print_line(const Options& options, const Result* out_of_place, const Result* in_place) {
  const Result& any = out_of_place != nullptr ? *out_of_place : *in_place;
  fmt::print(" {:<14} {:<20} {:>11} {:>11} {}\n", name(any.collective), any.algorithm, any.bytes, any.count,
             halves(options, half(options, out_of_place), half(options, in_place)));
  std::fflush(stdout);
}

std::string to_json(const Options& options, const Peer* peer, const std::vector<Result>& results) {
  nlohmann::json list = nlohmann::json::array();
  for (const Result& result : results) {
    nlohmann::json entry = {{"collective", name(result.collective)},
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
