// SPDX-License-Identifier: Apache-2.0
// Faults among ranks that are threads: the error that each rank raises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <latch>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/gradients/gradient_averager.h"
#include "variable.h"

namespace farandole {
namespace {

using test::Variable;
using testing::AllOf;
using testing::HasSubstr;

TEST(ReplicaFaults, AnExceptionOnOneRankReachesTheOthersAndIsRethrown) {
  std::atomic<int> raised{0};
  try {
    run_replicas(4, [&](Communicator& ranks) {
      if (ranks.rank() == 2) throw std::runtime_error("no more data");
      std::vector<float> data(8);
      try {
        ranks.allreduce(data, ReduceOp::kSum);
      } catch (const PeerLost& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 2"), HasSubstr("no more data")));
        ++raised;
        EXPECT_THROW(ranks.barrier(), PeerLost) << "the job stays poisoned";
        throw;
      }
    });
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "no more data");
  }
  EXPECT_EQ(raised, 3);
}

TEST(ReplicaFaults, ARankThatReturnsWhileOthersWaitIsNamed) {
  std::atomic<int> raised{0};
  EXPECT_THROW(run_replicas(3,
                            [&](Communicator& ranks) {
                              if (ranks.rank() == 1) return;
                              std::vector<float> data(8);
                              try {
                                ranks.allreduce(data, ReduceOp::kSum);
                              } catch (const PeerLost& error) {
                                EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1"), HasSubstr("has left")));
                                ++raised;
                                throw;
                              }
                            }),
               PeerLost);
  EXPECT_EQ(raised, 2);
}

TEST(ReplicaFaults, ADeadlineNamesTheRankThatIsMissing) {
  const Variable timeout("FARANDOLE_TIMEOUT", "0.3");
  std::latch timed_out(2);
  EXPECT_THROW(run_replicas(3,
                            [&](Communicator& ranks) {
                              std::vector<float> data(8);
                              ranks.allreduce(data, ReduceOp::kSum);
                              if (ranks.rank() == 2) timed_out.wait();
                              try {
                                ranks.allreduce(data, ReduceOp::kMax);
                              } catch (const Timeout& error) {
                                EXPECT_THAT(error.what(), AllOf(HasSubstr("allreduce of 8 f32 elements, max"),
                                                                HasSubstr("not in it yet: rank 2"),
                                                                HasSubstr("entered only collective 1")));
                                if (ranks.rank() != 2) timed_out.count_down();
                                throw;
                              }
                            }),
               Timeout);
}

double elapsed_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(ReplicaFaults, DeadlineHoldsIfOnlyProgramCallsPoll) {
  const Variable timeout("FARANDOLE_TIMEOUT", "3");
  std::latch timed_out(1);
  run_replicas(2, [&](Communicator& ranks) {
    Communicator tested = ranks.duplicate({.progress = CommunicatorOptions::Progress::kInCalls});
    std::vector<float> data(8);
    if (ranks.rank() == 1) {
      timed_out.wait();
      EXPECT_THROW(tested.allreduce(data, ReduceOp::kSum), Timeout);
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    Work work = tested.allreduce_async(data, ReduceOp::kSum);
    // Between two tests the program is elsewhere, as if it computed.
    while (!work.test() && elapsed_since(start) < 20) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    EXPECT_LT(elapsed_since(start), 20) << "no deadline";
    if (!work.test()) ranks.abort("no deadline");
    timed_out.count_down();
    EXPECT_THROW(work.wait(), Timeout);
  });
}

TEST(ReplicaFaults, ADeadlineCountsTheTimeBehindAnEarlierCollective) {
  const Variable timeout("FARANDOLE_TIMEOUT", "3");
  std::latch timed_out(1);
  run_replicas(2, [&](Communicator& ranks) {
    std::vector<float> first(8), second(8);
    if (ranks.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2600));
      ranks.allreduce(first, ReduceOp::kSum);
      timed_out.wait();
      EXPECT_THROW(ranks.allreduce(second, ReduceOp::kSum), Timeout);
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    Work earlier = ranks.allreduce_async(first, ReduceOp::kSum);
    Work later = ranks.allreduce_async(second, ReduceOp::kSum);
    earlier.wait();
    EXPECT_THROW(later.wait(), Timeout);
    // 5.5 s if only the time since the end of the earlier one counted.
    EXPECT_LT(elapsed_since(start), 5);
    timed_out.count_down();
  });
}

TEST(ReplicaFaults, AbortReachesAllRanksWithItsText) {
  EXPECT_THROW(run_replicas(3,
                            [&](Communicator& ranks) {
                              if (ranks.rank() == 0) ranks.abort("validation loss exploded");
                              std::vector<float> data(8);
                              try {
                                ranks.allreduce(data, ReduceOp::kSum);
                                ADD_FAILURE() << "no exception";
                              } catch (const PeerLost& error) {
                                EXPECT_THAT(error.what(), HasSubstr("validation loss exploded"));
                                throw;
                              }
                            }),
               PeerLost);
}

TEST(ReplicaFaults, UnwindingWithPendingCollectivesDoesNotHang) {
  EXPECT_THROW(run_replicas(2,
                            [&](Communicator& ranks) {
                              Communicator copy = ranks.duplicate();
                              std::vector<float> data(100'000);
                              if (ranks.rank() == 0) {
                                Communicator last = std::move(copy);
                                const Work work = last.allreduce_async(data, ReduceOp::kSum);
                                throw std::runtime_error("unwinding");
                              }
                              ranks.barrier();
                            }),
               std::runtime_error);
}

TEST(ReplicaFaults, TestingSeesAnAbort) {
  EXPECT_THROW(run_replicas(2,
                            [&](Communicator& ranks) {
                              if (ranks.rank() == 0) {
                                ranks.abort("enough");
                                return;
                              }
                              std::vector<float> data(8);
                              Work work = ranks.allreduce_async(data, ReduceOp::kSum);
                              while (!work.test()) {
                              }
                              work.wait();
                            }),
               PeerLost);
}

TEST(ReplicaFaults, MemoryOfTheOperationStaysUntilItsMessagesAreGone) {
  // A reduce_scatter sends from memory of its own, which the others may be reading when a fault ends it.
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(run_replicas(4,
                              [&](Communicator& ranks) {
                                std::vector<float> input(4 << 18), output(1 << 18);
                                Work work = ranks.reduce_scatter_async(input, output, ReduceOp::kSum);
                                if (ranks.rank() == 3) throw std::runtime_error("fault");
                                work.wait();
                                ranks.barrier();
                              }),
                 std::runtime_error);
  }
}

TEST(ReplicaFaults, LeavingRightAfterTheLastCollectiveIsNoFault) {
  const Variable quiet("FARANDOLE_LOG", "off");
  std::latch started(1);
  run_replicas(2, [&](Communicator& ranks) {
    // Rank 1 has waited for longer than a goodbye when rank 0 comes, takes part, and leaves at once.
    if (ranks.rank() == 0) {
      started.wait();
      const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1200);
      while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    } else {
      started.count_down();
    }
    ranks.barrier();
  });
}

