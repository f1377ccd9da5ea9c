// SPDX-License-Identifier: Apache-2.0
// Program errors and hangs in the caller's device order. Each test makes its job fail, so each test runs in a fresh
// process. Ranks are threads with a device each, or processes that may share a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "direct_communicator.h"
#include "farandole/core/error.h"
#include "farandole/gradients/gradient_averager.h"
#include "farandole/internal/endpoint.h"
#include "graph_capture.h"
#include "groups.h"
#include "message_of.h"
#include "on_device.h"

namespace farandole::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A communicator in the caller's order, after a first call that brings its devices up.
struct DirectRank {
  explicit DirectRank(Communicator& ranks, Seconds timeout = Seconds(0))
      : faults(internals(ranks).endpoint().faults()),
        caller(ranks.duplicate(
            {.device_order = CommunicatorOptions::DeviceOrder::kCaller, .timeout = timeout, .name = "steps"})),
        device(device_of(ranks)),
        stream(device.make_stream()),
        values(ranks.allocate(1000, DType::kI32, ranks.device())) {
    call(ReduceOp::kSum);
    call(ReduceOp::kSum);
    device.synchronize(stream);
    ranks.barrier();
  }
  void call(ReduceOp op) { caller.allreduce(values.view(), op, {.algorithm = "vendor", .stream = stream}); }
  /// Calls until the fault of the job is raised.
  void call_on(ReduceOp op) {
    for (;;) {
      call(op);
      std::this_thread::yield();
    }
  }
  /// A graph of one call, which is call 2. All ranks have replayed it.
  std::unique_ptr<DeviceGraph> capture() {
    StreamCapture capture(device, stream);
    call(ReduceOp::kSum);
    auto graph = capture.end();
    graph->launch(stream);
    device.synchronize(stream);
    return graph;
  }
  void wait_for_fault() { test::wait_for_fault(faults); }
  EndpointFaults& faults;
  Communicator caller;
  Device& device;
  StreamView stream;
  Buffer values;
};

/// FARANDOLE_DEVICE_FAULT is raise.
TEST(DirectFaults, DifferentCallsAreAMismatchThatNamesThem) {
  for_each_device_group({2}, [](Communicator& ranks) {
    DirectRank rank(ranks);
    const ReduceOp op = ranks.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax;
    rank.call(op);
    rank.wait_for_fault();
    EXPECT_THAT(message_of<Mismatch>([&] { rank.call(op); }),
                AllOf(HasSubstr("in call 2 in the caller's device order rank "), HasSubstr("1000 i32 elements"),
                      HasSubstr("sum, vendor"), HasSubstr("max, vendor"), HasSubstr("communicator 'steps'")));
  });
}

/// FARANDOLE_DEVICE_FAULT is raise. One of the calls goes through the queue, and the ranks make the two in different
/// orders: the comparisons of each kind by itself see no difference.
TEST(DirectFaults, DifferentPlacesAmongCallsOfTheQueueAreAMismatch) {
  for_each_device_group({2}, [](Communicator& ranks) {
    DirectRank rank(ranks);
    Buffer integers = ranks.allocate(100, DType::kI32, ranks.device());
    const auto average = [&] { rank.caller.allreduce(integers.view(), ReduceOp::kAverage, {.stream = rank.stream}); };
    EXPECT_THROW(
        {
          if (ranks.rank() == 0) average();
          rank.call(ReduceOp::kSum);
          if (ranks.rank() == 1) average();
          rank.call_on(ReduceOp::kSum);
        },
        Mismatch);
  });
}

/// FARANDOLE_DEVICE_FAULT is raise. Rank 0 makes a call that rank 1 does not make.
TEST(DirectFaults, ARankThatDoesNotComeIsATimeoutThatNamesIt) {
  for_each_device_group({2}, [](Communicator& ranks) {
    DirectRank rank(ranks);
    if (ranks.rank() == 0) rank.call(ReduceOp::kSum);
    rank.wait_for_fault();
    EXPECT_THAT(message_of<Timeout>([&] { rank.call(ReduceOp::kSum); }),
                AllOf(HasSubstr("for its device to end call 2 in the caller's device order (allreduce of 1000 i32"),
                      HasSubstr("rank 1 "), HasSubstr("has entered only collective 1")));
  });
}

/// FARANDOLE_DEVICE_FAULT is raise, and FARANDOLE_TIMEOUT is not set.
TEST(DirectFaults, TheTimeoutOfTheCommunicatorHoldsForDirectCalls) {
  for_each_device_group({2}, [](Communicator& ranks) {
    DirectRank rank(ranks, Seconds(1));
    if (ranks.rank() == 0) rank.call(ReduceOp::kSum);
    rank.wait_for_fault();
    EXPECT_THAT(
        message_of<Timeout>([&] { rank.call(ReduceOp::kSum); }),
        AllOf(HasSubstr("the deadline of 1 s (the timeout of the communicator) has passed"), HasSubstr("rank 1 ")));
  });
}

