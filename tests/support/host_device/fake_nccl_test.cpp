// SPDX-License-Identifier: Apache-2.0
// Tests of the double of libnccl under correct use. Ranks are threads.
#include <atomic>
#include <numeric>

#include "fake_tables.h"

namespace farandole::fake {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::StrEq;

using Nccl = FakeDeviceTest;

std::vector<float> numbers_from(float first, std::size_t count) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

void send(const Vector<float>& data, int peer, ncclComm_t comm, CUstream stream) {
  EXPECT_EQ(nccl_api().ncclSend(data.data(), data.size(), ncclFloat32, peer, comm, stream), ncclSuccess);
}

void receive(const Vector<float>& data, int peer, ncclComm_t comm, CUstream stream) {
  EXPECT_EQ(nccl_api().ncclRecv(data.data(), data.size(), ncclFloat32, peer, comm, stream), ncclSuccess);
}

// Makes these calls in one group.
void in_group(const std::function<void()>& calls) {
  EXPECT_EQ(nccl_api().ncclGroupStart(), ncclSuccess);
  calls();
  EXPECT_EQ(nccl_api().ncclGroupEnd(), ncclSuccess);
}

// Runs `body` on ranks of a communicator, each with a stream.
void on_communicator(int size, const std::function<void(int rank, ncclComm_t comm, CUstream stream)>& body) {
  const ncclUniqueId id = make_nccl_id();
  on_ranks(size, [&](int rank) {
    const ncclComm_t comm = join(id, size, rank);
    const CUstream stream = make_stream();
    body(rank, comm, stream);
    EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
    destroy(comm);
  });
}

// Waits until the communicator's items have polled so often in vain that no message is on its way.
void wait_until_idle(ncclComm_t comm) {
  while (fake_nccl_idle_polls(comm) < 500) std::this_thread::yield();
}

TEST_F(Nccl, HasAVersionAndTexts) {
  int version = 0;
  EXPECT_EQ(nccl_api().ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, 22809);
  EXPECT_THAT(nccl_api().ncclGetErrorString(ncclInvalidUsage), StrEq("invalid usage"));
}

TEST_F(Nccl, MessagesOfAGroupProceedTogether) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{100000}}) {
    on_communicator(3, [count](int rank, ncclComm_t comm, CUstream stream) {
      // Everyone sends two messages to each rank, itself included, before it receives.
      const Vector<float> first(numbers_from(static_cast<float>(rank), count + 1));
      const Vector<float> second(numbers_from(static_cast<float>(rank) + 100, count + 1));
      std::vector<std::unique_ptr<Vector<float>>> received;
      for (int i = 0; i < 6; ++i) received.push_back(std::make_unique<Vector<float>>(count + 1));
      in_group([&] {
        for (int peer = 0; peer < 3; ++peer) {
          send(first, peer, comm, stream);
          send(second, peer, comm, stream);
          receive(*received[2 * static_cast<std::size_t>(peer)], peer, comm, stream);
          receive(*received[2 * static_cast<std::size_t>(peer) + 1], peer, comm, stream);
        }
      });
      for (int peer = 0; peer < 3; ++peer) {
        const auto number = static_cast<float>(peer);
        EXPECT_EQ(received[2 * static_cast<std::size_t>(peer)]->values(stream), numbers_from(number, count + 1));
        EXPECT_EQ(received[2 * static_cast<std::size_t>(peer) + 1]->values(stream),
                  numbers_from(number + 100, count + 1));
      }
    });
  }
}

TEST_F(Nccl, GroupsOfAStreamComeOneAfterAnother) {
  on_communicator(2, [](int rank, ncclComm_t comm, CUstream stream) {
    const Vector<float> data(std::vector<float>(10, rank == 0 ? 5.0F : 0.0F));
    // The number goes to and fro, and each rank adds it to itself.
    const CUfunction reduce = find_kernel_by_name("farandole_reduce_f32_sum");
    for (int turn = 0; turn < 20; ++turn) {
      if (turn % 2 == rank) {
        send(data, 1 - rank, comm, stream);
      } else {
        receive(data, 1 - rank, comm, stream);
        EXPECT_EQ(
            launch(reduce, arguments_of({{data.data(), data.data(), data.data(), 10, 1.0}}, sizeof(float)), stream),
            CUDA_SUCCESS);
      }
    }
    const float expected = 5.0F * static_cast<float>(1 << (rank == 0 ? 20 : 19));
    EXPECT_THAT(data.values(stream), Each(expected));
  });
}

