// SPDX-License-Identifier: Apache-2.0
// Two ranks on two hosts; after some collectives rank 1's process or link fails. Each rank that lives checks what it
// raises and when, and says so; network_fault.sh looks for that.
// usage: farandole_network_fault killed | cut | cut_receiving | stalled, on hosts made by two_hosts.sh, as root
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"

namespace {

using Clock = std::chrono::steady_clock;

/// For `seconds` no packet passes, nor anything that says so.
void cut_link(int seconds) {
  const std::string command =
      "ip link set eth0 down && { (sleep " + std::to_string(seconds) + "; ip link set eth0 up) >/dev/null 2>&1 & }";
  if (std::system(command.c_str()) != 0) std::puts("the link could not be cut");
}

void fail_on_rank_1(const std::string& fault, double peer_timeout) {
  if (fault == "killed") raise(SIGKILL);
  // Longer than the other rank has to find out; or much shorter.
  cut_link(static_cast<int>(fault == "stalled" ? peer_timeout / 3 : 2 * peer_timeout));
}

void use_network(farandole::Communicator& ranks, const std::string& fault) {
  std::vector<float> data(100'000, 1.0F);
  if (fault == "cut_receiving") {
    ranks.broadcast(data, /*root=*/1);
  } else {
    ranks.allreduce(data, farandole::ReduceOp::kMax);
  }
}

/// @throws Error  of the fault
void run(const std::string& fault, farandole::World& world, Clock::time_point& start) {
  farandole::Communicator ranks = farandole::Communicator::of_world(world);
  for (int i = 0; i < 10; ++i) use_network(ranks, fault);
  start = Clock::now();
  // Rank 0 is in the collective already, or about to be.
  if (ranks.rank() == 1) fail_on_rank_1(fault, world.settings().peer_timeout.count());
  if (fault == "cut_receiving" && ranks.rank() == 1)
    sleep(static_cast<unsigned>(2 * world.settings().peer_timeout.count()));
  use_network(ranks, fault);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "none";
  farandole::World world;
  const int rank = world.rank();
  const double bound = fault == "killed" ? 3 : world.settings().peer_timeout.count() + 1;
  auto start = Clock::now();
  std::string text = "no error";
  bool is_lost = false;
  try {
    run(fault, world, start);
  } catch (const farandole::Error& error) {
    text = std::string(name(error.kind())) + ": " + error.what();
    is_lost = error.kind() == farandole::ErrorKind::kPeerLost;
  }
  const double took = std::chrono::duration<double>(Clock::now() - start).count();
  const std::string other = world.topology().describe(1 - rank);
  const bool is_right =
      fault == "stalled" ? text == "no error" : is_lost && text.find(other) != std::string::npos && took <= bound;
  // Its broadcast may be done as soon as the kernel has the data, or be lost with the link.
  if (fault == "cut_receiving" && rank == 1) return 0;
  std::printf("rank %d: %s after %.1f s: %s\n", rank, is_right ? "as expected" : "WRONG", took, text.c_str());
  std::fflush(stdout);
  return is_right ? 0 : 1;
}
