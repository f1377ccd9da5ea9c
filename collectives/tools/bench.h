// SPDX-License-Identifier: Apache-2.0
// farandole-bench: options, results and the entry points of its parts.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
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

/// Ranks whose time counts. Ranks may end a collective at different times: the root of a broadcast ends long before the
/// last rank.
enum class TimeOf { kRank0, kAverage, kSlowest };
std::string_view name(TimeOf time_of);

/// Stands for all collectives, or for all algorithms.
inline constexpr const char* kAll = "all";
/// A case of messages: each rank sends a vector to the next rank and receives one from the previous rank at the same
/// time, as sendrecv_perf of nccl-tests does.
inline constexpr const char* kSendRecv = "sendrecv";

/// What a case measures: a collective, or kSendRecv.
struct Measured {
  std::optional<Collective> collective;  ///< empty: kSendRecv
  std::string_view name() const { return collective ? farandole::name(*collective) : kSendRecv; }
};

/// The options of the command line. More than 15 members: each option of the program has one.
struct Options {
  std::vector<Collective> collectives;
  bool sends_and_receives = false;      ///< also measure kSendRecv
  std::vector<std::string> algorithms;  ///< empty: the algorithm that Farandole selects
  std::size_t min_bytes = 4, max_bytes = 64 << 20;
  double factor = 4;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  int replicas = 1;
  int iterations = 0;  ///< samples per size; 0: computed from the size
  TimeOf time_of = TimeOf::kRank0;
  bool in_place = true, out_of_place = true;
  bool check = true;
  Memory memory = Memory::kUser;
  int pairs = 1;                 ///< pairs of input and output buffers, used in turn
  std::size_t beside_bytes = 0;  ///< size of the allreduce in the background; 0: none
  bool with_peer = false;
  bool peer_is_nccl = false;  ///< true: the peer is NCCL; false: MPI
  bool mpi_from_any_thread = true;
  bool wide = false;          ///< print all columns
  std::size_t columns = 100;  ///< width of the terminal in characters; below 100, lines without --wide are shorter
  std::string json_file;
  std::string tune_file;  ///< file of the table of measured choices; empty: no table is made
  double tune_seconds = 60;

  /// True if the case is to be measured in place (`in_place_call`) or out of place (not `in_place_call`), as
  /// --place says. Two exceptions: broadcast, which has a single buffer, is measured in place only; barrier is measured
  /// out of place only. kSendRecv is measured out of place only.
  bool measures(const Measured& measured, bool in_place_call) const;
  bool measures_any(bool in_place_call) const;
  /// The collectives, then kSendRecv.
  std::vector<Measured> all_measured() const;
};

/// A vendor's collectives (MPI's or NCCL's), which are measured in the same loop as ours.
struct Peer {
  std::string version;                             ///< "Open MPI 4.1.4"
  std::unique_ptr<VendorCollectives> collectives;  ///< null for NCCL: each rank has an NcclPeer of its own
};
/// Opens MPI's collectives. Collective over the job's processes.
/// @throws Unsupported  the job has no MPI, or ranks share a process
Peer open_peer(World& world);
/// NCCL's collectives on the rank's device. The measuring thread calls them.
class NcclPeer {
 public:
  /// Collective over `ranks`. @throws Unsupported, DeviceError
  explicit NcclPeer(Communicator& ranks);
  /// Enqueues the collective and waits for the device.
  void run(const VendorCall& call);
  bool supports(const VendorCall& call) const;

 private:
  Device& device_;
  StreamView stream_;
  std::unique_ptr<DeviceGroup> group_;
};

struct Times {
  double p50_us = 0, p99_us = 0;
};

/// Result of one case: a collective or kSendRecv, an algorithm and a size, in place or out of place. A line of the
/// printed table shows one result, or two side by side.
struct Result {
  Measured measured;
  std::string algorithm, transport;
  int ranks = 1;
  std::size_t bytes = 0, count = 0;
  bool in_place = false;
  Times ours, peer;
  long long wrong = 0;  ///< number of elements that differ from the expected result, over all ranks

  double algbw_gbs() const;
  /// Bus bandwidth as nccl-tests define it: the load of the slowest link, which can be compared between numbers of
  /// ranks.
  double busbw_gbs() const;
  /// The peer's median divided by ours: above 1, Farandole is faster.
  double ratio() const { return ours.p50_us > 0 ? peer.p50_us / ours.p50_us : 0; }
};

/// Runs all cases, and returns the results. Rank 0 prints the table; the header comes with the first line, so that an
/// error of the first case is printed without a header. With TimeOf::kRank0 each rank's results contain that rank's own
/// times. `peer` may be null. Collective over `ranks`.
std::vector<Result> run(Communicator& ranks, const Options& options, const Peer* peer);
void print_header(const Options& options, const Communicator& ranks, const Peer* peer);
/// Prints one line of the table; either result may be null. In less than 100 columns the line shows a single result:
/// the out-of-place result if there is one.
void print_line(const Options& options, const Result* out_of_place, const Result* in_place);
/// Prints the last line: that all results are right, or the number of wrong elements.
void print_verdict(const std::vector<Result>& results);
std::string to_json(const Options& options, const Peer* peer, const std::vector<Result>& results);

/// Checks that there is something to tune: no setting fixes the algorithm, and the job has at least two ranks.
/// @throws InvalidArgument  there is nothing to tune
void check_tunable(const Settings& settings, const Options& options, int ranks);
/// Finds the fastest way to run each collective, by size. Rank 0 prints progress on standard error. Collective over
/// `ranks`; all ranks get the same table.
TuningTable tune(Communicator& ranks, const Options& options);

}  // namespace farandole::bench
