// SPDX-License-Identifier: Apache-2.0
// A program that has initialised MPI with MPI_THREAD_SERIALIZED calls MPI while no collective is pending, as world.h
// allows. No thread of Farandole may be inside MPI then. The tests replace the MPI functions that Farandole's own
// threads call, and count the calls. usage: serialized_test [--one-core] [gtest options]
#include <gtest/gtest.h>
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/engine.h"
#include "farandole/gradients/gradient_averager.h"

namespace {

const std::thread::id kProgramThread = std::this_thread::get_id();
std::atomic<bool> program_calls{false};  // nothing is pending, and MPI is the program's
std::atomic<int> inside{0};              // threads of Farandole in MPI
std::atomic<int> calls{0};
std::atomic<int> overlaps{0};

/// One call of MPI. Those of other threads than the program's take their time, so that none goes unseen.
class Call {
 public:
  Call() {
    if (is_programs_) return;
    inside.fetch_add(1);
    calls.fetch_add(1);
    if (program_calls.load()) overlaps.fetch_add(1);
    for (int i = 0; i < 20; ++i) std::this_thread::yield();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    if (!is_programs_) inside.fetch_sub(1);
  }

 private:
  const bool is_programs_ = std::this_thread::get_id() == kProgramThread;
};

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): names of MPI
extern "C" {
int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  const Call call;
  return PMPI_Test(request, flag, status);
}
int MPI_Iprobe(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  const Call call;
  return PMPI_Iprobe(source, tag, comm, flag, status);
}
int MPI_Isend(const void* data, int count, MPI_Datatype type, int target, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const Call call;
  return PMPI_Isend(data, count, type, target, tag, comm, request);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request* request) {
  const Call call;
  return PMPI_Irecv(data, count, type, source, tag, comm, request);
}
int MPI_Cancel(MPI_Request* request) {
  const Call call;
  return PMPI_Cancel(request);
}
int MPI_Request_free(MPI_Request* request) {
  const Call call;
  return PMPI_Request_free(request);
}
}
// NOLINTEND(readability-identifier-naming)

