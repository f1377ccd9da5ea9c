// SPDX-License-Identifier: Apache-2.0
// A receive that MPI cannot cancel, for example because the sender has stopped in the middle of a message. MPI_Cancel
// is replaced here by a no-op. Two ranks, which communicate by messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"

namespace {

constexpr int kLongMessage = 10'000;  // bytes; what ranks tell each other otherwise is shorter

/// The receive of a long message.
struct Receive {
  MPI_Request* request;  // of a transfer, which is kept where the receive is stuck
  std::byte* data;
  std::size_t bytes;
};

bool cancels = true;
std::vector<Receive> receives;
std::vector<MPI_Request*> stuck;

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): names of MPI
extern "C" {
int MPI_Cancel(MPI_Request* request) {
  const bool is_long = std::any_of(receives.begin(), receives.end(),
                                   [request](const Receive& receive) { return receive.request == request; });
  if (cancels || !is_long) return PMPI_Cancel(request);
  stuck.push_back(request);
  return MPI_SUCCESS;
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request* request) {
  if (count >= kLongMessage) {
    receives.push_back({request, static_cast<std::byte*>(data), static_cast<std::size_t>(count)});
  }
  return PMPI_Irecv(data, count, type, source, tag, comm, request);
}
}
// NOLINTEND(readability-identifier-naming)

namespace farandole {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kCount = 100'000;

/// Rank 0 calls `collective`, to which rank 1 never comes. Returns what it raised.
std::string text_of_failure(const std::function<void(Communicator&)>& collective) {
  std::string text;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  {
    World world;
    Communicator ranks = Communicator::of_world(world);
    ranks.barrier();
    receives.clear();
    if (rank == 0) {
      try {
        collective(ranks);
        ADD_FAILURE() << "no exception";
      } catch (const Timeout& error) {
        text = error.what();
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Barrier(MPI_COMM_WORLD);  // joining the next job has the same deadline
  return rank == 0 ? text : std::string();
}

bool overlaps(const std::byte* begin, std::size_t bytes, const std::byte* other, std::size_t other_bytes) {
  return std::less<>()(begin, other + other_bytes) && std::less<>()(other, begin + bytes);
}

TEST(StuckReceive, MemoryIsKeptAndErrorSaysItMayStillBeWritten) {
  cancels = false;
  std::vector<float> data(kCount, 1.0F);
  const std::string text =
      text_of_failure([&](Communicator& ranks) { ranks.allreduce(data, ReduceOp::kSum, {.algorithm = "ring"}); });
  if (text.empty()) return;  // the other rank
  EXPECT_THAT(text, HasSubstr("may still be written"));
  ASSERT_FALSE(receives.empty());
  // Memory of the same size would be given out again first.
  std::vector<std::unique_ptr<std::byte[]>> blocks;
  for (const auto& [request, address, bytes] : std::exchange(receives, {})) {
    for (int i = 0; i < 50; ++i) {
      blocks.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
      EXPECT_FALSE(overlaps(blocks.back().get(), bytes, address, bytes))
          << "a receive of " << bytes << " bytes is still active there";
    }
  }
}

TEST(StuckReceive, TheErrorNamesTheCallersMemoryToo) {
  cancels = false;
  std::vector<float> part(kCount, 1.0F), all(2 * kCount);
  const std::string text =
      text_of_failure([&](Communicator& ranks) { ranks.allgather(part, all, {}, {.algorithm = "ring"}); });
  if (text.empty()) return;  // the other rank
  EXPECT_THAT(text, HasSubstr("may still be written"));
}

TEST(WithdrawnReceive, LeavesNothingToSay) {
  cancels = true;
  std::vector<float> part(kCount, 1.0F), all(2 * kCount);
  const std::string text =
      text_of_failure([&](Communicator& ranks) { ranks.allgather(part, all, {}, {.algorithm = "ring"}); });
  EXPECT_THAT(text, Not(HasSubstr("may still be written")));
}

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  MPI_Init(&argc, &argv);  // one thread, so one heap
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  setenv("FARANDOLE_SHARED_MEMORY", "off", 1);
  setenv("FARANDOLE_CHECK", "off", 1);
  setenv("FARANDOLE_TIMEOUT", "2", 1);
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) std::_Exit(failed);
  // MPI_Finalize may wait for them.
  for (MPI_Request* request : stuck) {
    PMPI_Cancel(request);
    PMPI_Wait(request, MPI_STATUS_IGNORE);
  }
  MPI_Finalize();
  return 0;
}
