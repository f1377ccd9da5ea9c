// farandole-bench: what is measured, and how it is reported.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"

namespace farandole::bench {

struct Options {
  std::vector<Collective> collectives;
  std::vector<std::string> algorithms;  ///< empty: what would be chosen
  std::size_t min_bytes = 4, max_bytes = 64 << 20;
  double factor = 4;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  int replicas = 1;
  int iterations = 0;  ///< 0: from the size
  bool in_place = true, out_of_place = true;
  bool check = true;
  std::string json_file;
};

/// One line of the table, or half of it: a size, in place or not.
struct Result {
  Collective collective = Collective::kAllreduce;
  std::string algorithm, transport;
  int ranks = 1;
  std::size_t bytes = 0, count = 0;
  bool in_place = false;
  double p50_us = 0, p99_us = 0;
  long long wrong = 0;  ///< elements that differ from the oracle, on all ranks

  double algbw_gbs() const { return p50_us > 0 ? 1e-3 * static_cast<double>(bytes) / p50_us : 0; }
  /// As nccl-tests define it: what the slowest link carries, whatever the number of ranks.
  double busbw_gbs() const;
};

/// Measures one case. Collective over `ranks`.
Result measure(Communicator& ranks, const Options& options, Collective collective, const std::string& algorithm,
               std::size_t bytes, bool in_place);

/// Runs every case; rank 0 prints the table and returns the results.
std::vector<Result> run(Communicator& ranks, const Options& options);
void print_header(const Options& options, const Communicator& ranks);
void print_line(const Result* out_of_place, const Result* in_place);
/// @throws DataError  the file can not be written
void write_json(const std::string& file, const Options& options, const std::vector<Result>& results);

}  // namespace farandole::bench
