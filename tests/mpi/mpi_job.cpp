// SPDX-License-Identifier: Apache-2.0
#include "mpi_job.h"

#include <gtest/gtest.h>

#include <utility>

#include "mpi_runtime.h"

namespace farandole::mpi {
namespace {

constexpr PartLimits kSmallParts{/*message_bytes=*/1000, /*collective_count=*/7};

}  // namespace

int thread_level = -1;
std::unique_ptr<MpiProcessGroup> group;

Topology make_topology(int processes) {
  std::vector<ProcessInfo> infos(static_cast<std::size_t>(processes));
  for (ProcessInfo& info : infos) info = {0, kReplicas, 0, "host"};
  return Topology(std::move(infos));
}

std::unique_ptr<MpiProcessGroup> join(const std::optional<int>& communicator) {
  auto joined = std::make_unique<MpiProcessGroup>(start_runtime(communicator, /*many_threads=*/true), Watch::Times{},
                                                  kSmallParts);
  joined->set_topology(make_topology(joined->process_count()));
  return joined;
}

void finish(Transfer& transfer, const std::string& what) {
  wait_until(what, [&] { return transfer.test(); });
}

void barrier(ProcessGroup& among) {
  char mine = 0;
  std::vector<char> all(static_cast<std::size_t>(among.process_count()));
  among.allgather(&mine, all.data(), 1);
}

std::vector<unsigned char> pattern(std::size_t bytes, unsigned seed) {
  std::vector<unsigned char> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>(seed * 37 + i * 11 + i / 251);
  return data;
}

void exchange(ProcessGroup& among, std::uint8_t lane, std::size_t bytes, unsigned seed) {
  const Ring ring(among);
  const auto outgoing = pattern(bytes, seed + static_cast<unsigned>(ring.me));
  std::vector<unsigned char> incoming(bytes);
  const auto receive = among.transport().recv({9, lane, ring.previous, ring.me}, incoming.data(), bytes);
  const auto send = among.transport().send({9, lane, ring.me, ring.next}, outgoing.data(), bytes);
  finish(*receive, "receive");
  finish(*send, "send");
  EXPECT_EQ(incoming, pattern(bytes, seed + static_cast<unsigned>(ring.previous))) << bytes << " bytes";
}

}  // namespace farandole::mpi
