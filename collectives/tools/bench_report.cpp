#include <fmt/core.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench.h"
#include "farandole/core/error.h"

namespace farandole::bench {
namespace {

constexpr const char* kHalf = "{:>12.2f} {:>11.2f} {:>8.2f} {:>8.2f} {:>7}";

std::string half(const Result* result) {
  if (result == nullptr) return std::string(50, ' ');
  return fmt::format(fmt::runtime(kHalf), result->p50_us, result->p99_us, result->algbw_gbs(), result->busbw_gbs(),
                     result->wrong);
}

}  // namespace

void print_header(const Options& options, const Communicator& ranks) {
  fmt::print("# farandole-bench: {} ranks on {} host{}, {}, type {}, op {}, root {}\n", ranks.size(),
             ranks.host_count(), ranks.host_count() == 1 ? "" : "s", ranks.transport(), name(options.dtype),
             name(options.op), options.root);
  fmt::print(
      "# time: median of calls after a barrier, on rank 0; busbw as nccl-tests define it; #wrong: elements, all "
      "ranks\n");
  fmt::print("#{:>49}{:>51}  |{:>50}\n", "", "out of place", "in place");
  fmt::print("#{:<14} {:<20} {:>11} {:>11}", "collective", "algorithm", "bytes", "count");
  for (int i = 0; i < 2; ++i) {
    fmt::print("{}{:>12} {:>11} {:>8} {:>8} {:>7}", i == 0 ? " " : " |", "p50 us", "p99 us", "algbw", "busbw",
               "#wrong");
  }
  fmt::print("\n");
}

void print_line(const Result* out_of_place, const Result* in_place) {
  const Result& any = out_of_place != nullptr ? *out_of_place : *in_place;
  fmt::print(" {:<14} {:<20} {:>11} {:>11} {} |{}\n", name(any.collective), any.algorithm, any.bytes, any.count,
             half(out_of_place), half(in_place));
  std::fflush(stdout);
}

void write_json(const std::string& file, const Options& options, const std::vector<Result>& results) {
  nlohmann::json list = nlohmann::json::array();
  for (const Result& result : results) {
    list.push_back({{"collective", name(result.collective)},
                    {"algorithm", result.algorithm},
                    {"transport", result.transport},
                    {"ranks", result.ranks},
                    {"bytes", result.bytes},
                    {"dtype", name(options.dtype)},
                    {"op", name(options.op)},
                    {"memory", "user"},
                    {"in_place", result.in_place},
                    {"p50_us", result.p50_us},
                    {"p99_us", result.p99_us},
                    {"busbw_gbs", result.busbw_gbs()},
                    {"wrong", result.wrong}});
  }
  std::ofstream stream(file);
  stream << list.dump(1) << '\n';
  if (!stream.flush()) throw DataError(fmt::format("the results could not be written to {}", file));
}

}  // namespace farandole::bench