TEST_F(Nccl, Collectives) {
  constexpr std::size_t kCount = 777;
  for (const int size : {1, 2, 4}) {
    on_communicator(size, [size](int rank, ncclComm_t comm, CUstream stream) {
      const auto ranks = static_cast<std::size_t>(size);
      const std::size_t all = kCount * ranks;
      const auto mine = [](int of) { return numbers_from(static_cast<float>(1000 * of), kCount); };
      std::vector<float> sum(kCount, 0.0F);
      for (int of = 0; of < size; ++of) {
        for (std::size_t i = 0; i < kCount; ++i) sum[i] += mine(of)[i];
      }
      const Vector<float> input(mine(rank));
      const Vector<float> output(kCount);
      EXPECT_EQ(nccl_api().ncclAllReduce(input.data(), output.data(), kCount, ncclFloat32, ncclSum, comm, stream), 0);
      EXPECT_EQ(output.values(stream), sum);
      // Each rank's input is multiplied by the rank's own factor.
      ncclRedOp_t scaled = ncclSum;
      auto factor = static_cast<float>(rank + 2);
      EXPECT_EQ(nccl_api().ncclRedOpCreatePreMulSum(&scaled, &factor, ncclFloat32, ncclScalarHostImmediate, comm), 0);
      EXPECT_EQ(nccl_api().ncclReduce(input.data(), output.data(), kCount, ncclFloat32, scaled, size - 1, comm, stream),
                ncclSuccess);
      if (rank == size - 1) {
        float expected = 0;
        for (int of = 0; of < size; ++of) expected += mine(of)[500] * static_cast<float>(of + 2);
        EXPECT_EQ(output.values(stream)[500], expected);
      }
      EXPECT_EQ(input.values(stream), mine(rank));
      const Vector<float> shared(mine(rank));
      EXPECT_EQ(nccl_api().ncclBroadcast(shared.data(), shared.data(), kCount, ncclFloat32, size / 2, comm, stream), 0);
      EXPECT_EQ(shared.values(stream), mine(size / 2));
      const Vector<float> gathered(all);
      EXPECT_EQ(nccl_api().ncclAllGather(input.data(), gathered.data(), kCount, ncclFloat32, comm, stream),
                ncclSuccess);
      const std::vector<float> parts = gathered.values(stream);
      for (int of = 0; of < size; ++of) {
        const auto begin = parts.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(of) * kCount);
        EXPECT_EQ(std::vector<float>(begin, begin + kCount), mine(of));
      }
      // In place: the output is the rank's part of the input.
      const Vector<float> whole(std::vector<float>(all, static_cast<float>(rank + 1)));
      float* const part = whole.data() + kCount * static_cast<std::size_t>(rank);
      EXPECT_EQ(nccl_api().ncclReduceScatter(whole.data(), part, kCount, ncclFloat32, ncclSum, comm, stream), 0);
      EXPECT_EQ(whole.values(stream)[kCount * static_cast<std::size_t>(rank)],
                static_cast<float>(size * (size + 1)) / 2);
      EXPECT_EQ(nccl_api().ncclAllReduce(input.data(), output.data(), 0, ncclFloat32, ncclSum, comm, stream), 0);
    });
  }
}

TEST_F(Nccl, GroupsOfACommunicatorKeepTheirOrderOverStreams) {
  on_communicator(2, [](int rank, ncclComm_t comm, CUstream stream) {
    const CUstream second = make_stream();
    const Vector<float> one(std::vector<float>(5, 1.0F));
    const Vector<float> two(std::vector<float>(5, 2.0F));
    fake_device_stick(stream, 1);
    const CUevent event = make_event();
    EXPECT_EQ(cuda_api().cuEventRecord(event, stream), CUDA_SUCCESS);
    if (rank == 0) {
      send(one, 1, comm, stream);
      send(two, 1, comm, second);
    } else {
      receive(one, 0, comm, stream);
      receive(two, 0, comm, second);
    }
    fake_device_restore();
    EXPECT_THAT(one.values(stream), Each(1.0F));
    EXPECT_THAT(two.values(second), Each(2.0F));
  });
}

