// SPDX-License-Identifier: Apache-2.0
// Jobs over TCP whose processes are threads of a test.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "side_by_side.h"
#include "tcp/rendezvous.h"
#include "tcp/stream.h"

namespace farandole::tcp {

using test::side_by_side;

/// Loopback of IPv4.
inline Address host_address(std::uint16_t port) {
  return {4, port, {127, 0, 0, 1}};
}

/// Listens, with room for one caller whom nothing accepts: the kernel leaves the next ones without an answer.
class FullPort {
 public:
  FullPort() {
    listen(listener_.get(), 0);
    // More than there is room for, so that it is full whatever the kernel adds.
    for (int i = 0; i < 4; ++i) waiting_.push_back(start_connect(address(), std::nullopt, Seconds(60)));
  }
  Address address() const { return host_address(port_of(listener_)); }

 private:
  UniqueDescriptor listener_ = listen_at(host_address(0));
  std::vector<UniqueDescriptor> waiting_;
};

/// A port that is free, and below those that the system gives to sockets without one, so that no listener of a test
/// takes it before the job does. Each call gives another.
inline std::uint16_t job_port() {
  static std::atomic<int> next = getpid();
  for (int tries = 0; tries < 1000; ++tries) {
    const auto port = static_cast<std::uint16_t>(10'000 + next++ % 1'300 * 16);  // the next ones are the job's, too
    try {
      return port_of(listen_at(std::nullopt, port));
    } catch (const TransportError&) {
      continue;
    }
  }
  throw TransportError("no port from 10000 to 30800 is free");
}

/// The slots of one job, with a port and a key of its own.
class SlotsOfJob {
 public:
  explicit SlotsOfJob(int processes) : processes_(processes), port_(job_port()) {}

  std::uint16_t port() const { return port_; }
  Slot operator[](int process) const {
    Slot slot;
    slot.process = process;
    slot.processes = processes_;
    slot.key = key_;
    slot.job = 7;
    slot.rendezvous = "127.0.0.1:" + std::to_string(port_);
    slot.timeout = timeout;
    return slot;
  }

  Seconds timeout{60};  ///< the watchdog of each test

 private:
  const int processes_;
  const std::uint16_t port_;
  const JobKey key_ = make_job_key();
};

}  // namespace farandole::tcp
