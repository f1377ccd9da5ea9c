// SPDX-License-Identifier: Apache-2.0
// A job over TCP with as many processes as a large cluster has. The processes join, run a barrier and allreduces of a
// few elements, and make no more connections than these need. A process has one World at a time, and a World at most 64
// ranks; therefore the test works one layer below: each rank is a thread with the process group of a separate process
// on a separate host, and runs the schedules over its transport.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <latch>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "farandole/internal/stall_monitor.h"
#include "messages/scheduled_collective.h"
#include "sanitizers.h"
#include "schedule/layout.h"
#include "schedule/schedule_cache.h"
#include "side_by_side.h"
#include "sockets/binomial_tree.h"
#include "tcp/stream.h"
#include "tcp/tcp_process_group.h"

namespace farandole::tcp {
namespace {

// A sanitizer's threads take more memory and time.
constexpr int kRanks = test::kSlowness > 1 ? 64 : 512;
constexpr std::size_t kElements = 8;

/// With how many peers a rank exchanges messages in the barrier (those 1, 2, 4, … places before and after it, of which
/// those half the ranks away are one), which are also the peers of the tree and of recursive doubling.
constexpr int kPeers = 2 * std::countr_zero(static_cast<unsigned>(kRanks)) - 1;
static_assert(std::has_single_bit(static_cast<unsigned>(kRanks)));

/// Descriptors of all ranks: listening sockets, both ends of the connections, and the same number for simultaneous
/// connects, of which one is closed. The rendezvous needs fewer.
constexpr rlim_t kDescriptors = kRanks + 2 * kRanks * kPeers + 100;

/// Lets this process open so many files. Empty: it can; else why not.
std::string open_files_problem() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max < kDescriptors) {
    return fmt::format("{} ranks need {} open files in one process, and the hard limit is {} (ulimit -Hn)", kRanks,
                       kDescriptors, limit.rlim_max);
  }
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? "" : "the soft limit of open files cannot be raised";
}

/// One rank in a process, one process on a host.
Topology one_by_one() {
  std::vector<ProcessInfo> processes(kRanks);
  for (int p = 0; p < kRanks; ++p) processes[static_cast<std::size_t>(p)].host_index = p;
  return Topology(std::move(processes));
}

/// State shared by all threads.
struct Shared {
  Slot slot;
  Topology topology = one_by_one();
  std::latch joined{kRanks}, counted{kRanks}, done{kRanks};  ///< all ranks: their connections, too
  std::atomic<int> arrived{0};                               ///< at the barrier
};

/// Measurements and error of one rank.
struct Report {
  Seconds joined{}, barrier{}, first_allreduce{}, second_allreduce{};
  int at_first = 0;  ///< connections: after it has joined
  int at_last = 0;
  std::string error{};
};

/// One rank, which is process `rank` of the job.
class Rank {
 public:
  Rank(Shared& shared, const Slot& slot) : shared_(shared), processes_(slot) {
    processes_.set_topology(shared.topology);
    group_.rank = slot.process;
    group_.members.resize(kRanks);
    std::iota(group_.members.begin(), group_.members.end(), 0);
    group_.transport = &processes_.transport();
  }

  int connections() const { return processes_.network().connections(); }
  /// @throws Error  no rank may leave before all have arrived
  void barrier() {
    ++shared_.arrived;
    std::vector<std::int64_t> token(1);
    run(Collective::kBarrier, "dissemination", token);
    if (shared_.arrived < kRanks) throw InternalError("a rank has left the barrier before all had arrived");
  }
  /// @throws Error  the sum is wrong
  void allreduce() {
    std::vector<std::int64_t> values(kElements);
    std::iota(values.begin(), values.end(), 10 * group_.rank);
    run(Collective::kAllreduce, "recursive_doubling", values);
    for (std::size_t i = 0; i < kElements; ++i) {
      const std::int64_t sum = kRanks * (static_cast<std::int64_t>(i) + 5 * (kRanks - 1));
      if (values[i] != sum) throw InternalError(fmt::format("element {} is {}, not {}", i, values[i], sum));
    }
  }
  /// Until all ranks are there, while which it answers calls.
  void meet_at(std::latch& latch, std::string_view what) {
    latch.count_down();
    StallMonitor stall(shared_.slot.warn_after, shared_.slot.timeout);
    for (; !latch.try_wait(); rest()) {
      stall.check([&] { return fmt::format("rank {} waits until all ranks have {}", group_.rank, what); });
    }
  }

