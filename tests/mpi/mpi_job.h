// SPDX-License-Identifier: Apache-2.0
// The job that all tests of the MPI backend share, and helpers for its use.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "farandole/internal/deadline.h"
#include "mpi_process_group.h"

namespace farandole::mpi {

constexpr int kReplicas = 2;  ///< of each process

extern int thread_level;  ///< what MPI was initialised with; -1: by the backend
extern std::unique_ptr<MpiProcessGroup> group;

Topology make_topology(int processes);
/// One more group, among the processes of `communicator`. Collective.
std::unique_ptr<MpiProcessGroup> join(const std::optional<int>& communicator = std::nullopt);

/// The watchdog of every wait: nothing here takes longer than a moment.
template <class Condition>
void wait_until(const std::string& what, const Condition& condition) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  while (!condition()) {
    if (deadline.passed())
      throw std::runtime_error("process " + std::to_string(group->process()) + ": stuck in " + what);
    std::this_thread::yield();
  }
}

void finish(Transfer& transfer, const std::string& what);
void barrier(ProcessGroup& among = *group);
std::vector<unsigned char> pattern(std::size_t bytes, unsigned seed);

/// First ranks of this process, of the next one and of the previous one; all the same if there is one process.
struct Ring {
  explicit Ring(const ProcessGroup& among) {
    const int count = among.process_count();
    me = among.process() * kReplicas;
    next = (among.process() + 1) % count * kReplicas;
    previous = (among.process() + count - 1) % count * kReplicas;
  }
  int me, next, previous;
};

/// Sends to the next process, receives from the previous one, and compares.
void exchange(ProcessGroup& among, std::uint8_t lane, std::size_t bytes, unsigned seed);

}  // namespace farandole::mpi
