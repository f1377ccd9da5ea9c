// SPDX-License-Identifier: Apache-2.0
// farandole-bench: what is measured, and how it is reported.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/sdk/backend.h"
#include "farandole/sdk/device.h"

namespace farandole::bench {

enum class Memory { kUser, kWindow, kDevice };
std::string_view name(Memory memory);
inline MemoryKind kind_of(Memory memory) {
  return memory == Memory::kDevice ? MemoryKind::kCuda : MemoryKind::kHost;
}

/// Whose time counts: ranks of one collective may end at different times, the root of a broadcast long before the last.
enum class TimeOf { kRank0, kAverage, kSlowest };
std::string_view name(TimeOf time_of);

/// More than 15 members: one for each option of the command line.
struct Options {
  std::vector<Collective> collectives;
  std::vector<std::string> algorithms;  ///< empty: what would be chosen
  std::size_t min_bytes = 4, max_bytes = 64 << 20;
  double factor = 4;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  int replicas = 1;
  int iterations = 0;  ///< 0: from the size
  TimeOf time_of = TimeOf::kRank0;
  bool in_place = true, out_of_place = true;
  bool check = true;
  Memory memory = Memory::kUser;
  int pairs = 1;                 ///< of input and output, which the calls go round
  std::size_t beside_bytes = 0;  ///< of an allreduce that runs at the same time; 0: none
  bool with_peer = false;
  bool peer_is_nccl = false;  ///< else MPI
  bool mpi_from_any_thread = true;
  std::string json_file;
  std::string tune_file;  ///< empty: no table is made
  double tune_seconds = 60;

  /// Broadcast has one buffer only, and barrier none: they are measured in one way, whatever was asked for.
  bool measures(Collective collective, bool in_place_call) const;
  bool measures_any(bool in_place_call) const;
};

/// The vendor's own collectives, measured in the same loop.
struct Peer {
  std::string version;                             ///< "Open MPI 4.1.4"
  std::unique_ptr<VendorCollectives> collectives;  ///< null: NCCL's, of which each rank has a group of its own
};
/// Collective over the job's processes. @throws Unsupported  the job has no MPI, or ranks share a process
Peer open_peer(World& world);
/// NCCL's collectives on the rank's device, called by the thread that measures.
class NcclPeer {
 public:
  /// Collective over `ranks`. @throws Unsupported, DeviceError
  explicit NcclPeer(Communicator& ranks);
  /// Enqueues the collective and waits for the device.
  void run(const DeviceCollective& collective);
  bool supports(const DeviceCollective& collective) const;

 private:
  Device& device_;
  StreamView stream_;
  std::unique_ptr<DeviceGroup> group_;
};

struct Times {
  double p50_us = 0, p99_us = 0;
};

/// One line of the table, or half of it: a size, in place or not.
struct Result {
  Collective collective = Collective::kAllreduce;
  std::string algorithm, transport;
  int ranks = 1;
  std::size_t bytes = 0, count = 0;
  bool in_place = false;
  Times ours, peer;
  long long wrong = 0;  ///< elements that differ from the oracle, on all ranks

  double algbw_gbs() const;
  /// As nccl-tests define it: what the slowest link carries, whatever the number of ranks.
  double busbw_gbs() const;
  /// The peer's median over ours: above 1, Farandole is faster.
  double ratio() const { return ours.p50_us > 0 ? peer.p50_us / ours.p50_us : 0; }
};

/// Runs every case; rank 0 prints the table and returns the results. `peer` may be null. Collective over `ranks`.
std::vector<Result> run(Communicator& ranks, const Options& options, const Peer* peer);
void print_header(const Options& options, const Communicator& ranks, const Peer* peer);
void print_line(const Options& options, const Result* out_of_place, const Result* in_place);
std::string to_json(const Options& options, const Peer* peer, const std::vector<Result>& results);

/// @throws InvalidArgument  there is nothing to choose between
void check_tunable(const Settings& settings, const Options& options, int ranks);
/// The fastest way to run each of the collectives, by size. Rank 0 tells on standard error what it finds. Collective
/// over `ranks`, where all get the same table.
TuningTable tune(Communicator& ranks, const Options& options);

}  // namespace farandole::bench
