// SPDX-License-Identifier: Apache-2.0
// NcclGroup over a fake NCCL: calls, results and errors.
#include "cuda/nccl_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/cuda_device.h"
#include "fake_api.h"
#include "farandole/core/error.h"
#include "message_of.h"

namespace farandole::cuda {
namespace {

using test::message_of;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class NcclGroupTest : public testing::Test {
 protected:
  void SetUp() override {
    reset_vendor();
    DeviceInfo info;
    info.name = "Fake A";
    device_ = std::make_unique<CudaDevice>(api_, nccl_, info, kFakeImage);
    group_ = device_->join_group(device_->make_group_id(), 1, 4);
    vendor().nccl_calls.clear();
  }
  void run(Collective kind, DType dtype, ReduceOp op = ReduceOp::kSum) {
    VendorCall collective;
    collective.collective = kind;
    collective.input = bytes_.data();
    collective.output = bytes_.data() + 1;
    collective.count = 10;
    collective.dtype = dtype;
    collective.op = op;
    collective.root = 2;
    group_->run(collective, {});
  }
  DeviceMessage message(DeviceMessage::Kind kind, int peer, std::size_t count) {
    return {kind, peer, bytes_.data(), count};
  }

  const CudaApi api_ = fake_cuda();
  Nccl nccl_{fake_nccl()};
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<DeviceGroup> group_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(1024);
};

constexpr auto kSend = DeviceMessage::Kind::kSend;
constexpr auto kReceive = DeviceMessage::Kind::kReceive;

TEST_F(NcclGroupTest, JoinsWithCallsThatBlock) {
  device_->join_group(device_->make_group_id(), 3, 4);
  EXPECT_EQ(vendor().nccl_calls[1], "ncclCommInitRankConfig 4 3 blocking=1");
  EXPECT_EQ(vendor().context_of_nccl, device_->context().context);
  EXPECT_EQ(current_context(), nullptr);
}

TEST_F(NcclGroupTest, HasNoCommunicatorOfOne) {
  EXPECT_THROW(device_->join_group({}, 0, 1), InvalidArgument);
  EXPECT_THROW(device_->join_group({}, 2, 2), InvalidArgument);
  EXPECT_TRUE(vendor().nccl_calls.empty());
}

TEST_F(NcclGroupTest, MessagesGoInOneGroup) {
  const std::vector<DeviceMessage> messages{message(kSend, 2, 100), message(kReceive, 0, 200), message(kSend, 3, 0)};
  group_->exchange(messages, {});
  EXPECT_THAT(vendor().nccl_calls, ElementsAre("ncclGroupStart", "ncclSend 2 bytes=100 type=1",
                                               "ncclRecv 0 bytes=200 type=1", "ncclGroupEnd"));
  vendor().nccl_calls.clear();
  group_->exchange({}, {});
  group_->exchange(std::vector<DeviceMessage>{message(kSend, 3, 0)}, {});
  EXPECT_TRUE(vendor().nccl_calls.empty());
}

TEST_F(NcclGroupTest, AGroupThatFailsIsClosed) {
  const std::vector<DeviceMessage> messages{message(kSend, 2, 100), message(kReceive, 0, 200)};
  vendor().nccl_results["ncclSend"] = ncclSystemError;
  vendor().nccl_last_error = "a cable is loose";
  EXPECT_THAT(
      message_of<DeviceError>([&] { group_->exchange(messages, {}); }),
      AllOf(HasSubstr("ncclSend failed on CUDA device 0 (Fake A), rank 1 of 4: NCCL error 2, NCCL's text of the"),
            HasSubstr("a cable is loose")));
  EXPECT_EQ(vendor().group_depth, 0);
  EXPECT_THAT(vendor().nccl_calls, ElementsAre("ncclGroupStart", HasSubstr("ncclSend"), "ncclGroupEnd"));
  vendor().nccl_results = {{"ncclGroupEnd", ncclInternalError}};
  vendor().nccl_last_error.clear();
  EXPECT_THAT(message_of<DeviceError>([&] { group_->exchange(messages, {}); }),
              AllOf(HasSubstr("ncclGroupEnd failed on"), HasSubstr("NCCL_DEBUG=WARN")));
  EXPECT_EQ(vendor().group_depth, 0);
  EXPECT_EQ(current_context(), nullptr);
}

TEST_F(NcclGroupTest, ConnectsOnceAndFreesMemoryWithTheGroup) {
  group_->connect({});
  EXPECT_THAT(vendor().nccl_calls,
              ElementsAre("ncclGroupStart", "ncclSend 0 bytes=1 type=1", "ncclRecv 0 bytes=1 type=1",
                          "ncclSend 2 bytes=1 type=1", "ncclRecv 2 bytes=1 type=1", "ncclSend 3 bytes=1 type=1",
                          "ncclRecv 3 bytes=1 type=1", "ncclGroupEnd"));
  vendor().nccl_calls.clear();
  group_->connect({});
  EXPECT_TRUE(vendor().nccl_calls.empty());
  void* const other = device_->allocate(1);
  group_.reset();
  void* const connected = device_->allocate(1);
  EXPECT_NE(connected, other);
  device_->release(connected);
  device_->release(other);
}

TEST_F(NcclGroupTest, RunsItsOwnCollectives) {
  run(Collective::kAllreduce, DType::kBF16, ReduceOp::kAverage);
  run(Collective::kReduce, DType::kBool, ReduceOp::kProduct);
  run(Collective::kReduceScatter, DType::kI8, ReduceOp::kMax);
  run(Collective::kBroadcast, DType::kI16);
  run(Collective::kAllgather, DType::kF64);
  EXPECT_THAT(vendor().nccl_calls, ElementsAre("ncclAllReduce 10 type=9 op=0", "ncclReduce 10 type=1 op=3 root=2",
                                               "ncclReduceScatter 10 type=0 op=2", "ncclBroadcast 20 type=1 root=2",
                                               "ncclAllGather 80 type=1"));
  vendor().nccl_calls.clear();
  run(Collective::kAlltoall, DType::kU16);
  ASSERT_EQ(vendor().nccl_calls.size(), 10U) << "a group of a message to and from each rank";
  EXPECT_EQ(vendor().nccl_calls[0], "ncclGroupStart");
  EXPECT_EQ(vendor().nccl_calls[7], "ncclSend 3 bytes=20 type=1");
  EXPECT_EQ(vendor().nccl_calls[8], "ncclRecv 3 bytes=20 type=1");
}

TEST_F(NcclGroupTest, MultipliesInTheReductionItself) {
  EXPECT_TRUE(group_->scales(DType::kF16, ReduceOp::kSum));
  EXPECT_TRUE(group_->scales(DType::kF64, ReduceOp::kAverage));
  EXPECT_FALSE(group_->scales(DType::kF32, ReduceOp::kMax));
  EXPECT_FALSE(group_->scales(DType::kI32, ReduceOp::kSum));
  VendorCall call;
  call.collective = Collective::kAllreduce;
  call.input = call.output = bytes_.data();
  call.count = 10;
  call.dtype = DType::kF32;
  call.factor = 0.25;
  group_->run(call, {});
  group_->run(call, {});
  EXPECT_THAT(vendor().nccl_calls, ElementsAre("ncclRedOpCreatePreMulSum 0.25 type=7 residence=1",
                                               "ncclAllReduce 10 type=7 op=5", "ncclAllReduce 10 type=7 op=5"));
}

TEST_F(NcclGroupTest, ReportsUnsupportedReductions) {
  EXPECT_FALSE(group_->supports(Collective::kAllreduce, DType::kI16, ReduceOp::kSum));
  EXPECT_FALSE(group_->supports(Collective::kReduceScatter, DType::kU16, ReduceOp::kMin));
  EXPECT_TRUE(group_->supports(Collective::kAllgather, DType::kU16, ReduceOp::kSum));
  EXPECT_TRUE(group_->supports(Collective::kReduce, DType::kF16, ReduceOp::kMin));
  EXPECT_FALSE(group_->supports(Collective::kGather, DType::kF32, ReduceOp::kSum));
  EXPECT_THROW(run(Collective::kAllreduce, DType::kI16), Unsupported);
  EXPECT_THROW(run(Collective::kGather, DType::kF32), Unsupported);
  VendorCall in_place;
  in_place.collective = Collective::kAlltoall;
  in_place.input = bytes_.data();
  in_place.output = bytes_.data();
  in_place.count = 1;
  EXPECT_THROW(group_->run(in_place, {}), InvalidArgument);
  EXPECT_TRUE(vendor().nccl_calls.empty());
}

TEST_F(NcclGroupTest, TellsOfErrorsBetweenCalls) {
  EXPECT_EQ(group_->asynchronous_error(), "");
  vendor().nccl_asynchronous_error = ncclInProgress;
  EXPECT_EQ(group_->asynchronous_error(), "");
  vendor().nccl_asynchronous_error = ncclRemoteError;
  EXPECT_THAT(group_->asynchronous_error(), AllOf(HasSubstr("rank 1 of 4"), HasSubstr("NCCL error 6")));
  vendor().nccl_results["ncclCommGetAsyncError"] = ncclInvalidArgument;
  EXPECT_THAT(group_->asynchronous_error(), HasSubstr("ncclCommGetAsyncError failed"));
}

TEST_F(NcclGroupTest, EndsOnce) {
  group_.reset();
  EXPECT_THAT(vendor().nccl_calls, ElementsAre("ncclCommFinalize", "ncclCommDestroy"));
}

TEST_F(NcclGroupTest, IsAbortedOnceAndOfNoUseAfterwards) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([this] { group_->abort(); });
    threads.back().join();
  }
  EXPECT_THAT(vendor().nccl_calls, ElementsAre("ncclCommAbort"));
  EXPECT_EQ(group_->asynchronous_error(), "");
  EXPECT_THAT(message_of<DeviceError>([&] { group_->exchange(std::vector{message(kSend, 0, 1)}, {}); }),
              HasSubstr("was aborted"));
  group_.reset();
  EXPECT_THAT(vendor().nccl_calls, ElementsAre("ncclCommAbort")) << "the communicator is gone already";
}

/// A thread may be in a call that connects to a peer that has ended. An abort would make NCCL free memory that this
/// call uses.
TEST_F(NcclGroupTest, IsNotAbortedWhileAThreadIsInACall) {
  std::latch is_in_call(1), may_leave(1);
  vendor().in_group_end = [&] {
    is_in_call.count_down();
    may_leave.wait();
  };
  std::thread caller([&] { group_->exchange(std::vector{message(kSend, 0, 1)}, {}); });
  is_in_call.wait();
  group_->abort();
  EXPECT_THAT(vendor().nccl_calls, Not(Contains("ncclCommAbort")));
  may_leave.count_down();
  caller.join();
}

}  // namespace
}  // namespace farandole::cuda
