// SPDX-License-Identifier: Apache-2.0
// A World in a program that has initialised MPI itself. usage: world_test single|funneled|serialized|multiple
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"

namespace farandole {
namespace {

int thread_level = MPI_THREAD_SINGLE;

int level_of(const std::string& name) {
  if (name == "multiple") return MPI_THREAD_MULTIPLE;
  if (name == "serialized") return MPI_THREAD_SERIALIZED;
  return name == "funneled" ? MPI_THREAD_FUNNELED : MPI_THREAD_SINGLE;
}

TEST(JoinedWorld, AsynchronousCallsCompleteAtEveryThreadLevel) {
  World world;
  Communicator ranks = Communicator::of_world(world);
  std::vector<std::vector<float>> data(6, std::vector<float>(30'011, 1.0F));
  std::vector<Work> works;
  for (auto& values : data) works.push_back(ranks.allreduce_async(values, ReduceOp::kSum));
  for (Work& work : works) work.wait();
  for (const auto& values : data) EXPECT_EQ(values.back(), static_cast<float>(ranks.size()));
}

TEST(JoinedWorld, ReplicasNeedAnMpiThatAnyThreadMayCall) {
  WorldOptions options;
  options.replicas = 2;
  if (thread_level >= MPI_THREAD_SERIALIZED) {
    World world(options);
    EXPECT_EQ(world.size(), 6);
    return;
  }
  try {
    World world(options);
    FAIL() << "no exception";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("MPI_THREAD_MULTIPLE"), std::string::npos) << error.what();
  }
}

TEST(JoinedWorld, ACommunicatorOfTheCallersIsTheWholeWorld) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : 1, 0, &part);
  {
    WorldOptions options;
    options.mpi_communicator = MPI_Comm_c2f(part);
    options.expected_size = rank == 0 ? 1 : 2;
    World world(options);
    Communicator ranks = Communicator::of_world(world);
    std::vector<std::int32_t> sum{rank};
    ranks.allreduce(sum, ReduceOp::kSum);
    EXPECT_EQ(sum[0], rank == 0 ? 0 : 3);
  }
  MPI_Comm_free(&part);
}

/// MPI makes the communicator that its own allreduce needs only with all ranks together. Nobody waits for that in a
/// call that does not block.
TEST(JoinedWorld, TestingTheVendorsAllreduceDoesNotWaitForOtherRanks) {
  if (thread_level == MPI_THREAD_SERIALIZED) GTEST_SKIP() << "there is no vendor";
  setenv("FARANDOLE_CHECK", "off", 1);  // else ranks meet when they compare their calls
  setenv("FARANDOLE_ALLREDUCE", "vendor", 1);
  {
    World world;
    Communicator ranks = Communicator::of_world(world);
    Communicator part = ranks.split(ranks.rank() == 2 ? 1 : 0);
    std::vector<float> data(100, 1.0F), more(100, 1.0F);
    if (ranks.rank() == 0) {
      Work work = ranks.allreduce_async(data, ReduceOp::kSum, {.algorithm = "vendor"});
      Work of_part = part.allreduce_async(more, ReduceOp::kSum, {.algorithm = "vendor"});
      for (int i = 0; i < 100; ++i) {
        EXPECT_FALSE(work.test());
        EXPECT_FALSE(of_part.test());
      }
      for (int rank = 1; rank < ranks.size(); ++rank) MPI_Send(nullptr, 0, MPI_BYTE, rank, 0, MPI_COMM_WORLD);
      work.wait();
      of_part.wait();
    } else {
      MPI_Recv(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      // In the other order.
      Work of_part = part.allreduce_async(more, ReduceOp::kSum, {.algorithm = "vendor"});
      ranks.allreduce(data, ReduceOp::kSum, {.algorithm = "vendor"});
      of_part.wait();
    }
    EXPECT_EQ(data.back(), 3.0F);
    EXPECT_EQ(more.back(), static_cast<float>(part.size()));
  }
  unsetenv("FARANDOLE_CHECK");
  unsetenv("FARANDOLE_ALLREDUCE");
}

TEST(JoinedWorld, ACommunicatorOfTheWorldIsMadeWithoutTheOtherRanks) {
  World world;
  if (world.rank() != 0) MPI_Recv(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  Communicator ranks = Communicator::of_world(world);
  for (int rank = 1; world.rank() == 0 && rank < ranks.size(); ++rank) {
    MPI_Send(nullptr, 0, MPI_BYTE, rank, 0, MPI_COMM_WORLD);
  }
  ranks.barrier();
}

TEST(JoinedWorld, ACommunicatorThatOutlivesItRaises) {
  Communicator ranks;
  Work work;
  std::vector<float> data(100'000, 1.0F);
  {
    World world;
    ranks = Communicator::of_world(world);
    work = ranks.allreduce_async(data, ReduceOp::kSum, {.algorithm = "ring"});
  }
  work.wait();
  EXPECT_EQ(data.back(), 3.0F);
  EXPECT_EQ(ranks.size(), 3);
  EXPECT_THROW(ranks.barrier(), InvalidArgument);
  EXPECT_THROW((void)internals(ranks).peer_has_started_next(), InvalidArgument);
  EXPECT_THROW((void)internals(ranks).sent_bytes(), InvalidArgument);
  World next;
  Communicator::of_world(next).barrier();
}

TEST(JoinedWorld, AnotherNumberOfRanksThanExpectedIsRefused) {
  WorldOptions options;
  options.expected_size = 4;
  try {
    World world(options);
    FAIL() << "no exception";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("4 ranks were expected and 3 are there"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, farandole::level_of(argc > 1 ? argv[1] : "multiple"), &provided);
  MPI_Query_thread(&farandole::thread_level);
  setenv("FARANDOLE_TIMEOUT", "60", 0);
  const int failed = RUN_ALL_TESTS();
  MPI_Finalize();
  return failed;
}