/// FARANDOLE_DEVICE_FAULT is raise. Rank 0 replays a graph that rank 1 does not replay.
TEST(DirectFaults, AReplayThatAPeerDoesNotMakeIsATimeoutThatNamesIt) {
  for_each_device_group({2}, [](Communicator& ranks) {
    DirectRank rank(ranks);
    const auto graph = rank.capture();
    ranks.barrier();
    const auto start = std::chrono::steady_clock::now();
    if (ranks.rank() == 0) graph->launch(rank.stream);
    rank.wait_for_fault();
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    EXPECT_THAT(
        message_of<Timeout>([&] { rank.call(ReduceOp::kSum); }),
        AllOf(HasSubstr("for its device to end a replay of captured call 2 in the caller's device order "
                        "(allreduce of 1000 i32 elements"),
              HasSubstr("communicator 'steps'"), HasSubstr("all ranks have captured the call: replay its graph")));
    EXPECT_LT((waited - internals(ranks).settings().faults.timeout).count(), 1.0);
  });
}

/// FARANDOLE_DEVICE_FAULT is raise. Rank 0 makes another call behind the replay that hangs.
TEST(DirectFaults, ACallBehindAReplayThatHangsIsNamedToo) {
  for_each_device_group({2}, [](Communicator& ranks) {
    DirectRank rank(ranks);
    const auto graph = rank.capture();
    ranks.barrier();
    if (ranks.rank() == 0) {
      graph->launch(rank.stream);
      rank.call(ReduceOp::kSum);
    }
    rank.wait_for_fault();
    EXPECT_THAT(message_of<Timeout>([&] { rank.call(ReduceOp::kSum); }),
                AllOf(HasSubstr("for its device to end a replay of captured call 2 in"),
                      HasSubstr("; call 3 has not ended either; not in it yet: rank 1 ")));
  });
}

/// Rank 0 enqueues replays, and a call behind them, that together take longer than FARANDOLE_TIMEOUT: rank 1 replays at
/// intervals, so that the device of rank 0 is always in a replay.
TEST(DirectFaults, ManyShortReplaysAreNoTimeout) {
  for_each_device_group({2}, [](Communicator& ranks) {
    {
      DirectRank rank(ranks);
      const auto graph = rank.capture();
      const Seconds interval = internals(ranks).settings().faults.timeout / 4;
      ranks.barrier();
      const auto start = std::chrono::steady_clock::now();
      const auto wait_for_turn = [&](int turn) {
        while (ranks.rank() == 1 && std::chrono::steady_clock::now() < start + turn * interval) {
          std::this_thread::yield();
        }
      };
      for (int replay = 0; replay < 10; ++replay) {
        wait_for_turn(replay);
        graph->launch(rank.stream);
      }
      wait_for_turn(11);
      rank.call(ReduceOp::kSum);
      rank.device.synchronize(rank.stream);
    }
    ranks.barrier();
  });
}

/// The program ends its communicator while a replay hangs on the device.
TEST(DirectFaults, ACommunicatorThatEndsWhileAReplayHangsIsATimeout) {
  for_each_device_group({2}, [](Communicator& ranks) {
    StreamView stream;
    {
      DirectRank rank(ranks);
      stream = rank.stream;
      const auto graph = rank.capture();
      ranks.barrier();
      if (ranks.rank() == 0) graph->launch(rank.stream);
      if (ranks.rank() == 1) rank.wait_for_fault();
    }
    device_of(ranks).synchronize(stream);
    EXPECT_THAT(message_of<Timeout>([&] { ranks.barrier(); }), HasSubstr("a replay of"));
  });
}

/// FARANDOLE_DEVICE_FAULT is raise. Each communicator's calls are in order, but the ranks use the two in different
/// orders in one stream, so that each rank's first call waits for the other rank's second one.
TEST(DirectFaults, CrossedCommunicatorsAreATimeout) {
  for_each_device_group({2}, [](Communicator& ranks) {
    DirectRank one(ranks), other(ranks);
    other.stream = one.stream;
    (ranks.rank() == 0 ? one : other).call(ReduceOp::kSum);
    (ranks.rank() == 0 ? other : one).call(ReduceOp::kSum);
    one.wait_for_fault();
    EXPECT_THAT(message_of<Timeout>([&] { ranks.barrier(); }),
                AllOf(HasSubstr("for its device to end call 2 in the caller's device order (allreduce of 1000 i32"),
                      HasSubstr("all ranks have made the call"),
                      HasSubstr("the calls of several communicators must be in the same order on all ranks")));
  });
}

/// FARANDOLE_DEVICE_FAULT is raise. Rank 0 makes calls until its log of calls is full; rank 1 makes none of them.
TEST(DirectFaults, AThreadThatWaitsForRoomRaisesTheFault) {
  for_each_device_group({2}, [](Communicator& ranks) {
    DirectRank rank(ranks);
    if (ranks.rank() == 1) rank.wait_for_fault();
    EXPECT_THAT(message_of<Timeout>([&] { rank.call_on(ReduceOp::kSum); }),
                HasSubstr("for its device to end call 2 in the caller's device order"));
  });
}

