// SPDX-License-Identifier: Apache-2.0
// What farandole-schedule prints about schedules.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/collectives/algorithms.h"

namespace farandole::tools {

/// All ranks' schedules of one algorithm.
std::vector<Schedule> make_schedules(const Algorithm& algorithm, int size, int root, int segments);

/// One rank's steps as a table.
std::string step_table(const Algorithm& algorithm, const Schedule& schedule);

/// A picture: rounds from left to right, ranks from top to bottom, one arrow for each message.
std::string svg_picture(const Algorithm& algorithm, const std::vector<Schedule>& schedules);

/// A network on which every message of a round travels at once, each rank sending and receiving at full speed.
struct Network {
  double latency_seconds = 1e-6;     ///< of each round
  double bytes_per_second = 1.25e9;  ///< of each rank, in each direction
};

/// A kind of link between ranks by name.
struct Link {
  std::string_view name;
  double latency_us;  ///< of each round
  double gbps;        ///< of each rank, in each direction
};
/// Links between GPUs, and networks with one adapter for each GPU. What the standards name, not what was measured: the
/// data rates are nominal, a PCIe slot has 16 lanes, and the latency of a round, which is one NCCL group, is what
/// NCCL's own model takes for a kernel (8.4 us) and a step of its ring (NVLink 3.4 us, PCIe 5.7, a network 14;
/// `src/graph/tuning.cc`).
std::span<const Link> links();

/// What one algorithm costs on a network.
struct Prediction {
  int segments = 1;
  AlgorithmCost cost;
  double bytes_sent = 0;  ///< by the rank that sends most
  double seconds = 0;
};

/// @param bytes  of the whole vector: for allgather and gather all ranks' inputs, for alltoall one rank's.
Prediction predict(const Algorithm& algorithm, const Place& place, int segments, double bytes, const Network& network);

/// The same with the number of segments, 1 to 256, that is fastest on this network.
Prediction predict_best(const Algorithm& algorithm, const Place& place, double bytes, const Network& network);

/// "1.50 ms", "12.0 us", with three digits.
std::string seconds_text(double seconds);
/// "1.25 MiB", "96 B".
std::string bytes_text(double bytes);

}  // namespace farandole::tools
