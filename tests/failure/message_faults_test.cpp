// SPDX-License-Identifier: Apache-2.0
// Faults of messages among ranks that are threads: who raises which error, and what warnings say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/endpoint.h"
#include "message_of.h"
#include "variable.h"

namespace farandole {
namespace {

using test::message_of;
using test::Variable;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kLong = 50'000;  // elements of a message that is not buffered

/// Error of rank 0 in a job of replicas in which only `rank_0` and `others` happen. The job ends with an error.
std::string fault_of_rank_0(int replicas, const std::function<void(Communicator&)>& rank_0,
                            const std::function<void(Communicator&)>& others) {
  std::string text;
  EXPECT_ANY_THROW(run_replicas(replicas, [&](Communicator& ranks) {
    if (ranks.rank() != 0) return others(ranks);
    try {
      rank_0(ranks);
    } catch (const std::exception& error) {
      text = error.what();
      throw;
    }
  }));
  return text;
}

void return_at_once(Communicator&) {}

/// Computes until another rank has found a fault, so that this rank has no deadline of its own.
void compute_until_fault(Communicator& ranks) {
  while (!internals(ranks).endpoint().faults().exist()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST(MessageFaults, AReceiveFromARankThatHasLeftIsPeerLost) {
  const Variable quiet("FARANDOLE_LOG", "off");
  std::vector<float> data(1000);
  const auto receive = [&](Communicator& ranks) { ranks.recv(data, 1, 7); };
  EXPECT_THAT(fault_of_rank_0(2, receive, return_at_once),
              AllOf(HasSubstr("PeerLost"), HasSubstr("waits for a message of 1000 f32 with tag 7 from rank 1"),
                    HasSubstr("has left the job")));
}

TEST(MessageFaults, ALongSendToARankThatHasLeftIsPeerLost) {
  const Variable quiet("FARANDOLE_LOG", "off");
  std::vector<float> data(kLong);
  const auto send = [&](Communicator& ranks) { ranks.send(data, 1); };
  EXPECT_THAT(fault_of_rank_0(2, send, return_at_once),
              AllOf(HasSubstr("PeerLost"), HasSubstr("waits for rank 1"),
                    HasSubstr("to receive a message of 50000 f32"), HasSubstr("has left the job")));
}

TEST(MessageFaults, AReceiveFromAnyRankWaitsUntilAllHaveLeft) {
  const Variable quiet("FARANDOLE_LOG", "off");
  std::vector<float> data(4);
  int received = 0;
  const auto receive = [&](Communicator& ranks) {
    for (;; ++received) ranks.recv(data, Communicator::kAnySource);
  };
  const auto send = [](Communicator& ranks) {
    if (ranks.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    ranks.send(std::vector<float>(4), 0);
  };
  EXPECT_THAT(fault_of_rank_0(3, receive, send),
              AllOf(HasSubstr("PeerLost"), HasSubstr("from any rank"), HasSubstr("all other ranks have left")));
  EXPECT_EQ(received, 2);
}

TEST(MessageFaults, AnExceptionOfTheSourceEndsAReceive) {
  const Variable quiet("FARANDOLE_LOG", "off");
  std::vector<float> data(4);
  const auto receive = [&](Communicator& ranks) { ranks.recv(data, 1); };
  const auto fail = [](Communicator&) { throw std::runtime_error("no more data"); };
  EXPECT_THAT(fault_of_rank_0(2, receive, fail),
              AllOf(HasSubstr("PeerLost"), HasSubstr("rank 1"), HasSubstr("no more data")));
}

TEST(MessageFaults, WarningAndDeadlineNameWhoWaitsForWhom) {
  const Variable warn("FARANDOLE_WARN_AFTER", "0.2"), timeout("FARANDOLE_TIMEOUT", "0.7");
  testing::internal::CaptureStderr();
  std::vector<float> data(1000);
  const auto receive = [&](Communicator& ranks) { ranks.recv(data, 1, 7); };
  const auto send_otherwise = [](Communicator& ranks) {
    ranks.send(std::vector<float>(10), 0, 8);
    compute_until_fault(ranks);
  };
  const std::string text = fault_of_rank_0(2, receive, send_otherwise);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, AllOf(HasSubstr("Timeout"), HasSubstr("the deadline of 0.7 s (FARANDOLE_TIMEOUT) has passed")));
  for (const std::string& where : {text, log}) {
    EXPECT_THAT(where,
                AllOf(HasSubstr("rank 0 (host"), HasSubstr("waits for a message of 1000 f32 with tag 7 from rank 1"),
                      HasSubstr("messages that no receive has taken: 10 f32 with tag 8 from rank 1")));
  }
}

TEST(MessageFaults, CommunicatorsThatAreNotWatchedDoNotWarn) {
  const Variable warn("FARANDOLE_WARN_AFTER", "0.1"), timeout("FARANDOLE_TIMEOUT", "0.3");
  testing::internal::CaptureStderr();
  run_replicas(2, [](Communicator& ranks) {
    Communicator quiet = ranks.duplicate({.watch = false});
    std::vector<float> data(4);
    if (ranks.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
      quiet.send(data, 1);
    } else {
      quiet.recv(data, 0);
    }
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("waits for")));
}

TEST(MessageFaults, OfMembersNamesTheMemberThatIsMissing) {
  const Variable quiet("FARANDOLE_LOG", "off"), timeout("FARANDOLE_TIMEOUT", "0.4");
  const auto create = [](Communicator& ranks) { (void)Communicator::of_members(ranks, std::array{0, 1}); };
  EXPECT_THAT(fault_of_rank_0(2, create, compute_until_fault),
              AllOf(HasSubstr("Timeout"), HasSubstr("waits in of_members for rank 1"),
                    HasSubstr("which must call of_members with the same ranks of communicator 0")));
}

TEST(MessageFaults, UnwindingWithAPendingReceiveDoesNotHang) {
  const Variable quiet("FARANDOLE_LOG", "off");
  std::vector<float> data(4);
  const auto unwind = [&](Communicator& ranks) {
    const Work receive = ranks.recv_async(data, 1);
    throw std::runtime_error("enough");
  };
  const auto wait = [](Communicator& ranks) { ranks.barrier(); };
  EXPECT_EQ(fault_of_rank_0(2, unwind, wait), "enough");
}

TEST(MessageFaults, EveryPendingMessageRaisesTheFault) {
  const Variable quiet("FARANDOLE_LOG", "off");
  const auto wait_for_all = [](Communicator& ranks) {
    std::vector<float> sent(kLong), first(kLong), second(4);
    Work works[] = {ranks.send_async(sent, 1), ranks.recv_async(first, 1), ranks.recv_async(second, 1)};
    ranks.send(second, 1, 9);
    for (Work& work : works) EXPECT_THAT(message_of<PeerLost>([&] { work.wait(); }), HasSubstr("enough is enough"));
    EXPECT_THROW(ranks.send(second, 1), PeerLost);
    ranks.barrier();
  };
  const auto abort = [](Communicator& ranks) {
    std::vector<float> data(4);
    ranks.recv(data, 0, 9);
    ranks.abort("enough is enough");
  };
  EXPECT_THAT(fault_of_rank_0(2, wait_for_all, abort), HasSubstr("enough is enough"));
}

TEST(MessageFaults, TheFlightRecordHasALineForEachMessage) {
  run_replicas(2, [](Communicator& ranks) {
    std::vector<float> data(4), long_data(kLong);
    if (ranks.rank() == 0) {
      ranks.send(data, 1, 3);
      ranks.send(long_data, 1, 4);
    } else {
      ranks.recv(data, Communicator::kAnySource, 3);
      ranks.recv(long_data, 0, 4);
    }
    const std::string lines = internals(ranks).endpoint().recorder().to_json_lines();
    if (ranks.rank() == 0) {
      EXPECT_THAT(lines, AllOf(HasSubstr("send of 4 f32 with tag 3 to rank 1"),
                               HasSubstr("send of 50000 f32 with tag 4 to rank 1")));
    } else {
      EXPECT_THAT(lines, AllOf(HasSubstr("receive of 4 f32 with tag 3 from any rank"),
                               HasSubstr("receive of 50000 f32 with tag 4 from rank 0")));
    }
  });
}

}  // namespace
}  // namespace farandole