 private:
  /// With a pause, without which hundreds of threads on a few cores do nothing but look for messages.
  void rest() {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    processes_.rest();
  }
  void run(Collective collective, std::string_view algorithm, std::vector<std::int64_t>& values) {
    Execution execution;
    execution.prepared =
        ScheduleCache::of_process().get(*find_algorithm(collective, algorithm), {group_.rank, kRanks, 0}, 1);
    const Schedule& schedule = execution.prepared->schedule;
    execution.offsets = balanced_offsets(values.size(), schedule.chunks, 1, 1);
    execution.input = execution.data = reinterpret_cast<std::uintptr_t>(values.data());
    execution.dtype = DType::kI64;
    execution.result_pieces = schedule.pieces();
    Executor executor(group_, std::move(execution));
    StallMonitor stall(shared_.slot.warn_after, shared_.slot.timeout);
    for (Operation::State state{}; (state = executor.advance()) != Operation::State::kDone;) {
      if (state == Operation::State::kWaiting) rest();
      stall.check([&] {
        return fmt::format("rank {} waits in the {} for ranks {}", group_.rank, name(collective),
                           fmt::join(executor.waits_for(), ", "));
      });
    }
  }

  Shared& shared_;
  TcpProcessGroup processes_;
  Group group_;
};

Seconds since(Clock::time_point start) {
  return Clock::now() - start;
}

Report run_rank(Shared& shared, int rank) {
  Report report;
  Slot slot = shared.slot;
  slot.process = rank;
  try {
    auto start = Clock::now();
    Rank self(shared, slot);
    report.joined = since(start);
    self.meet_at(shared.joined, "joined");
    report.at_first = self.connections();
    self.meet_at(shared.counted, "counted their connections");
    const auto timed = [&](const auto& body) {
      start = Clock::now();
      body();
      return since(start);
    };
    report.barrier = timed([&] { self.barrier(); });
    report.first_allreduce = timed([&] { self.allreduce(); });
    report.second_allreduce = timed([&] { self.allreduce(); });
    report.at_last = self.connections();
    // A connection that ends earlier is a fault of its peer.
    self.meet_at(shared.done, "reduced");
  } catch (const Error& error) {
    report.error = error.what();
  }
  return report;
}

template <class Value>
Value most(const std::vector<Report>& reports, Value Report::*member) {
  const auto less = [member](const Report& one, const Report& other) { return one.*member < other.*member; };
  return (*std::max_element(reports.begin(), reports.end(), less)).*member;
}

TEST(ManyTcpRanks, MeetAndRunShortCollectives) {
  if (const std::string problem = open_files_problem(); !problem.empty()) GTEST_SKIP() << problem;
  Shared shared;
  shared.slot.processes = kRanks;
  shared.slot.key = make_job_key();
  shared.slot.job = 7;
  shared.slot.interface = "127.0.0.0/8";
  shared.slot.rendezvous = fmt::format("127.0.0.1:{}", port_of(listen_at(std::nullopt)));
  shared.slot.timeout = Seconds(100 * test::kSlowness);
  shared.slot.warn_after = 0.9 * shared.slot.timeout;
  const auto reports = test::side_by_side<Report>(kRanks, [&](int rank) { return run_rank(shared, rank); });
  for (const Report& report : reports) ASSERT_EQ(report.error, "");
  int ends = 0;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const auto neighbours = sockets::BinomialTree(static_cast<int>(rank), kRanks).neighbours().size();
    EXPECT_EQ(reports[rank].at_first, static_cast<int>(neighbours)) << "rank " << rank;
    EXPECT_EQ(reports[rank].at_last, kPeers) << "rank " << rank;
    ends += reports[rank].at_last;
  }
  fmt::print(
      "{} ranks: joined within {:.2f} s; barrier {:.3f} s, first allreduce {:.3f} s, second {:.3f} s, of the slowest "
      "rank; "
      "connections of a rank: at most {} when it has joined, {} at last; {} in all\n",
      kRanks, most(reports, &Report::joined).count(), most(reports, &Report::barrier).count(),
      most(reports, &Report::first_allreduce).count(), most(reports, &Report::second_allreduce).count(),
      most(reports, &Report::at_first), most(reports, &Report::at_last), ends / 2);
}

}  // namespace
}  // namespace farandole::tcp
