// SPDX-License-Identifier: Apache-2.0
// The measurements of farandole_gpu_figures. Each function measures one thing, and returns JSON. Times are medians.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/sdk/device.h"

namespace farandole::figures {

using Clock = std::chrono::steady_clock;

inline double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

/// The device of a rank.
inline Device& device_of(Communicator& ranks) {
  return device_runtime(internals(ranks).settings()).runtime->open(ranks.device().ordinal);
}

/// Median time of the host for a call that enqueues, microseconds. The stream never holds more than 16 of them.
double host_microseconds(Device& device, StreamView stream, int samples, const std::function<void()>& enqueue);

/// Copies, reductions and packing of ResNet-50's gradients on one device, of random values. Needs no NCCL.
nlohmann::json measure_memory(Communicator& ranks, std::size_t bytes, int samples);

/// Single calls of the driver, in microseconds. Needs no NCCL.
nlohmann::json measure_driver(Communicator& ranks, int samples);

/// Two or more ranks: the host's time for an allreduce that is enqueued, of Farandole in both device orders and of NCCL
/// alone by turns in these processes; for a NCCL group; and the device memory that a communicator takes. Collective.
nlohmann::json measure_enqueue(Communicator& ranks, int samples);

/// Seconds to the end of the first allreduce of this process, by Farandole or by NCCL alone. Collective.
double bring_up_farandole(Communicator& ranks);
double bring_up_nccl(Communicator& ranks);

}  // namespace farandole::figures
