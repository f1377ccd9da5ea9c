// SPDX-License-Identifier: Apache-2.0
// Faults of messages of device memory. Each test makes its job fail, so each test runs in a fresh process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "direct_communicator.h"
#include "double_calls.h"
#include "farandole/core/error.h"
#include "farandole/internal/endpoint.h"
#include "groups.h"
#include "message_of.h"
#include "on_device.h"

namespace farandole::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

/// A communicator in the caller's order, in which rank 0 has sent a message to rank 1.
struct ConnectedRanks {
  explicit ConnectedRanks(Communicator& ranks, std::size_t count = 1000)
      : faults(internals(ranks).endpoint().faults()),
        caller(direct(ranks, "steps")),
        stream(device_of(ranks).make_stream()),
        values(ranks.allocate(count, DType::kI32, ranks.device())) {
    message(1000);
    device_of(ranks).synchronize(stream);
    ranks.barrier();
  }
  void message(std::size_t count) {
    const BufferView part = values.view().part(0, count);
    caller.rank() == 0 ? caller.send(part, 1, 0, stream) : (void)caller.recv(part, 0, 0, stream);
  }
  EndpointFaults& faults;
  Communicator caller;
  const StreamView stream;
  Buffer values;
};

/// FARANDOLE_DEVICE_FAULT is raise. The message is longer than NCCL's buffers: a shorter one may be complete on the
/// sender without the receiver, also on the double unless it is told otherwise.
TEST(DeviceMessageFaults, AMessageThatIsNotReceivedIsATimeoutThatNamesTheReceiver) {
  setenv("FAKE_NCCL_BUFFERED_PERCENT", "0", 1);
  constexpr std::size_t kCount = 8'388'608;
  for_each_device_group({2}, [](Communicator& ranks) {
    ConnectedRanks rank(ranks, kCount);
    if (ranks.rank() == 0) rank.message(kCount);
    wait_for_fault(rank.faults);
    EXPECT_THAT(message_of<Timeout>([&] { rank.message(kCount); }),
                AllOf(HasSubstr("for its device to end call 2 in the caller's device order (a message of 8388608 i32 "
                                "elements in device memory) of the messages of device memory from rank 0 to rank 1 of "
                                "communicator 'steps'"),
                      HasSubstr("not in it yet: rank 1 ")));
  });
}

/// FARANDOLE_DEVICE_FAULT is raise.
TEST(DeviceMessageFaults, DifferentMessagesInTheCallersOrderAreNamed) {
  for_each_device_group({2}, [](Communicator& ranks) {
    ConnectedRanks rank(ranks);
    rank.message(ranks.rank() == 0 ? 1000 : 900);
    wait_for_fault(rank.faults);
    EXPECT_THAT(message_of<Mismatch>([&] { rank.message(1000); }),
                AllOf(HasSubstr("called a message of 1000 i32 elements"), HasSubstr("called a message of 900 i32"),
                      HasSubstr("from rank 0 to rank 1")));
  });
}

/// The first message of the ranks, so that the host finds it.
TEST(DeviceMessageFaults, HostMemoryOnOneRankIsATimeoutThatSaysSo) {
  for_each_device_group({2}, [](Communicator& ranks) {
    Buffer values = ranks.allocate(1000, DType::kI32, ranks.rank() == 0 ? ranks.device() : MemorySpace());
    const auto message = [&] { ranks.rank() == 0 ? ranks.send(values.view(), 1) : (void)ranks.recv(values.view(), 0); };
    EXPECT_THAT(message_of<Timeout>(message),
                AnyOf(AllOf(HasSubstr("waits for rank 1 "), HasSubstr("both ranks must pass device memory")),
                      HasSubstr("waits for a message of 1000 i32 with tag 0 from rank 0 ")));
  });
}

/// In the agreed order the host waits for the peer.
TEST(DeviceMessageFaults, AMessageThatIsNotSentIsATimeoutThatNamesTheSender) {
  for_each_device_group({2}, [](Communicator& ranks) {
    EndpointFaults& faults = internals(ranks).endpoint().faults();
    Communicator agreed = ranks.duplicate({.name = "agreed"});
    Buffer values = ranks.allocate(1000, DType::kI32, ranks.device());
    const auto message = [&] {
      ranks.rank() == 0 ? agreed.send(values.view(), 1) : (void)agreed.recv(values.view(), 0);
    };
    message();
    if (ranks.rank() == 0) wait_for_fault(faults);
    EXPECT_THAT(message_of<Timeout>(message), AllOf(HasSubstr("rank 0 (host"), HasSubstr("from rank 0 to rank 1")));
  });
}

/// The processes of a job. The last rank is killed while the others wait for its messages.
TEST(DeviceMessageFaults, AKilledSenderIsPeerLostOnItsReceivers) {
  if (!is_launched()) GTEST_SKIP() << "needs a job of processes";
  for_each_group({}, [](Communicator& ranks) {
    Communicator caller = direct(ranks, "steps");
    const StreamView stream = device_of(ranks).make_stream();
    Buffer values = ranks.allocate(1 << 20, DType::kF32, ranks.device());
    const int last = ranks.size() - 1;
    std::vector<PeerMessage> messages;
    for (int rank = 0; rank < last; ++rank) {
      if (ranks.rank() == last) messages.push_back(PeerMessage::send(values.view(), rank));
    }
    if (ranks.rank() < last) messages.push_back(PeerMessage::recv(values.view(), last));
    caller.exchange(messages, stream);
    device_of(ranks).synchronize(stream);
    ranks.barrier();
    if (ranks.rank() == last) std::raise(SIGKILL);
    const std::string came = message_of<PeerLost>([&] {
      caller.exchange(messages, stream);
      wait_for_fault(internals(ranks).endpoint().faults());
      caller.exchange(messages, stream);
    });
    EXPECT_THAT(came, HasSubstr("rank " + std::to_string(last) + " "));
    EXPECT_THROW(ranks.barrier(), PeerLost);
  });
}

/// The processes of a job. The last rank is killed while it connects rank 0 for their first message; the others wait
/// for its part in their first messages.
TEST(DeviceMessageFaults, APeerKilledWhileItConnectsIsPeerLost) {
  if (!is_launched()) GTEST_SKIP() << "needs a job of processes";
  for_each_group({}, [](Communicator& ranks) {
    Communicator caller = direct(ranks, "steps");
    const StreamView stream = device_of(ranks).make_stream();
    Buffer values = ranks.allocate(1000, DType::kF32, ranks.device());
    const int last = ranks.size() - 1;
    ranks.barrier();
    if (ranks.rank() == last) {
      const std::thread killer([] {
        while (calls_of("ncclCommInitRankConfig") == 0) std::this_thread::yield();
        std::raise(SIGKILL);
      });
      caller.recv(values.view(), 0, 0, stream);
      std::this_thread::sleep_for(std::chrono::seconds(10));
    }
    const auto start = std::chrono::steady_clock::now();
    const std::string came = message_of<PeerLost>([&] {
      caller.send(values.view(), last, 0, stream);  // returns if the connection was complete before the kill
      wait_for_fault(internals(ranks).endpoint().faults());
      caller.send(values.view(), last, 0, stream);
    });
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
    EXPECT_THAT(came, HasSubstr("rank " + std::to_string(last) + " "));
    EXPECT_THROW(ranks.barrier(), PeerLost);
  });
}

}  // namespace
}  // namespace farandole::test
