// SPDX-License-Identifier: Apache-2.0
// Devices that fail, hang, or have the wrong properties: every rank raises one clear error in time. A test that ends a
// job runs in its own process. Some tests need an environment that configures the double or hides devices, which
// CMakeLists.txt here and the steps of tests/gpu set.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "broken_device.h"
#include "communicator_probe.h"
#include "driver_function.h"
#include "fake_device.h"
#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "groups.h"
#include "message_of.h"
#include "on_device.h"
#include "variable.h"
#include "wrapped_transport.h"

namespace farandole::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(DeviceFaults, AKernelThatFailsIsADeviceErrorOnAllRanks) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  run_replicas(3, [](Communicator& ranks) {
    Buffer values = ranks.allocate(1000, DType::kF32, ranks.device());
    ranks.allreduce(values.view(), ReduceOp::kSum);
    ranks.barrier();
    if (ranks.rank() == 0) {
      ASSERT_TRUE(inject_into_double("cuLaunchKernel", 0, 700)) << "this test needs the double";
    }
    ranks.barrier();
    CallOptions options;
    options.algorithm = "ring";
    const std::string text = message_of<DeviceError>([&] { ranks.allreduce(values.view(), ReduceOp::kSum, options); });
    EXPECT_THAT(text, AllOf(HasSubstr("cuLaunchKernel"), HasSubstr("rank "), HasSubstr("allreduce of 1000 f32")));
    EXPECT_THROW(ranks.barrier(), DeviceError);
  });
}

/// Every call returns the error of a device that has fallen off the bus.
TEST(DeviceFaults, ALostDeviceIsADeviceErrorOnAllRanks) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  constexpr int kUnavailable = 46;
  run_replicas(3, [](Communicator& ranks) {
    Buffer values = ranks.allocate(1000, DType::kF32, ranks.device());
    ranks.allreduce(values.view(), ReduceOp::kSum);
    ranks.barrier();
    // Work in the streams of a failed device never ends.
    Device& device = device_of(ranks);
    const StreamView stream = device.make_stream();
    std::optional<StuckStream> stuck;
    if (ranks.rank() == 0) {
      stuck.emplace(device, stream);
      device.fill_zero(values.view().data, 4, stream);
      ASSERT_TRUE(inject_into_double("cuEventQuery", 0, kUnavailable)) << "this test needs the double";
    }
    ranks.barrier();
    CallOptions options;
    options.stream = stream;
    const std::string text =
        message_of<DeviceError>([&] { ranks.allreduce_async(values.view(), ReduceOp::kSum, options).wait(); });
    EXPECT_THAT(text, AllOf(HasSubstr("cuEventQuery"), HasSubstr("rank "), HasSubstr("allreduce of 1000 f32")));
    EXPECT_THROW(ranks.barrier(), DeviceError);
  });
}

/// Checks that memory which a stream still uses is not given out again: an allocation of that size must be new memory.
/// Only the double counts allocations; on a GPU this check is a no-op.
void expect_memory_of_its_own(Device& device, std::size_t bytes) {
  auto* const calls_of = find_in_driver<decltype(fake_device_calls)>("fake_device_calls");
  if (calls_of == nullptr) return;
  static std::mutex one_rank_at_a_time;
  const std::lock_guard guard(one_rank_at_a_time);
  const unsigned long before = calls_of("cuMemAlloc");
  device.release(device.allocate(bytes));
  EXPECT_EQ(calls_of("cuMemAlloc") - before, 1U);
}

TEST(DeviceFaults, AStuckStreamIsATimeoutOnAllRanksWithinTheDeadline) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  run_replicas(std::min(device_count(), 2), [](Communicator& ranks) {
    Device& device = device_of(ranks);
    const StreamView stream = device.make_stream();
    Buffer values = ranks.allocate(1000, DType::kF32, ranks.device());
    ranks.allreduce(values.view(), ReduceOp::kSum);
    std::optional<StuckStream> stuck;
    if (ranks.rank() + 1 == ranks.size()) {
      stuck.emplace(device, stream);
      device.fill_zero(values.view().data, 4, stream);
    }
    CallOptions options;
    options.stream = stream;
    options.prescale = 0.5;  // needs memory of its own
    Work work = ranks.allreduce_async(values.view(), ReduceOp::kSum, options);
    const auto start = std::chrono::steady_clock::now();
    const std::string text = message_of<Timeout>([&] { work.wait(); });
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    const double late_by = (waited - internals(ranks).settings().faults.timeout).count();
    EXPECT_THAT(text, HasSubstr("allreduce of 1000 f32 elements in device memory"));
    EXPECT_LT(late_by, 1.0);
    // Lines of this form put a measurement into the report of a run on a GPU.
    if (ranks.rank() == 0) {
      fmt::print("measured: stuck stream, seconds after the deadline: {:.3f}\n", late_by);
    }
    expect_memory_of_its_own(device, values.view().size_in_bytes());
  });
}