TEST_F(Nccl, TheFirstMessageBlocksTheHostUntilThePeerConnects) {
  const ncclUniqueId id = make_nccl_id();
  std::atomic<bool> has_returned{false};
  on_ranks(2, [&](int rank) {
    const ncclComm_t comm = join(id, 2, rank);
    const CUstream stream = make_stream();
    const Vector<float> data(numbers_from(0, 10));
    if (rank == 0) {
      send(data, 1, comm, stream);
      has_returned = true;
    } else {
      for (int look = 0; look < 200; ++look) {
        std::this_thread::yield();
        EXPECT_FALSE(has_returned);
      }
      receive(data, 0, comm, stream);
    }
    EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
    destroy(comm);
  });
}

TEST_F(Nccl, AThreadCanDriveSeveralRanks) {
  const ncclUniqueId id = make_nccl_id();
  std::vector<ncclComm_t> comms(3);
  std::vector<CUstream> streams;
  std::vector<std::unique_ptr<Vector<float>>> data;
  in_group([&] {
    for (int rank = 0; rank < 3; ++rank) {
      use_device(rank);
      streams.push_back(make_stream());
      data.push_back(std::make_unique<Vector<float>>(std::vector<float>(4, static_cast<float>(rank))));
      ncclComm_t* const comm = &comms[static_cast<std::size_t>(rank)];
      EXPECT_EQ(nccl_api().ncclCommInitRankConfig(comm, 3, id, rank, nullptr), ncclSuccess);
    }
  });
  in_group([&] {
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(nccl_api().ncclAllReduce(data[rank]->data(), data[rank]->data(), 4, ncclFloat32, ncclSum, comms[rank],
                                         streams[rank]),
                ncclSuccess);
    }
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    use_device(static_cast<int>(rank));
    EXPECT_THAT(data[rank]->values(streams[rank]), Each(3.0F));
    EXPECT_EQ(nccl_api().ncclCommFinalize(comms[rank]), ncclSuccess);
    destroy(comms[rank]);
  }
}

