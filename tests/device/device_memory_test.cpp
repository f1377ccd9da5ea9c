// SPDX-License-Identifier: Apache-2.0
// Device memory that the program allocates: when it is given out again, and when it returns to the driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "driver_function.h"
#include "farandole/core/error.h"
#include "message_of.h"
#include "on_device.h"

namespace farandole::test {
namespace {

constexpr std::size_t kCount = 300'000;

Communicator in_the_callers_order(Communicator& ranks) {
  return ranks.duplicate({.device_order = CommunicatorOptions::DeviceOrder::kCaller, .name = "caller"});
}

/// A stream of the program, of which Farandole knows nothing.
StreamView program_stream(Communicator& ranks) {
  void* stream = nullptr;
  device_of(ranks).run_bound([&] {
    constexpr unsigned kNonBlocking = 1;
    EXPECT_EQ((find_in_driver<int(void**, unsigned)>("cuStreamCreate")(&stream, kNonBlocking)), 0);
  });
  return {stream, ranks.device()};
}

TEST(DeviceMemory, TrimReturnsReleasedMemoryToTheDriver) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    (void)ranks.trim_device_memory();
    Buffer kept = ranks.allocate(kCount, DType::kF32, ranks.device());
    Buffer released = ranks.allocate(kCount, DType::kF32, ranks.device());
    ranks.allreduce(kept.view(), released.view(), ReduceOp::kSum, {.prescale = 2});
    EXPECT_LT(ranks.trim_device_memory(), kCount * sizeof(float) * 2) << "only what the allreduce has used";
    released = Buffer();
    EXPECT_GE(ranks.trim_device_memory(), kCount * sizeof(float));
    EXPECT_EQ(ranks.trim_device_memory(), 0U);
    ranks.allreduce(kept.view(), ReduceOp::kSum);
    EXPECT_EQ(to_host(ranks, kept.view()).as<float>()[kCount - 1], 0.0F);
  });
}

/// Memory that goes back to the driver meanwhile would block all threads, also the one for which the device waits.
TEST(DeviceMemory, TrimWaitsForCallsInStreamsOfTheProgram) {
  for_each_device_group({2}, [](Communicator& ranks) {
    Communicator caller = in_the_callers_order(ranks);
    const StreamView stream = program_stream(ranks);
    Buffer values = ranks.allocate(1000, DType::kF32, ranks.device());
    const auto sum = [&] { caller.allreduce(values.view(), ReduceOp::kSum, {.stream = stream}); };
    sum();
    for (int repetition = 0; repetition < 5; ++repetition) {
      { Buffer released = ranks.allocate(kCount, DType::kF32, ranks.device()); }
      if (ranks.rank() == 0) sum();
      ranks.barrier();
      // Rank 0 is probably in `trim` when the call of rank 1 comes.
      if (ranks.rank() != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        sum();
      }
      EXPECT_GE(ranks.trim_device_memory(), kCount * sizeof(float));
    }
    device_of(ranks).synchronize(stream);
  });
}

/// The devices wait for the last rank, and memory that is allocated meanwhile must not be a buffer that was released
/// but is still used by a call.
void expect_kept_while_used(Communicator& ranks, bool in_agreed_order) {
  Communicator gate = in_the_callers_order(ranks), caller = in_the_callers_order(ranks), host = ranks.duplicate();
  Communicator& used = in_agreed_order ? ranks : caller;
  const StreamView stream = program_stream(ranks);
  const StreamView gate_stream = in_agreed_order ? program_stream(ranks) : stream;
  Buffer gates = ranks.allocate(16, DType::kF32, ranks.device());
  Buffer values = ranks.allocate(kCount, DType::kF32, ranks.device());
  const auto pass_gate = [&](StreamView in) { gate.allreduce(gates.view(), ReduceOp::kSum, {.stream = in}); };
  const auto use = [&](BufferView view) { used.allreduce(view, ReduceOp::kSum, {.stream = stream}); };
  pass_gate(stream);  // the first calls connect the ranks
  use(values.view());
  device_of(ranks).synchronize(stream);

  const bool is_last = ranks.rank() + 1 == ranks.size(), waits = in_agreed_order || !is_last;
  const void* const address = values.view().data;
  if (!is_last) pass_gate(stream);
  if (waits) use(values.view());
  values = Buffer();
  Buffer other = ranks.allocate(kCount, DType::kF32, ranks.device());
  EXPECT_TRUE(!waits || other.view().data != address);
  host.barrier();
  if (is_last) pass_gate(gate_stream);
  if (!waits) use(other.view());
  device_of(ranks).synchronize(stream);
  device_of(ranks).synchronize(gate_stream);
  host.barrier();
}

TEST(DeviceMemory, ABlockReleasedDuringADirectCallIsNotGivenOut) {
  for_each_device_group({2, 3}, [](Communicator& ranks) { expect_kept_while_used(ranks, false); });
}

TEST(DeviceMemory, ABlockReleasedDuringAnAgreedCallIsNotGivenOut) {
  for_each_device_group({2, 3}, [](Communicator& ranks) { expect_kept_while_used(ranks, true); });
}

/// After the calls have ended, the pool has the block again.
TEST(DeviceMemory, AReleasedBlockIsGivenOutAfterItsCalls) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    Communicator caller = in_the_callers_order(ranks);
    const StreamView stream = program_stream(ranks);
    std::set<const void*> addresses;
    for (int repetition = 0; repetition < 50; ++repetition) {
      Buffer values = ranks.allocate(kCount, DType::kF32, ranks.device());
      addresses.insert(values.view().data);
      Communicator& by = repetition % 2 == 0 ? caller : ranks;
      by.allreduce(values.view(), ReduceOp::kSum, {.stream = stream});
      device_of(ranks).synchronize(stream);
    }
    EXPECT_LE(addresses.size(), 5U);
  });
}

TEST(DeviceOfARank, IsTheProgramsChoice) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  World world({.replicas = 2, .alone = true, .devices = {1, 0}});
  run_replicas(world, [](Communicator& replica) {
    EXPECT_EQ(replica.device().ordinal, 1 - replica.rank());
    Buffer values = replica.allocate(8, DType::kF32, replica.device());
    replica.allreduce(values.view(), ReduceOp::kSum);
  });
}

TEST(DeviceOfARank, AWrongChoiceIsAnError) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  World world({.alone = true, .devices = {99}});
  Communicator alone = Communicator::of_world(world);
  EXPECT_THAT(message_of<InvalidArgument>([&] { alone.device(); }), testing::HasSubstr("replica 0 device 99"));
  EXPECT_THAT(message_of<InvalidArgument>([] { World({.replicas = 2, .alone = true, .devices = {0}}); }),
              testing::HasSubstr("1 numbers for 2 replicas"));
}

}  // namespace
}  // namespace farandole::test