TEST(ReplicaFaults, AGradientAveragerMayDieWithBucketsInFlight) {
  EXPECT_THROW(run_replicas(2,
                            [&](Communicator& ranks) {
                              std::vector<std::vector<float>> parts(4, std::vector<float>(100'000));
                              std::vector<GradientSpan> spans;
                              for (auto& part : parts) spans.push_back({part, "part"});
                              GradientOptions options;
                              options.bucket_bytes = 100;
                              GradientAverager averager(ranks, spans, options);
                              for (std::size_t i = parts.size(); i-- > 0;) averager.ready(i);
                              if (ranks.rank() == 1) throw std::runtime_error("between ready and wait");
                              averager.wait();
                              ranks.barrier();
                            }),
               std::runtime_error);
}

/// A directory for flight records, which goes with this object.
class FlightDirectory {
 public:
  ~FlightDirectory() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }
  std::filesystem::path file_of(int rank) const {
    return path_ / ("rank-" + std::to_string(rank) + ".farandole-flight.json");
  }
  std::string text_of(int rank) const {
    std::ifstream file(file_of(rank));
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("farandole-flight-" + std::to_string(getpid()));
};

TEST(ReplicaFaults, TheFlightRecordIsWrittenOnAFault) {
  const FlightDirectory directory;
  const Variable flight("FARANDOLE_FLIGHT_DIR", directory.path());
  const Variable quiet("FARANDOLE_LOG", "off");
  EXPECT_THROW(run_replicas(2,
                            [&](Communicator& ranks) {
                              std::vector<float> data(8);
                              ranks.allreduce(data, ReduceOp::kSum);
                              if (ranks.rank() == 1) throw std::runtime_error("fault");
                              ranks.barrier();
                            }),
               std::runtime_error);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(directory.text_of(rank), HasSubstr("allreduce of 8 f32 elements, sum")) << rank;
    EXPECT_EQ(std::filesystem::status(directory.file_of(rank)).permissions(), std::filesystem::perms{0600}) << rank;
  }
}

TEST(ReplicaFaults, FlightRecordsAreCompleteWhenAnyRankRaises) {
  const Variable quiet("FARANDOLE_LOG", "off");
  for (int round = 0; round < 10; ++round) {
    const FlightDirectory directory;
    const Variable flight("FARANDOLE_FLIGHT_DIR", directory.path());
    std::mutex mutex;
    std::vector<std::string> seen;  // guarded by mutex
    EXPECT_THROW(run_replicas(3,
                              [&](Communicator& ranks) {
                                std::vector<float> data(8);
                                // Long enough to be written for a while.
                                for (int i = 0; i < 500; ++i) ranks.allreduce(data, ReduceOp::kSum);
                                if (ranks.rank() == 1) ranks.abort("enough");
                                try {
                                  Work work = ranks.allreduce_async(data, ReduceOp::kSum);
                                  while (!work.test()) {
                                  }
                                  work.wait();
                                } catch (const PeerLost&) {
                                  const std::lock_guard lock(mutex);
                                  for (const int rank : {0, 1, 2}) seen.push_back(directory.text_of(rank));
                                  throw;
                                }
                              }),
                 PeerLost);
    ASSERT_EQ(seen.size(), 9U);
    for (const std::string& text : seen) EXPECT_GE(std::count(text.begin(), text.end(), '\n'), 500);
  }
}

}  // namespace
}  // namespace farandole
