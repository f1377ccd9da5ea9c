// SPDX-License-Identifier: Apache-2.0
// Communicators in the caller's device order, values for their calls, and the wait for their faults.
#pragma once

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/internal/endpoint.h"
#include "on_device.h"

namespace farandole::test {

/// A communicator of the same ranks whose device order is the caller's.
inline Communicator direct(Communicator& ranks, const std::string& name = "direct") {
  return ranks.duplicate({.device_order = CommunicatorOptions::DeviceOrder::kCaller, .name = name});
}

/// Waits for the fault of the job.
inline void wait_for_fault(EndpointFaults& faults) {
  while (!faults.exist()) {
    faults.poll();
    std::this_thread::yield();
  }
}

/// Different on each rank; small integers if `first` is.
inline std::vector<float> values_of(const Communicator& ranks, std::size_t count, float first) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = first * static_cast<float>(ranks.rank() + 1) + static_cast<float>(i % 64);
  }
  return values;
}

/// The values of a buffer on the device.
inline std::vector<float> to_vector(Communicator& ranks, const Buffer& buffer) {
  Buffer host = to_host(ranks, buffer.view());
  return {host.as<float>(), host.as<float>() + host.count()};
}

}  // namespace farandole::test
