// SPDX-License-Identifier: Apache-2.0
// usage: farandole_many_hosts REPLICAS RANKS SECONDS [CONNECTIONS]
// A job of many ranks on several hosts. Checks that every collective gives the right result, that each process joins
// within SECONDS, and that each process has at most CONNECTIONS with other hosts after all collectives except alltoall,
// in which each rank sends to every other rank. Each process has REPLICAS ranks as threads. Without CONNECTIONS, only
// prints the number of connections, because MPI makes its own.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "farandole/collectives/communicator.h"

using namespace farandole;

namespace {

using Values = std::vector<std::int32_t>;
using Clock = std::chrono::steady_clock;

/// Connections of this process with other hosts, as the kernel sees them.
int connections_with_other_hosts() {
  std::set<std::string> own;
  for (const auto& descriptor : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(descriptor.path(), gone).string();
    if (target.starts_with("socket:[")) own.insert(target.substr(8, target.size() - 9));
  }
  int found = 0;
  // A process listens for IPv4 and IPv6 with one socket, so the connections that it has accepted are in the second
  // table.
  for (const char* const family : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream table(family);
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
      std::istringstream row(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      row >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
      const bool is_elsewhere = local.substr(0, local.find(':')) != remote.substr(0, remote.find(':'));
      if (state == "01" && is_elsewhere && own.count(inode) != 0) ++found;
    }
  }
  return found;
}

/// A collective with values that say which rank they are of.
class Trial {
 public:
  Trial(Communicator& communicator, std::size_t count)
      : communicator_(communicator), ranks_(static_cast<std::size_t>(communicator.size())), count_(count) {}

  void run_all_but_alltoall() {
    const int last = communicator_.size() - 1;
    const Values mine = values_of(communicator_.rank(), count_);
    Values sum = mine;
    communicator_.allreduce(sum, ReduceOp::kSum);
    expect(sum, sums(), "allreduce");
    Values one = communicator_.rank() == 3 ? values_of(3, count_) : Values(count_);
    communicator_.broadcast(one, 3);
    expect(one, values_of(3, count_), "broadcast");
    Values reduced(count_);
    communicator_.reduce(mine, reduced, ReduceOp::kSum, last);
    if (communicator_.rank() == last) expect(reduced, sums(), "reduce");
    Values all(ranks_ * count_);
    communicator_.allgather(mine, all);
    expect(all, values_of_all(), "allgather");
    Values gathered(communicator_.rank() == last ? ranks_ * count_ : 0);
    communicator_.gather(mine, gathered, last);
    if (communicator_.rank() == last) expect(gathered, values_of_all(), "gather");
    Values part(count_);
    communicator_.scatter(communicator_.rank() == last ? values_of_all() : Values(), part, last);
    expect(part, mine, "scatter");
    communicator_.reduce_scatter(values_of_all(), part, ReduceOp::kSum);
    Values expected = mine;
    for (std::int32_t& value : expected) value *= communicator_.size();
    expect(part, expected, "reduce_scatter");
    communicator_.barrier();
  }

  void run_alltoall() {
    Values outgoing, expected;
    for (int peer = 0; peer < communicator_.size(); ++peer) {
      for (std::size_t i = 0; i < count_; ++i) {
        outgoing.push_back(communicator_.rank() * 1000 + peer);
        expected.push_back(peer * 1000 + communicator_.rank());
      }
    }
    Values incoming(outgoing.size());
    communicator_.alltoall(outgoing, incoming);
    expect(incoming, expected, "alltoall");
  }

 private:
  static Values values_of(int rank, std::size_t count) {
    Values values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = rank * 7 + static_cast<std::int32_t>(i % 1000);
    return values;
  }
  Values values_of_all() const {
    Values all;
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      const Values values = values_of(rank, count_);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  Values sums() const {
    Values sum(count_);
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      const Values values = values_of(rank, count_);
      for (std::size_t i = 0; i < count_; ++i) sum[i] += values[i];
    }
    return sum;
  }
  void expect(const Values& came, const Values& expected, const std::string& what) const {
    if (came == expected) return;
    const auto wrong = std::mismatch(came.begin(), came.end(), expected.begin()).first - came.begin();
    throw std::runtime_error(what + " of " + std::to_string(count_) + " elements: element " + std::to_string(wrong) +
                             " is wrong on rank " + std::to_string(communicator_.rank()));
  }

  Communicator& communicator_;
  const std::size_t ranks_, count_;
};

std::int32_t most(Communicator& communicator, std::int32_t value) {
  Values one{value};
  communicator.allreduce(one, ReduceOp::kMax);
  return one[0];
}

/// Limits that the job must keep.
struct Bounds {
  std::chrono::seconds joining;
  int connections;
};

/// The program of one rank. @param joining  time that its process has taken to join
void run(const World& world, Communicator& communicator, std::chrono::milliseconds joining, const Bounds& bounds) {
  const int elsewhere =
      world.topology().process_count() - world.topology().process_count() / communicator.placement().host_count;
  const std::int32_t joined_ms = most(communicator, static_cast<std::int32_t>(joining.count()));
  const std::int32_t at_first = most(communicator, connections_with_other_hosts());
  for (const std::size_t count : {1, 1000, 20011}) Trial(communicator, count).run_all_but_alltoall();
  const std::int32_t then = most(communicator, connections_with_other_hosts());
  for (const std::size_t count : {1, 50}) Trial(communicator, count).run_alltoall();
  const std::int32_t at_last = most(communicator, connections_with_other_hosts());
  if (communicator.rank() == 0) {
    std::printf(
        "%d ranks, %d processes, %d hosts: joined within %d ms; connections of a process with the %d on other hosts, "
        "at "
        "most: %d at first, %d after all collectives but alltoall, %d after alltoall; network: %s\n",
        communicator.size(), world.topology().process_count(), communicator.placement().host_count, joined_ms,
        elsewhere, at_first, then, at_last, world.network_description().c_str());
  }
  if (std::chrono::milliseconds(joined_ms) > bounds.joining) throw std::runtime_error("joining has taken too long");
  if (then == 0) throw std::runtime_error("no connection with another host is seen: are they hosts of their own?");
  if (then > bounds.connections) {
    throw std::runtime_error("a process has " + std::to_string(then) +
                             " connections with other hosts, and should have " + std::to_string(bounds.connections) +
                             " at most");
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) throw std::runtime_error("usage: farandole_many_hosts REPLICAS RANKS SECONDS [CONNECTIONS]");
  const auto start = Clock::now();
  WorldOptions options;
  options.replicas = std::atoi(argv[1]);
  options.expected_size = std::atoi(argv[2]);
  World world(options);
  const auto joining = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  const Bounds bounds{std::chrono::seconds(std::atoi(argv[3])),
                      argc > 4 ? std::atoi(argv[4]) : std::numeric_limits<int>::max()};
  run_replicas(world, [&](Communicator& communicator) { run(world, communicator, joining, bounds); });
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "many_hosts: %s\n", error.what());
  return 1;
}