/// All memory is taken, half of it by what the pool keeps: that can only go back to a driver that would wait for the
/// stream.
void exhaust_memory(Communicator& ranks, StreamView stream, std::optional<StuckStream>& stuck, BufferView values) {
  Device& device = device_of(ranks);
  { Buffer kept = ranks.allocate(700'000, DType::kU8, ranks.device()); }
  if (ranks.rank() + 1 == ranks.size()) {
    stuck.emplace(device, stream);
    device.fill_zero(values.data, 4, stream);
  }
}

TEST(DeviceFaults, AStuckStreamWithoutMemoryLeftIsATimeoutOnAllRanks) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  run_replicas(2, [](Communicator& ranks) {
    const StreamView stream = device_of(ranks).make_stream();
    Buffer values = ranks.allocate(60'000, DType::kF32, ranks.device());
    ranks.allreduce(values.view(), ReduceOp::kSum);
    std::optional<StuckStream> stuck;
    exhaust_memory(ranks, stream, stuck, values.view());
    CallOptions options;
    options.stream = stream;
    options.prescale = 0.5;  // needs memory of its own
    Work work = ranks.allreduce_async(values.view(), ReduceOp::kSum, options);
    EXPECT_THAT(message_of<Timeout>([&] { work.wait(); }), HasSubstr("allreduce of 60000 f32"));
  });
}

TEST(DeviceFaults, AnAllocationOnAStuckDeviceIsATimeoutOnAllRanks) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  run_replicas(2, [](Communicator& ranks) {
    Communicator without_deadline = ranks.duplicate({.watch = false});
    const StreamView stream = device_of(ranks).make_stream();
    Buffer values = ranks.allocate(60'000, DType::kF32, ranks.device());
    std::optional<StuckStream> stuck;
    exhaust_memory(ranks, stream, stuck, values.view());
    const std::string text = message_of<Timeout>([&] {
      Buffer more = ranks.allocate(400'000, DType::kU8, ranks.device());
      without_deadline.barrier();
    });
    EXPECT_THAT(text, AllOf(HasSubstr("rank 1 "), HasSubstr("its device to allocate 400000 bytes")));
  });
}

/// A driver that takes memory back waits for the device, and lets no thread enqueue meanwhile: not one of a peer
/// either, for which the device waits.
TEST(DeviceFaults, MemoryGoesBackToTheDriverWhenTheDeviceIsIdle) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  run_replicas(2, [](Communicator& ranks) {
    constexpr std::size_t kCount = 1000;
    const std::size_t sixteenth = device_of(ranks).info().memory_bytes / 16;
    Communicator others = ranks.duplicate();
    Buffer values = ranks.allocate(kCount, DType::kF32, ranks.device());
    for (std::size_t repetition = 1; repetition <= 10; ++repetition) {
      // Most of the device, which the pool keeps.
      { Buffer kept = ranks.allocate(sixteenth * 10, DType::kU8, ranks.device()); }
      Work work;
      if (ranks.rank() == 0) work = ranks.allreduce_async(values.view(), ReduceOp::kMax);
      others.barrier();
      if (ranks.rank() != 0) work = ranks.allreduce_async(values.view(), ReduceOp::kMax);
      { Buffer other = ranks.allocate(sixteenth * 7, DType::kU8, ranks.device()); }
      work.wait();
    }
    EXPECT_EQ(to_host(ranks, values.view()).as<float>()[0], 0.0F);
  });
}

/// Memory that was released during a call is all that is left, and comes back when the call has ended.
TEST(DeviceFaults, AnAllocationWaitsForReleasedMemoryOfACall) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  run_replicas(2, [](Communicator& ranks) {
    const std::size_t most = device_of(ranks).info().memory_bytes / 16 * 10;
    Communicator caller = ranks.duplicate({.device_order = CommunicatorOptions::DeviceOrder::kCaller});
    const StreamView stream = device_of(ranks).make_stream();
    Buffer values = ranks.allocate(most, DType::kU8, ranks.device());
    const auto find_maximum = [&] { caller.allreduce(values.view(), ReduceOp::kMax, {.stream = stream}); };
    find_maximum();
    device_of(ranks).synchronize(stream);
    (void)ranks.trim_device_memory();
    if (ranks.rank() == 0) find_maximum();
    ranks.barrier();
    if (ranks.rank() != 0) find_maximum();
    values = Buffer();
    values = ranks.allocate(most, DType::kU8, ranks.device());
    device_of(ranks).synchronize(stream);
  });
}

/// One rank fails before it connects, so that its peer's thread stays in NCCL: which must not be aborted meanwhile.
TEST(DeviceFaults, APeerThatDoesNotConnectIsADeviceErrorOnAllRanks) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  run_replicas(2, [](Communicator& ranks) {
    Buffer values = ranks.allocate(1000, DType::kF32, ranks.device());
    ranks.barrier();
    if (ranks.rank() == 0) {
      ASSERT_TRUE(inject_into_double("ncclGroupStart", 1, 6)) << "this test needs the double";
    }
    ranks.barrier();
    CallOptions options;
    options.algorithm = "ring";
    const std::string text = message_of<DeviceError>([&] { ranks.allreduce(values.view(), ReduceOp::kSum, options); });
    EXPECT_THAT(text, HasSubstr("ncclGroupStart"));
  });
}