/// The program ends its communicator while a call hangs on the device: the end waits up to the deadline, and the stream
/// goes on.
TEST(DirectFaults, ACommunicatorThatEndsWhileItsCallHangsIsATimeout) {
  for_each_device_group({2}, [](Communicator& ranks) {
    StreamView stream;
    {
      DirectRank rank(ranks);
      stream = rank.stream;
      if (ranks.rank() == 0) rank.call(ReduceOp::kSum);
      if (ranks.rank() == 1) rank.wait_for_fault();
    }
    device_of(ranks).synchronize(stream);
    EXPECT_THAT(message_of<Timeout>([&] { ranks.barrier(); }), HasSubstr("for its device to end call 2"));
  });
}

/// FARANDOLE_DEVICE_FAULT is exit: the program never calls Farandole again, and the process ends all the same.
TEST(DirectFaults, AProgramThatOnlyWaitsForItsStreamIsEnded) {
  if (!is_launched()) GTEST_SKIP() << "needs a job of processes";
  for_each_device_group({2}, [](Communicator& ranks) {
    DirectRank rank(ranks);
    if (ranks.rank() == 0) {
      rank.call(ReduceOp::kSum);
      rank.device.synchronize(rank.stream);
    }
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  });
}

/// The same with a replay in the place of the call.
TEST(DirectFaults, AProgramThatOnlyWaitsForItsReplayIsEnded) {
  if (!is_launched()) GTEST_SKIP() << "needs a job of processes";
  for_each_device_group({2}, [](Communicator& ranks) {
    DirectRank rank(ranks);
    const auto graph = rank.capture();
    if (ranks.rank() == 0) {
      graph->launch(rank.stream);
      rank.device.synchronize(rank.stream);
    }
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  });
}

/// FARANDOLE_CHECK is strict: no data is touched, and the communicator is usable afterwards.
TEST(DirectFaults, StrictChecksCompareFirst) {
  for_each_device_group({2}, [](Communicator& ranks) {
    DirectRank rank(ranks);
    const ReduceOp op = ranks.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax;
    EXPECT_THAT(message_of<Mismatch>([&] { rank.call(op); }), HasSubstr("no data was touched"));
    rank.call(ReduceOp::kSum);
    rank.device.synchronize(rank.stream);
  });
}

/// FARANDOLE_DEVICE_FAULT is raise.
TEST(DirectFaults, UnmarkedGradientsEndTheJob) {
  for_each_device_group({2}, [](Communicator& ranks) {
    DirectRank rank(ranks);
    Buffer gradients = ranks.allocate(100, DType::kF32, ranks.device());
    GradientAverager averager(rank.caller, {{gradients.view(), "weights"}}, {.stream = rank.stream});
    averager.ready(0);
    averager.wait();
    EXPECT_THAT(message_of<PeerLost>([&] {
                  ranks.barrier();  // rank 1 may have left it and ended the job while rank 0 is still in it
                  if (ranks.rank() == 0) averager.ready(0);
                  averager.wait();
                  rank.call_on(ReduceOp::kSum);
                }),
                AllOf(HasSubstr("rank 1 "), HasSubstr("has left gradients unmarked")));
  });
}

/// The last calls of a communicator differ: they are compared before it ends.
TEST(DirectFaults, TheLastCallsAreCompared) {
  for_each_device_group({2}, [](Communicator& ranks) {
    {
      DirectRank rank(ranks);
      // The ranks differ in a factor, which NCCL cannot see.
      rank.caller.allreduce(rank.values.view(), ReduceOp::kSum,
                            {.postscale = ranks.rank() == 0 ? 2.0 : 3.0, .algorithm = "vendor", .stream = rank.stream});
    }
    EXPECT_THAT(message_of<Mismatch>([&] { ranks.barrier(); }), HasSubstr("in call 2 in the caller's device order"));
  });
}

/// Rank 1 differs, and its report is late: rank 2, which compares it, waits for it before it ends its communicator.
/// Each rank ends after the next one, so that rank 1 does not see the report of rank 0 either if it does not wait.
TEST(DirectFaults, AnEndWaitsForTheReportOfTheLastCall) {
  if (is_launched()) GTEST_SKIP() << "ranks that end in turns are threads";
  std::array<std::atomic<bool>, 4> has_ended{};
  has_ended[3] = true;
  for_each_device_group({3}, [&](Communicator& ranks) {
    const auto place = static_cast<std::size_t>(ranks.rank());
    {
      DirectRank rank(ranks);
      rank.caller.allreduce(rank.values.view(), ReduceOp::kSum,
                            {.postscale = ranks.rank() == 1 ? 2.0 : 3.0, .algorithm = "vendor", .stream = rank.stream});
      while (!has_ended[place + 1]) std::this_thread::yield();
    }
    has_ended[place] = true;
    EXPECT_THAT(message_of<Mismatch>([&] { ranks.barrier(); }), HasSubstr("in call 2 in the caller's device order"));
  });
}

}  // namespace
}  // namespace farandole::test
