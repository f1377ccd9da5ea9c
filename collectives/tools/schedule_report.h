// SPDX-License-Identifier: Apache-2.0
// Texts, pictures and predictions that farandole-schedule prints.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/collectives/algorithms.h"

namespace farandole::tools {

/// Makes the schedules of all ranks.
std::vector<Schedule> make_schedules(const Algorithm& algorithm, int size, int root, int segments);

/// One rank's steps, as a table.
std::string step_table(const Algorithm& algorithm, const Schedule& schedule);

/// Picture of all messages: rounds from left to right, ranks from top to bottom. One arrow stands for all messages from
/// a rank to a peer in a round.
std::string svg_picture(const Algorithm& algorithm, const std::vector<Schedule>& schedules);

/// Model of a network: the messages of a round travel at the same time, and every rank sends and receives at full
/// speed.
struct Network {
  double latency_seconds = 1e-6;     ///< per round
  double bytes_per_second = 1.25e9;  ///< per rank and direction
};

/// A named kind of link between ranks.
struct Link {
  std::string_view name;
  double latency_us;  ///< microseconds per round
  double gbps;        ///< Gbit/s per rank and direction
};
/// Links between GPUs, and networks with one adapter per GPU. Data rates are nominal values of the standards, not
/// measured; a PCIe slot has 16 lanes. A round is one NCCL group. The latency of a round follows NCCL's own model
/// (`src/graph/tuning.cc`): 8.4 us for the kernel, plus one step of NCCL's ring, which takes 3.4 us over NVLink, 5.7 us
/// over PCIe and 14 us over a network.
std::span<const Link> links();

/// Predicted cost of one algorithm on a network.
struct Prediction {
  int segments = 1;
  AlgorithmCost cost;
  double bytes_sent = 0;  ///< maximum over the ranks
  double seconds = 0;
};

/// Predicts the cost from the schedules of all ranks.
/// @param bytes  size of the whole vector: all ranks' inputs together for allgather and gather, one rank's input for
/// alltoall
Prediction predict(const Algorithm& algorithm, const Place& place, int segments, double bytes, const Network& network);

/// Predicts the cost with the fastest number of segments on this network, among the powers of two from 1 to 256.
Prediction predict_best(const Algorithm& algorithm, const Place& place, double bytes, const Network& network);

/// "1.50 ms", "12.00 us": two decimals.
std::string seconds_text(double seconds);
/// "1.25 MiB", "96 B".
std::string bytes_text(double bytes);

}  // namespace farandole::tools
