// SPDX-License-Identifier: Apache-2.0
// Random programs of collectives on device memory: several communicators of subgroups, in both device orders. All ranks
// make the same plan from one seed; each rank runs its part.
#pragma once

#include <cstddef>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/sdk/device.h"

namespace farandole::test {

/// Ranks of one communicator, and who orders its calls.
struct PlannedGroup {
  std::vector<int> members;  ///< ranks of the job, ascending
  CommunicatorOptions::DeviceOrder order = CommunicatorOptions::DeviceOrder::kCaller;
  bool contains(int rank) const;
  bool is_caller() const { return order == CommunicatorOptions::DeviceOrder::kCaller; }
};

struct PlannedCall {
  enum class Way { kInStream, kBlocking, kAsync, kAsyncInStream };
  std::size_t group = 0;
  unsigned number = 0;  ///< of the program; the values depend on it
  Collective collective = Collective::kAllreduce;
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kF32;
  std::size_t count = 0;  ///< elements; for allgather and reduce_scatter elements of each rank
  int root = 0;
  const char* algorithm = "";
  Way way = Way::kInStream;
  std::size_t stream = 0;  ///< index among the rank's streams
};

/// The plan, which depends on the seed and the number of ranks only.
class RandomProgram {
 public:
  static constexpr std::size_t kStreams = 3;
  RandomProgram(unsigned seed, int ranks);
  const std::vector<PlannedGroup>& groups() const { return groups_; }
  /// A call that may take any way.
  PlannedCall any_call(std::size_t group);
  /// A call that a warmed-up communicator in the caller's order enqueues directly. Each call's count is another.
  PlannedCall direct_call(std::size_t group);
  std::size_t below(std::size_t limit) { return random_() % limit; }

 private:
  std::mt19937 random_;
  const int ranks_;
  std::vector<PlannedGroup> groups_;
  unsigned calls_ = 0;
};

/// One rank's part of a program: its communicators and streams.
class ProgramRank {
 public:
  /// Makes the communicators. Collective. @param streams  of the rank's device
  ProgramRank(Communicator& ranks, const std::vector<PlannedGroup>& groups, std::vector<StreamView> streams);
  int rank() const { return ranks_.rank(); }
  bool is_in(std::size_t group) const { return groups_[group].valid(); }
  Communicator& group(std::size_t index) { return groups_[index]; }
  Communicator& ranks() { return ranks_; }
  Device& device() { return device_; }
  StreamView stream(std::size_t index) const { return streams_[index]; }
  void synchronize();

 private:
  Communicator& ranks_;
  Device& device_;
  std::vector<Communicator> groups_;
  std::vector<StreamView> streams_;
};

/// The streams of a program; programs that follow each other on a rank share them.
std::vector<StreamView> program_streams(Communicator& ranks);

/// A call of one rank, with buffers of its own. The program lives longer, and has ended the call before the destructor.
class ProgramCall {
 public:
  /// Allocates and fills the buffers. `group` is the plan of the call's communicator.
  ProgramCall(ProgramRank& rank, const PlannedGroup& group, const PlannedCall& plan);
  void start();
  /// Waits for an asynchronous call.
  void wait();
  /// Empty if the result is right, else the first difference. The device has ended the call.
  std::string difference() const;

 private:
  double expected(std::size_t index) const;
  double reduced(std::size_t index) const;
  CallOptions options() const;
  void start_blocking();
  Work start_async();

  ProgramRank& rank_;
  const PlannedGroup& group_;
  const PlannedCall plan_;
  Buffer source_, input_, output_;
  std::optional<Work> work_;
};

/// PROGRAM_SEED, the first seed, or `otherwise`.
unsigned first_seed(unsigned otherwise);

}  // namespace farandole::test