/// Four ranks on two pretended hosts, in the middle of a hierarchical allreduce. @param rank  whose messages go wrong
template <class Kind>
void expect_network_fault(int rank, const WrappedTransport::Options& wrong,
                          const ::testing::Matcher<const std::string&>& text) {
  const Variable slices("FARANDOLE_DEVICE_SLICE_BYTES", "4096");
  run_replicas(4, [&](Communicator& ranks) {
    std::optional<WrappedTransport> transport;
    Communicator hosts =
        CommunicatorProbe::on_hosts_by(ranks.duplicate(), {0, 0, 1, 1}, [&](Transport& usual) -> Transport& {
          DeviceRuntime& runtime = *device_runtime(internals(ranks).settings()).runtime;
          const bool is_wrong = ranks.rank() == rank;
          return transport.emplace(usual, runtime, is_wrong ? wrong : WrappedTransport::Options{});
        });
    Buffer values = ranks.allocate(20'000, DType::kF32, ranks.device());
    CallOptions options;
    options.algorithm = "hierarchical";
    const std::string came = message_of<Kind>([&] { hosts.allreduce(values.view(), ReduceOp::kSum, options); });
    EXPECT_THAT(came, AllOf(text, HasSubstr("allreduce of 20000 f32 elements in device memory, sum, hierarchical")));
    EXPECT_THROW(ranks.barrier(), Kind);
  });
}

TEST(DeviceFaults, NetworkFailureMidwayIsATransportErrorOnAllRanks) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  expect_network_fault<TransportError>(1, {.fails_at = 6},
                                       AllOf(HasSubstr("rank 1 "), HasSubstr("the network is down")));
}

TEST(DeviceFaults, ASliceThatNeverComesIsATimeoutOnAllRanks) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  expect_network_fault<Timeout>(3, {.hangs_from = 6}, HasSubstr("waiting for"));
}

/// The processes of a job, of which rank 3 is killed. The peer whose messages do not come on may be on its host or not.
TEST(DeviceFaults, KilledRankMidwayIsPeerLostOnItsPeers) {
  if (!is_launched()) GTEST_SKIP() << "needs a job of processes";
  for_each_group({}, [](Communicator& ranks) {
    std::optional<WrappedTransport> transport;
    Communicator hosts =
        CommunicatorProbe::on_hosts_by(ranks.duplicate(), {0, 0, 1, 1}, [&](Transport& usual) -> Transport& {
          DeviceRuntime& runtime = *device_runtime(internals(ranks).settings()).runtime;
          return transport.emplace(usual, runtime, WrappedTransport::Options{.dies_at = ranks.rank() == 3 ? 6 : 0});
        });
    Buffer values = ranks.allocate(20'000, DType::kF32, ranks.device());
    CallOptions options;
    options.algorithm = "hierarchical";
    const std::string came = message_of<PeerLost>([&] { hosts.allreduce(values.view(), ReduceOp::kSum, options); });
    EXPECT_THAT(came, HasSubstr("rank 3 "));
    EXPECT_THROW(ranks.barrier(), PeerLost);
  });
}

TEST(DeviceFaults, NoMemoryLeftSaysHowMuchWasAskedAndIsFree) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  run_replicas(1, [](Communicator& ranks) {
    const std::string text =
        message_of<DeviceError>([&] { ranks.allocate(std::size_t{1} << 40, DType::kU8, ranks.device()); });
    EXPECT_THAT(text, AllOf(HasSubstr("1099511627776"), HasSubstr("free")));
    Buffer small = ranks.allocate(10, DType::kU8, ranks.device());
    EXPECT_EQ(small.count(), 10U);
  });
}

