// SPDX-License-Identifier: Apache-2.0
// Two ranks on two hosts. After some collectives rank 1's process or link fails. Each surviving rank checks which error
// it raises, and when, and prints the result; network_fault.sh checks the output. usage: farandole_network_fault killed
// | cut | cut_receiving | deaf | stalled | stopped | lossy, on hosts made by two_hosts.sh, as root
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"

namespace {

using Clock = std::chrono::steady_clock;

/// Runs `begin` now and `end` after so many seconds.
bool run_for(const std::string& begin, int seconds, const std::string& end) {
  const std::string command = begin + " && { (sleep " + std::to_string(seconds) + "; " + end + ") >/dev/null 2>&1 & }";
  return std::system(command.c_str()) == 0;
}

/// For `seconds` no packet passes, nor anything that says so.
void cut_link(int seconds) {
  if (!run_for("ip link set eth0 down", seconds, "ip link set eth0 up")) std::puts("the link could not be cut");
}

/// network_fault.sh skips what is not possible here.
void note_loss(bool is_possible) {
  if (is_possible) return;
  std::puts("no packets can be lost here");
  std::fflush(stdout);
}

/// For `seconds` this host sends, and hears nothing.
void be_deaf(int seconds) {
  note_loss(run_for("iptables -A INPUT -i eth0 -j DROP", seconds, "iptables -D INPUT -i eth0 -j DROP"));
}

constexpr int kStallSeconds = 10;

/// This process stands still for `seconds`, and its kernel goes on.
void stop_for(unsigned seconds) {
  const pid_t process = getpid();
  if (fork() == 0) {
    sleep(seconds);
    kill(process, SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
}

/// Drops one percent of the packets that arrive at this host.
void lose_packets() {
  note_loss(std::system("iptables -A INPUT -i eth0 -m statistic --mode random --probability 0.01 -j DROP") == 0);
}

/// Faults that must not be taken for a loss.
bool is_only_late(const std::string& fault) {
  return fault == "stalled" || fault == "stopped" || fault == "lossy";
}

void fail_on_rank_1(const std::string& fault, double peer_timeout) {
  if (fault == "killed") raise(SIGKILL);
  if (fault == "lossy") return lose_packets();
  const int longer = static_cast<int>(2 * peer_timeout);  // than the other rank has to find out
  if (fault == "stopped") return stop_for(static_cast<unsigned>(longer));
  if (fault == "deaf") return be_deaf(longer);
  cut_link(fault == "stalled" ? kStallSeconds : longer);
}

/// Packets that `lose_packets` has cost this host.
std::int64_t lost_packets() {
  std::FILE* const table = popen("iptables -nvxL INPUT | awk '$3 == \"DROP\" {print $1}'", "r");
  long long count = 0;
  if (table == nullptr || std::fscanf(table, "%lld", &count) != 1) count = 0;
  if (table != nullptr) pclose(table);
  return count;
}

/// Vectors of all lengths over both connections, until enough packets are lost. @throws Error
void use_lossy_network(farandole::Communicator& ranks) {
  constexpr int kRounds = 200;
  constexpr std::int64_t kEnough = 20;
  std::vector<std::int64_t> lost{0};
  for (int round = 0; round < kRounds && lost[0] < kEnough; ++round) {
    for (int i = 0; i < 20; ++i) {
      std::vector<float> data(std::size_t{1} << i, static_cast<float>(i + ranks.rank()));
      ranks.allreduce(data, farandole::ReduceOp::kSum);
      const auto sum = static_cast<float>(2 * i + 1);
      const auto wrong = std::count_if(data.begin(), data.end(), [sum](float x) { return x != sum; });
      if (wrong > 0) throw farandole::InternalError(std::to_string(wrong) + " elements are wrong");
    }
    lost[0] = ranks.rank() == 1 ? lost_packets() : 0;
    ranks.allreduce(lost, farandole::ReduceOp::kMax);
  }
  if (lost[0] < kEnough) throw farandole::InternalError("only " + std::to_string(lost[0]) + " packets were lost");
}

void use_network(farandole::Communicator& ranks, const std::string& fault) {
  // Short enough, where that matters, that nothing more is to be sent once its message is on the way.
  std::vector<float> data(fault == "deaf" ? 10 : 100'000, 1.0F);
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
  if (ranks.rank() == 1) fail_on_rank_1(fault, world.settings().network.peer_timeout.count());
  if (fault == "cut_receiving" && ranks.rank() == 1)
    sleep(static_cast<unsigned>(2 * world.settings().network.peer_timeout.count()));
  if (fault == "lossy") return use_lossy_network(ranks);
  // The first message may have come before.
  do use_network(ranks, fault);
  while (fault == "deaf");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "none";
  farandole::World world;
  const int rank = world.rank();
  const double bound = fault == "killed" ? 3 : world.settings().network.peer_timeout.count() + 1;
  auto start = Clock::now();
  std::string text = "no error";
  bool is_lost = false;
  try {
    run(fault, world, start);
  } catch (const farandole::Error& error) {
    text = error.what();
    is_lost = error.kind() == farandole::ErrorKind::kPeerLost;
  }
  const double took = std::chrono::duration<double>(Clock::now() - start).count();
  const std::string other = world.topology().describe(1 - rank);
  const bool is_right =
      is_only_late(fault) ? text == "no error" : is_lost && text.find(other) != std::string::npos && took <= bound;
  // A fault that did not happen proves nothing.
  const double least = fault == "stalled" ? 0.9 * kStallSeconds : fault == "stopped" ? bound : 0;
  // Its broadcast may be done as soon as the kernel has the data, or be lost with the link.
  if (fault == "cut_receiving" && rank == 1) return 0;
  std::printf("rank %d: %s after %.1f s: %s\n", rank, is_right && took >= least ? "as expected" : "WRONG", took,
              text.c_str());
  std::fflush(stdout);
  return is_right && took >= least ? 0 : 1;
}
