// SPDX-License-Identifier: Apache-2.0
// Tests of the misuse of NCCL that the double reports.
#include <atomic>

#include "fake_tables.h"

namespace farandole::fake {
namespace {

using testing::HasSubstr;

// Tests on a communicator of two ranks, whose calls may fail.
class NcclMisuse : public FakeDeviceTest {
 protected:
  struct Rank {
    int rank;
    ncclComm_t comm;
    CUstream stream;
    const Vector<float>& data;  // 100 numbers
    ncclResult_t send(std::size_t count, int peer) const {
      return nccl_api().ncclSend(data.data(), count, ncclFloat32, peer, comm, stream);
    }
    ncclResult_t receive(std::size_t count, int peer) const {
      return nccl_api().ncclRecv(data.data(), count, ncclFloat32, peer, comm, stream);
    }
    void synchronize() const { EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS); }
  };
  static void on_two_ranks(const std::function<void(const Rank&)>& body) {
    const ncclUniqueId id = make_nccl_id();
    on_ranks(2, [&](int rank) {
      const ncclComm_t comm = join(id, 2, rank);
      const Vector<float> data(std::vector<float>(100, 1.0F));
      const Rank here{rank, comm, make_stream(), data};
      body(here);
      here.synchronize();
      destroy(comm);
    });
  }
  static void on_one_rank(const std::function<void(const Rank&)>& body) {
    const ncclComm_t comm = join(make_nccl_id(), 1, 0);
    const Vector<float> data(std::vector<float>(100, 1.0F));
    const Rank here{0, comm, make_stream(), data};
    body(here);
    here.synchronize();
    destroy(comm);
  }
  static void wait_for_async_error(ncclComm_t comm) {
    ncclResult_t error = ncclSuccess;
    while (error == ncclSuccess) EXPECT_EQ(nccl_api().ncclCommGetAsyncError(comm, &error), ncclSuccess);
    EXPECT_EQ(error, ncclInternalError);
  }
  static ncclResult_t allreduce(const Rank& here, std::size_t count = 10, ncclRedOp_t op = ncclSum) {
    return nccl_api().ncclAllReduce(here.data.data(), here.data.data(), count, ncclFloat32, op, here.comm, here.stream);
  }
};

TEST_F(NcclMisuse, BytesThatDiffer) {
  on_two_ranks([](const Rank& here) {
    EXPECT_EQ(here.rank == 0 ? here.send(10, 1) : here.receive(11, 0), ncclSuccess);
    here.synchronize();
    // The sender of a buffered send learns of the error at its next call.
    wait_for_async_error(here.comm);
  });
  EXPECT_THAT(reports(),
              AllOf(HasSubstr("seen by rank 0 of 2: rank 1: rank 0 sends 40 bytes, but this one receives 44"),
                    HasSubstr("seen by rank 1 of 2: rank 1: rank 0 sends 40 bytes")));
}

TEST_F(NcclMisuse, CollectivesThatDiffer) {
  on_two_ranks([](const Rank& here) {
    EXPECT_EQ(allreduce(here, here.rank == 0 ? 10 : 20), ncclSuccess);
    here.synchronize();
  });
  EXPECT_THAT(reports(),
              AllOf(HasSubstr("ranks call different collectives"), HasSubstr("allreduce of 10 elements"),
                    HasSubstr("allreduce of 20 elements"), HasSubstr("seen by rank 0"), HasSubstr("seen by rank 1")));
  on_two_ranks([](const Rank& here) {
    float* const data = here.data.data();
    if (here.rank == 0) {
      EXPECT_EQ(nccl_api().ncclBroadcast(data, data, 10, ncclFloat32, 0, here.comm, here.stream), ncclSuccess);
    } else {
      EXPECT_EQ(nccl_api().ncclReduce(data, data, 10, ncclFloat32, ncclSum, 1, here.comm, here.stream), ncclSuccess);
    }
    wait_for_async_error(here.comm);
  });
  EXPECT_THAT(reports(),
              AllOf(HasSubstr("rank 0 broadcast of 10 elements"), HasSubstr("this one reduce of 10 elements"),
                    HasSubstr("seen by rank 0"), HasSubstr("seen by rank 1")));
}

TEST_F(NcclMisuse, ASendToOneselfOutsideOfAGroup) {
  on_one_rank([](const Rank& here) { EXPECT_EQ(here.send(10, 0), ncclInvalidUsage); });
  EXPECT_THAT(reports(), HasSubstr("a group of rank 0 has 1 sends to itself and 0 receives from itself"));
}

TEST_F(NcclMisuse, SendsOutsideOfGroupsThatWaitForEachOther) {
  on_two_ranks([](const Rank& here) {
    // Both directions are connected in a way that is right.
    EXPECT_EQ(nccl_api().ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(nccl_api().ncclSend(here.data.data(), 10, ncclFloat32, 1 - here.rank, here.comm, here.stream), 0);
    EXPECT_EQ(nccl_api().ncclRecv(here.data.data() + 50, 10, ncclFloat32, 1 - here.rank, here.comm, here.stream), 0);
    EXPECT_EQ(nccl_api().ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(here.send(10, 1 - here.rank), ncclSuccess);
    // Fails where the misuse has been found before.
    (void)here.receive(10, 1 - here.rank);
  });
  EXPECT_THAT(reports(), HasSubstr("each waits for the receive of the other"));
}

TEST_F(NcclMisuse, AGroupThatIsNeverEnded) {
  std::thread([] { EXPECT_EQ(nccl_api().ncclGroupStart(), ncclSuccess); }).join();
  EXPECT_THAT(reports(), HasSubstr("a thread ends with an open group of 0 calls: ncclGroupEnd is missing"));
  EXPECT_EQ(nccl_api().ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_THAT(reports(), HasSubstr("ncclGroupEnd without ncclGroupStart"));
}

TEST_F(NcclMisuse, ACommunicatorIsDestroyedInsideOfAGroup) {
  const ncclComm_t comm = join(make_nccl_id(), 1, 0);
  EXPECT_EQ(nccl_api().ncclGroupStart(), ncclSuccess);
  destroy(comm);
  EXPECT_EQ(nccl_api().ncclGroupEnd(), ncclSuccess);
  EXPECT_THAT(reports(), HasSubstr("ncclCommDestroy of rank 0 inside of an open group"));
  ncclResult_t error = ncclSuccess;
  EXPECT_EQ(nccl_api().ncclCommGetAsyncError(comm, &error), ncclInvalidArgument);
  EXPECT_THAT(reports(), HasSubstr("which is no communicator, or was destroyed or aborted"));
}

TEST_F(NcclMisuse, CallsOfAGroupInTwoStreams) {
  on_one_rank([](const Rank& here) {
    EXPECT_EQ(nccl_api().ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(here.send(10, 0), ncclSuccess);
    EXPECT_EQ(nccl_api().ncclRecv(here.data.data() + 50, 10, ncclFloat32, 0, here.comm, make_stream()), ncclSuccess);
    EXPECT_EQ(nccl_api().ncclGroupEnd(), ncclInvalidUsage);
  });
  EXPECT_THAT(reports(), HasSubstr("a group of rank 0 has calls in two streams"));
}

TEST_F(NcclMisuse, CallsOfAGroupThatTouchEachOther) {
  on_one_rank([](const Rank& here) {
    EXPECT_EQ(nccl_api().ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(here.send(10, 0), ncclSuccess);
    EXPECT_EQ(nccl_api().ncclRecv(here.data.data() + 9, 10, ncclFloat32, 0, here.comm, here.stream), ncclSuccess);
    EXPECT_EQ(nccl_api().ncclGroupEnd(), ncclInvalidUsage);
  });
  EXPECT_THAT(reports(), HasSubstr("the received data of part 1 overlaps the sent data of part 0"));
}

TEST_F(NcclMisuse, TwoThreadsAtTheSameTime) {
  const ncclUniqueId id = make_nccl_id();
  on_ranks(2, [&](int rank) {
    const ncclComm_t comm = join(id, 2, rank);
    if (rank == 1) return destroy(comm);
    const CUstream stream = make_stream();
    const Vector<float> data(100);
    // This thread is in a call until it is aborted, because the peer never connects.
    std::thread connecting(
        [&] { EXPECT_EQ(nccl_api().ncclSend(data.data(), 10, ncclFloat32, 1, comm, stream), ncclInternalError); });
    while (fake_nccl_idle_polls(comm) == 0) std::this_thread::yield();
    EXPECT_EQ(nccl_api().ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(nccl_api().ncclSend(data.data(), 10, ncclFloat32, 1, comm, stream), ncclSuccess);
    EXPECT_THAT(reports(), HasSubstr("ncclSend on rank 0 of 2 while another thread is in a call on this communicator"));
    EXPECT_EQ(cuda_api().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(data.data()), 0, 10, stream), CUDA_SUCCESS);
    EXPECT_THAT(reports(), HasSubstr("while another thread enqueues an NCCL group on it"));
    EXPECT_EQ(nccl_api().ncclCommAbort(comm), ncclSuccess);
    EXPECT_THAT(reports(), HasSubstr("ncclCommAbort of rank 0 of 2 frees what a call that another thread is in uses"));
    connecting.join();
    fake_device_inject("ncclGroupEnd", 1, ncclInternalError);
    EXPECT_EQ(nccl_api().ncclGroupEnd(), ncclInternalError);
    EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
  });
}

TEST_F(NcclMisuse, AStreamOrMemoryOfAnotherDevice) {
  use_device(1);
  const CUstream foreign_stream = make_stream();
  const Vector<float> foreign(100);
  use_device(0);
  on_one_rank([&](const Rank& here) {
    EXPECT_EQ(allreduce({0, here.comm, foreign_stream, here.data}), ncclInvalidArgument);
    EXPECT_THAT(reports(), HasSubstr("ncclAllReduce on rank 0, of device 0, in a stream that is not of this device"));
    EXPECT_EQ(allreduce({0, here.comm, here.stream, foreign}), ncclInvalidArgument);
    EXPECT_THAT(reports(), HasSubstr("ncclAllReduce on device 0: the input is in memory of device 1"));
  });
}

TEST_F(NcclMisuse, JoiningWrongly) {
  std::thread([] {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(nccl_api().ncclCommInitRankConfig(&comm, 1, make_nccl_id(), 0, nullptr), ncclUnhandledCudaError);
  }).join();
  EXPECT_THAT(reports(), HasSubstr("ncclCommInitRankConfig on a thread that has no current context"));
  const ncclUniqueId id = make_nccl_id();
  const ncclComm_t comm = join(id, 1, 0);
  destroy(comm);
  ncclComm_t second = nullptr;
  EXPECT_NE(nccl_api().ncclCommInitRankConfig(&second, 1, id, 0, nullptr), ncclSuccess);  // used up
  const ncclUniqueId other = make_nccl_id();
  EXPECT_EQ(nccl_api().ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(nccl_api().ncclCommInitRankConfig(&second, 2, other, 0, nullptr), ncclSuccess);
  EXPECT_EQ(nccl_api().ncclCommInitRankConfig(&second, 2, other, 0, nullptr), ncclInvalidUsage);
  EXPECT_THAT(reports(), HasSubstr("rank 0 joins the same communicator twice"));
  EXPECT_EQ(nccl_api().ncclCommInitRankConfig(&second, 3, other, 1, nullptr), ncclInvalidArgument);
  EXPECT_THAT(reports(), HasSubstr("rank 1 joins a communicator of 2 ranks as one of 3"));
  EXPECT_EQ(nccl_api().ncclGroupEnd(), ncclInvalidUsage);
}

TEST_F(NcclMisuse, CallsAfterTheEnd) {
  on_one_rank([](const Rank& here) {
    EXPECT_EQ(nccl_api().ncclCommFinalize(here.comm), ncclSuccess);
    EXPECT_EQ(allreduce(here), ncclInvalidUsage);
    EXPECT_THAT(reports(), HasSubstr("ncclAllReduce on rank 0 after ncclCommFinalize"));
  });
  const ncclComm_t comm = join(make_nccl_id(), 1, 0);
  EXPECT_EQ(nccl_api().ncclCommAbort(comm), ncclSuccess);
  EXPECT_EQ(nccl_api().ncclCommDestroy(comm), ncclInvalidArgument);
  EXPECT_THAT(reports(), HasSubstr("ncclCommDestroy of"));
}

TEST_F(NcclMisuse, MemoryIsFreedWhileAGroupUsesIt) {
  on_one_rank([](const Rank& here) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuda_api().cuMemAlloc(&memory, 40), CUDA_SUCCESS);
    fake_device_stick(here.stream, 1);
    auto* const data = reinterpret_cast<float*>(memory);  // NOLINT(performance-no-int-to-ptr): as the driver has it
    EXPECT_EQ(nccl_api().ncclAllReduce(data, data, 10, ncclFloat32, ncclSum, here.comm, here.stream), ncclSuccess);
    EXPECT_EQ(cuda_api().cuMemFree(memory), CUDA_SUCCESS);
    fake_device_restore();
  });
  EXPECT_THAT(reports(), AllOf(HasSubstr("which 1 items of streams still use"), HasSubstr("ncclGroupEnd, uses memory"),
                               HasSubstr("freed meanwhile"), HasSubstr("seen by rank 0 of 1")));
}

/// Runs with the default option of other programs: ranks whose sizes differ hang.
TEST_F(FakeDeviceTest, SizesThatDifferHangAndAreNamed) {
  set("FAKE_NCCL_MISMATCH_HANGS", "1");
  std::atomic<bool> is_sent{false};
  const ncclUniqueId id = make_nccl_id();
  testing::internal::CaptureStderr();
  on_ranks(2, [&](int rank) {
    const ncclComm_t comm = join(id, 2, rank);
    const CUstream stream = make_stream();
    const CUevent event = make_event();
    const Vector<std::uint8_t> data(10);
    const auto count = static_cast<std::size_t>(10 - rank);
    EXPECT_EQ(rank == 0 ? nccl_api().ncclSend(data.data(), count, ncclUint8, 1, comm, stream)
                        : nccl_api().ncclRecv(data.data(), count, ncclUint8, 0, comm, stream),
              ncclSuccess);
    EXPECT_EQ(cuda_api().cuEventRecord(event, stream), CUDA_SUCCESS);
    if (rank == 0) {
      EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS) << "it fits into the channel";
      is_sent = true;
    } else {
      while (!is_sent) std::this_thread::yield();
      // It has looked at what was sent; then it reports.
      for (const char* const stall : {"20", "0"}) {
        set("FAKE_DEVICE_STALL_S", stall);
        const unsigned long polls = fake_nccl_idle_polls(comm);
        while (fake_nccl_idle_polls(comm) < polls + 20) std::this_thread::yield();
      }
      EXPECT_EQ(cuda_api().cuEventQuery(event), CUDA_ERROR_NOT_READY);
    }
    EXPECT_EQ(nccl_api().ncclCommAbort(comm), ncclSuccess);
    EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("from rank 0, for ever: rank 0 sends 10 bytes, but this one receives 9"));
}

}  // namespace
}  // namespace farandole::fake