TEST(DeviceFaults, ADeviceOfAnotherRankIsNotAllocatedFrom) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  run_replicas(1, [](Communicator& ranks) {
    MemorySpace other = ranks.device();
    other.ordinal = static_cast<std::uint16_t>(other.ordinal + 1);
    EXPECT_THROW(ranks.allocate(10, DType::kU8, other), InvalidArgument);
  });
}

/// @param text  what a call on device memory says on every rank
template <class Kind>
void expect_refused(int size, const ::testing::Matcher<const std::string&>& text) {
  run_replicas(size, [&](Communicator& ranks) {
    EXPECT_THAT(message_of<Kind>([&] {
                  Buffer values = ranks.allocate(10, DType::kF32, ranks.device());
                  ranks.allreduce(values.view(), ReduceOp::kSum);
                }),
                text);
    ranks.barrier();
  });
}

TEST(DeviceRefusals, NoDevice) {
  expect_refused<InvalidArgument>(2, HasSubstr("there are no devices"));
}

TEST(DeviceRefusals, DriverTooOld) {
  expect_refused<InvalidArgument>(2, HasSubstr("driver"));
}

TEST(DeviceRefusals, NcclTooOld) {
  expect_refused<Unsupported>(2, AllOf(HasSubstr("cannot take part"), HasSubstr("NCCL")));
}

/// Processes, of which the second has a newer one.
TEST(DeviceRefusals, NcclDiffersBetweenRanks) {
  for_each_group({}, [](Communicator& ranks) {
    const std::string text = message_of<Unsupported>([&] {
      Buffer values = ranks.allocate(10, DType::kF32, ranks.device());
      ranks.allreduce(values.view(), ReduceOp::kSum);
    });
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 "), HasSubstr("NCCL 2.30.7"), HasSubstr("rank 1 "),
                            HasSubstr("NCCL 2.30.8"), HasSubstr("give all ranks the same")));
    ranks.barrier();
  });
}

/// Processes, of which the second has a newer driver.
TEST(DeviceRefusals, DriverDiffersBetweenRanks) {
  for_each_group({}, [](Communicator& ranks) {
    testing::internal::CaptureStderr();
    Buffer values = ranks.allocate(10, DType::kF32, ranks.device());
    ranks.allreduce(values.view(), ReduceOp::kSum);
    ranks.duplicate().allreduce(values.view(), ReduceOp::kSum);
    const std::string text = testing::internal::GetCapturedStderr();
    if (ranks.rank() == 0) {
      EXPECT_THAT(text, AllOf(HasSubstr("rank 0 "), HasSubstr("CUDA 13.0"), HasSubstr("rank 1 "),
                              HasSubstr("CUDA 13.1"), HasSubstr("work together all the same")));
    } else {
      EXPECT_EQ(text, "");
    }
  });
}

TEST(DeviceRefusals, OneDeviceForTwoRanks) {
  expect_refused<Unsupported>(2, AllOf(HasSubstr("use the same device"), HasSubstr("FARANDOLE_DEVICE")));
}

TEST(DeviceRefusals, MoreRanksThanDevices) {
  run_replicas(3, [](Communicator& ranks) {
    if (ranks.rank() == 2) {
      EXPECT_THAT(message_of<InvalidArgument>([&] { (void)ranks.device(); }), HasSubstr("3 ranks and 2 devices"));
    } else {
      EXPECT_FALSE(ranks.device().is_host());
    }
    ranks.barrier();
  });
}

}  // namespace
}  // namespace farandole::test