namespace farandole {
namespace {

using namespace std::chrono_literals;

/// Calls MPI as a program does while nothing is pending.
void call_mpi() {
  program_calls.store(true);
  overlaps.fetch_add(inside.load());
  for (int i = 0; i < 20; ++i) {
    int found = 0;
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    std::this_thread::yield();
  }
  program_calls.store(false);
}

/// Waiting for this rank takes the others from one core to the next rung of waiting, up to sleeping.
void come_late(const Communicator& ranks, int round) {
  if (ranks.rank() == round % ranks.size()) std::this_thread::sleep_for(round % 4 == 0 ? 15ms : 1ms);
}

class Serialized : public testing::Test {
 protected:
  void SetUp() override { calls = overlaps = 0; }
  void TearDown() override { EXPECT_EQ(overlaps, 0) << "of " << calls << " calls of Farandole's threads"; }
};

constexpr int kRounds = 40;
constexpr std::size_t kCount = 20'000;

TEST_F(Serialized, BlockingCalls) {
  World world;
  Communicator ranks = Communicator::of_world(world);
  Communicator other = ranks.duplicate();
  call_mpi();
  std::vector<float> data(kCount, 1.0F), small(3, 1.0F);
  for (int round = 0; round < kRounds; ++round) {
    come_late(ranks, round);
    ranks.allreduce(data, ReduceOp::kMax);
    call_mpi();
    other.allreduce(small, ReduceOp::kMax);
    call_mpi();
    ranks.barrier();
    call_mpi();
  }
}

TEST_F(Serialized, AsynchronousCalls) {
  World world;
  Communicator ranks = Communicator::of_world(world);
  Communicator other = ranks.duplicate();
  std::vector<std::vector<float>> data(4, std::vector<float>(kCount, 1.0F));
  for (int round = 0; round < kRounds; ++round) {
    come_late(ranks, round);
    std::vector<Work> works;
    for (std::size_t i = 0; i < data.size(); ++i) {
      works.push_back((i % 2 == 0 ? ranks : other).allreduce_async(data[i], ReduceOp::kMax));
    }
    if (round % 2 == 0) std::this_thread::sleep_for(8ms);
    for (Work& work : works) work.wait();
    call_mpi();
    Work blocked = ranks.barrier_async();
    ranks.barrier();
    blocked.wait();
    call_mpi();
  }
}

TEST_F(Serialized, TestsAndDestructors) {
  World world;
  Communicator ranks = Communicator::of_world(world);
  std::vector<float> data(kCount, 1.0F);
  for (int round = 0; round < kRounds; ++round) {
    come_late(ranks, round);
    Work work = ranks.allreduce_async(data, ReduceOp::kMax);
    while (!work.test()) std::this_thread::yield();
    call_mpi();
    { const Work dropped = ranks.allreduce_async(data, ReduceOp::kMax); }
    call_mpi();
    {
      Communicator brief = ranks.duplicate();
      (void)brief.barrier_async();
    }
    call_mpi();
  }
}

TEST_F(Serialized, GradientAveraging) {
  World world;
  std::vector<std::vector<float>> gradients(6, std::vector<float>(5000, 1.0F));
  std::vector<GradientSpan> spans;
  for (auto& gradient : gradients) spans.push_back({gradient, "gradient"});
  GradientOptions options;
  options.bucket_bytes = 40'000;
  const Communicator ranks = Communicator::of_world(world);
  GradientAverager averager(ranks, spans, options);
  for (int round = 0; round < kRounds; ++round) {
    come_late(ranks, round);
    for (std::size_t i = spans.size(); i-- > 0;) averager.ready(i);
    averager.wait();
    call_mpi();
  }
}

TEST_F(Serialized, EngineWarnsThatMpiIsReservedUntilShutdown) {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  testing::internal::CaptureStderr();
  ASSERT_EQ(farandole_init(nullptr, nullptr), 0);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find("until farandole_shutdown") != std::string::npos, rank == 0) << text;
  ASSERT_EQ(farandole_shutdown(nullptr), 0);
  call_mpi();
}

TEST_F(Serialized, AFault) {
  setenv("FARANDOLE_TIMEOUT", "0.5", 1);
  World world;
  Communicator ranks = Communicator::of_world(world);
  std::vector<float> data(kCount, 1.0F);
  ranks.barrier();
  call_mpi();
  if (ranks.rank() == 0) {
    Work work = ranks.allreduce_async(data, ReduceOp::kMax);
    EXPECT_THROW(work.wait(), Error);
  } else {
    // Until rank 0 has given up.
    PMPI_Recv(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT_THROW(for (;;) ranks.allreduce(data, ReduceOp::kMax), Error);
  }
  call_mpi();
  for (int rank = 1; ranks.rank() == 0 && rank < ranks.size(); ++rank) {
    PMPI_Send(nullptr, 0, MPI_BYTE, rank, 0, MPI_COMM_WORLD);
  }
}

}  // namespace
}  // namespace farandole

namespace {

void keep_one_core() {
  cpu_set_t cores;
  sched_getaffinity(0, sizeof cores, &cores);
  int first = 0;
  while (!CPU_ISSET(first, &cores)) ++first;
  CPU_ZERO(&cores);
  CPU_SET(first, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1 && std::string_view(argv[1]) == "--one-core") keep_one_core();
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  setenv("FARANDOLE_TIMEOUT", "60", 0);
  // Both MPIs give what was asked for, or MPI_THREAD_MULTIPLE where nothing is restricted.
  MPI_Query_thread(&provided);
  const int failed = provided == MPI_THREAD_SERIALIZED ? RUN_ALL_TESTS() : 77;
  MPI_Finalize();
  return failed;
}