TEST_F(Nccl, RefusesInvalidArgumentsLikeNccl) {
  const ncclUniqueId id = make_nccl_id();
  ncclComm_t comm = nullptr;
  ncclConfig_v21400 config;
  config.magic = 0;
  EXPECT_EQ(nccl_api().ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  EXPECT_EQ(nccl_api().ncclCommInitRankConfig(&comm, 2, id, 2, nullptr), ncclInvalidArgument);
  EXPECT_EQ(nccl_api().ncclCommInitRankConfig(&comm, 1, ncclUniqueId{}, 0, nullptr), ncclSystemError);
  EXPECT_EQ(nccl_api().ncclCommInitRankConfig(&comm, 1, id, 0, nullptr), ncclSuccess);
  const Vector<float> data(4);
  EXPECT_EQ(nccl_api().ncclSend(data.data(), 4, ncclFloat32, 1, comm, make_stream()), ncclInvalidArgument);
  EXPECT_THAT(nccl_api().ncclGetLastError(comm), HasSubstr("there is no rank 1"));
  constexpr auto kNoOperation = static_cast<ncclRedOp_t>(9);
  EXPECT_EQ(nccl_api().ncclAllReduce(data.data(), data.data(), 2, ncclFloat32, kNoOperation, comm, make_stream()),
            ncclInvalidArgument);
  EXPECT_THAT(nccl_api().ncclGetLastError(comm), HasSubstr("there is no operation 9"));
  destroy(comm);
}

TEST_F(Nccl, RefusesTwoRanksOnOneDevice) {
  const ncclUniqueId id = make_nccl_id();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([id, rank] {
      use_device(4);
      ncclComm_t comm = nullptr;
      EXPECT_EQ(nccl_api().ncclCommInitRankConfig(&comm, 2, id, rank, nullptr), ncclInvalidUsage);
      EXPECT_THAT(nccl_api().ncclGetLastError(nullptr), HasSubstr("Duplicate GPU detected : rank 0 and rank 1"));
      EXPECT_EQ(comm, nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Nccl, OppositeOrdersOnOneStreamDeadlock) {
  set("FAKE_NCCL_BUFFERED_PERCENT", "0");
  const ncclUniqueId first_id = make_nccl_id();
  const ncclUniqueId second_id = make_nccl_id();
  std::atomic<int> waiting{0};
  on_ranks(2, [&](int rank) {
    const ncclComm_t first = join(first_id, 2, rank);
    const ncclComm_t second = join(second_id, 2, rank);
    const CUstream stream = make_stream();
    const Vector<float> data(numbers_from(0, 10));
    const auto exchange = [&](ncclComm_t comm) {
      rank == 0 ? send(data, 1, comm, stream) : receive(data, 0, comm, stream);
    };
    exchange(first);  // connects
    exchange(second);
    EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
    exchange(rank == 0 ? first : second);
    exchange(rank == 0 ? second : first);
    const CUevent event = make_event();
    EXPECT_EQ(cuda_api().cuEventRecord(event, stream), CUDA_SUCCESS);
    wait_until_idle(rank == 0 ? first : second);
    ++waiting;
    while (waiting < 2) std::this_thread::yield();
    EXPECT_EQ(cuda_api().cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(nccl_api().ncclCommAbort(first), ncclSuccess);
    EXPECT_EQ(nccl_api().ncclCommAbort(second), ncclSuccess);
    EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
  });
}

TEST_F(Nccl, AbortEndsOperationsInFlight) {
  const ncclUniqueId id = make_nccl_id();
  on_ranks(2, [&](int rank) {
    const ncclComm_t comm = join(id, 2, rank);
    const CUstream stream = make_stream();
    const Vector<float> data(numbers_from(0, 10));
    rank == 0 ? receive(data, 1, comm, stream) : send(data, 0, comm, stream);
    EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
    if (rank == 1) return destroy(comm);
    receive(data, 1, comm, stream);  // of what never comes
    const CUevent event = make_event();
    EXPECT_EQ(cuda_api().cuEventRecord(event, stream), CUDA_SUCCESS);
    wait_until_idle(comm);
    EXPECT_EQ(cuda_api().cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(nccl_api().ncclCommAbort(comm), ncclSuccess);
    EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
  });
}

/// The abort also frees the memory that the connecting host thread uses.
TEST_F(Nccl, AbortEndsAHostThatConnects) {
  const ncclUniqueId id = make_nccl_id();
  on_ranks(2, [&](int rank) {
    const ncclComm_t comm = join(id, 2, rank);
    if (rank == 1) return destroy(comm);
    std::thread helper([comm] {
      wait_until_idle(comm);
      EXPECT_EQ(nccl_api().ncclCommAbort(comm), ncclSuccess);
      EXPECT_THAT(reports(), testing::HasSubstr("frees what a call that another thread is in uses"));
    });
    const Vector<float> data(numbers_from(0, 10));
    EXPECT_EQ(nccl_api().ncclSend(data.data(), 10, ncclFloat32, 1, comm, make_stream()), ncclInternalError);
    helper.join();
  });
}

TEST_F(Nccl, AsyncErrorsCanBeInjected) {
  const ncclComm_t comm = join(make_nccl_id(), 1, 0);
  fake_nccl_set_async_error(comm, ncclSystemError);
  ncclResult_t error = ncclSuccess;
  EXPECT_EQ(nccl_api().ncclCommGetAsyncError(comm, &error), ncclSuccess);
  EXPECT_EQ(error, ncclSystemError);
  const Vector<float> data(4);
  EXPECT_EQ(nccl_api().ncclAllReduce(data.data(), data.data(), 4, ncclFloat32, ncclSum, comm, make_stream()),
            ncclSystemError);
  destroy(comm);
}

}  // namespace
}  // namespace farandole::fake
