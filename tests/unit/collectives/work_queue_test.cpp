// SPDX-License-Identifier: Apache-2.0
// The queue of a communicator's collectives: when a collective starts or runs inline, failures, shutdown, and the
// polling of the job's health.
#include "communicator/work_queue.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/core/world.h"
#include "message_of.h"
#include "scripted_network.h"
#include "shared_memory/shm_operation.h"
#include "variable.h"

namespace farandole {
namespace {

using test::message_of;
using test::ScriptedNetwork;
using testing::ElementsAre;
using testing::HasSubstr;
using Pending = std::shared_ptr<CollectiveWork>;

/// The queues of two ranks, which only the test moves on.
class Queues {
 public:
  /// @param network  that both use as if they lived on two hosts; null: they share memory
  explicit Queues(ScriptedNetwork* network = nullptr) : world_(options()) {
    for (int rank = 0; rank < 2; ++rank) {
      Group group;
      group.endpoint = world_.endpoint(rank).share();
      group.id = 5;
      group.rank = rank;
      group.members = {0, 1};
      if (network != nullptr) {
        group.hosts = {0, 1};
        group.transport = network;
        group.compares = false;
      }
      queues_.push_back(std::make_shared<WorkQueue>(tuned(std::move(group))));
    }
  }
  WorkQueue& operator[](int rank) { return *queues_[static_cast<std::size_t>(rank)]; }
  Endpoint& endpoint(int rank) { return world_.endpoint(rank); }
  void advance_all() {
    for (int step = 0; step < 20; ++step) {
      for (const auto& queue : queues_) (void)queue->advance();
    }
  }
  /// Moves both on until the work has ended.
  void finish(const Pending& work) {
    for (int step = 0; step < 1000 && !work->done; ++step) advance_all();
    EXPECT_TRUE(work->done) << "collective " << work->sequence << " does not end";
  }
  /// One collective, in which the ranks find each other's memory.
  void meet();
  FlightRecord last_record(int rank) { return endpoint(rank).recorder().records().back(); }

 private:
  static WorldOptions options() {
    WorldOptions options;
    options.replicas = 2;
    options.alone = true;
    return options;
  }
  World world_;
  std::vector<std::shared_ptr<WorkQueue>> queues_;
};

/// One rank's allreduce of `count` elements, each 1 before and 2 after it.
class Ones {
 public:
  explicit Ones(WorkQueue& queue, std::size_t count = 10) : queue_(queue), values_(count, 1.0F) {
    call_.collective = Collective::kAllreduce;
    call_.input = {values_.data(), count, DType::kF32};
    call_.output = {values_.data(), count, DType::kF32};
    selection_ = queue.shares_memory()
                     ? Selection{&kShmMethod}
                     : Selection::schedule(*find_algorithm(Collective::kAllreduce, "recursive_doubling"), 1);
  }
  Pending submit() { return queue_.submit(accepted()); }
  /// As Communicator::State does with a call that cannot work.
  Pending submit_invalid(const std::string& validation_error) {
    PreparedCall prepared(call_, kRanks);
    prepared.refuse(validation_error);
    return queue_.submit(prepared);
  }
  void run() { queue_.run(accepted()); }
  bool are_added() const { return values_ == std::vector<float>(values_.size(), 2.0F); }
  bool are_untouched() const { return values_ == std::vector<float>(values_.size(), 1.0F); }

 private:
  static constexpr int kRanks = 2;
  PreparedCall accepted() const {
    PreparedCall prepared(call_, kRanks);
    prepared.accept(selection_);
    return prepared;
  }

  WorkQueue& queue_;
  std::vector<float> values_;
  Call call_;
  Selection selection_;
};

void Queues::meet() {
  Ones first((*this)[0]), second((*this)[1]);
  const Pending works[] = {first.submit(), second.submit()};
  for (const Pending& work : works) finish(work);
}

/// Submits `count` collectives on each rank.
struct Submitted {
  Submitted(Queues& queues, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      for (int rank = 0; rank < 2; ++rank) {
        values.push_back(std::make_unique<Ones>(queues[rank]));
        works[rank].push_back(values.back()->submit());
      }
    }
  }
  /// Sequence numbers of the rank's collectives that have started.
  std::vector<std::uint64_t> started(int rank) const {
    std::vector<std::uint64_t> numbers;
    for (const Pending& work : works[rank]) {
      if (work->started != Clock::time_point{}) numbers.push_back(work->sequence);
    }
    return numbers;
  }
  std::vector<std::unique_ptr<Ones>> values;
  std::vector<Pending> works[2];
};

TEST(WorkQueue, CollectiveIsRecordedBeforePeersSeeIt) {
  // Otherwise a peer could end the collective, and cause a fault, while this rank's record is still empty.
  Queues queues;
  queues.meet();
  for (int i = 0; i < 100; ++i) {
    Ones first(queues[0]), second(queues[1]);
    std::jthread other([&] { second.run(); });
    while (!queues[0].peer_has_started_next()) {
    }
    const std::size_t recorded = queues.endpoint(1).recorder().records().size();
    first.run();
    ASSERT_EQ(recorded, static_cast<std::size_t>(i) + 2) << "as many as rank 1 has begun";
  }
}

TEST(WorkQueue, StartsFourInOrderAndTheNextAfterTheOldest) {
  ScriptedNetwork network;
  Queues queues(&network);
  const Submitted calls(queues, 7);
  EXPECT_THAT(calls.started(0), ElementsAre());
  queues.advance_all();
  EXPECT_THAT(calls.started(0), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(network.receives_of(0), 4U) << "one in each lane";
  // A later one that ends frees its lane, but the next in that lane waits for those before it.
  while (network.deliver_all_of(2)) queues.advance_all();
  EXPECT_TRUE(calls.works[0][1]->done);
  EXPECT_THAT(calls.started(0), ElementsAre(1, 2, 3, 4));
  while (!calls.works[0][0]->done && network.deliver_all_of(1)) queues.advance_all();
  EXPECT_TRUE(calls.works[0][0]->done);
  EXPECT_THAT(calls.started(0), ElementsAre(1, 2, 3, 4, 5, 6));
  while (network.deliverable() > 0) {
    network.deliver(0);
    queues.advance_all();
  }
  for (const auto& values : calls.values) EXPECT_TRUE(values->are_added());
}

TEST(WorkQueue, StartsTwoIfAllRanksShareMemory) {
  Queues queues;
  std::vector<std::unique_ptr<Ones>> values;
  std::vector<Pending> works;
  for (int i = 0; i < 4; ++i) {
    values.push_back(std::make_unique<Ones>(queues[0]));
    works.push_back(values.back()->submit());
  }
  queues.advance_all();
  for (std::size_t i = 0; i < works.size(); ++i)
    EXPECT_EQ(works[i]->started != Clock::time_point{}, i < 2) << "call " << i;
  for (int i = 0; i < 4; ++i) {
    values.push_back(std::make_unique<Ones>(queues[1]));
    works.push_back(values.back()->submit());
  }
  queues.finish(works.back());
  for (const auto& value : values) EXPECT_TRUE(value->are_added());
}

TEST(WorkQueue, RunsInlineIfNoSleepIsNeeded) {
  Queues queues;
  queues.meet();
  Ones first(queues[0]), second(queues[1]);
  const Pending theirs = second.submit();
  (void)queues[1].advance();
  first.run();
  EXPECT_TRUE(first.are_added());
  const FlightRecord record = queues.last_record(0);
  EXPECT_EQ(record.stage, FlightRecord::Stage::kDone);
  EXPECT_EQ(record.finished, record.queued) << "it was in the queue";
  queues.finish(theirs);
}

TEST(WorkQueue, QueuesACallThatHasToSleep) {
  Queues queues;
  Ones first(queues[0]), second(queues[1]);
  std::thread caller([&] { first.run(); });
  while (!queues[0].needs_this_rank()) std::this_thread::yield();
  second.run();
  caller.join();
  EXPECT_TRUE(first.are_added() && second.are_added());
  const FlightRecord record = queues.last_record(0);
  EXPECT_EQ(record.stage, FlightRecord::Stage::kDone);
  EXPECT_GT(record.finished, record.queued);
}

TEST(WorkQueue, QueuesACallBehindPendingCalls) {
  Queues queues;
  queues.meet();
  Ones first(queues[0]), second(queues[0]), third(queues[1]), fourth(queues[1]);
  const Pending others[] = {third.submit(), fourth.submit()};
  queues.advance_all();
  const Pending mine = first.submit();
  second.run();
  EXPECT_TRUE(mine->done) << "the second call went before the first";
  EXPECT_TRUE(first.are_added() && second.are_added());
  for (const Pending& other : others) queues.finish(other);
}

TEST(WorkQueue, KeepsAFailureAndThrowsItEachTime) {
  Queues queues;
  Ones first(queues[0], 10), second(queues[1], 11);
  const Pending mine = first.submit(), theirs = second.submit();
  queues.finish(mine);
  queues.finish(theirs);
  Work work(mine);
  Work copy = work;
  const std::string text = message_of<Mismatch>([&] { work.wait(); });
  EXPECT_THAT(text, HasSubstr("allreduce of 11 f32 elements"));
  EXPECT_EQ(message_of<Mismatch>([&] { work.wait(); }), text);
  EXPECT_EQ(message_of<Mismatch>([&] { copy.wait(); }), text);
  EXPECT_EQ(message_of<Mismatch>([&] { Work(theirs).wait(); }), text);
  EXPECT_TRUE(first.are_untouched() && second.are_untouched());
  // A disagreement ends one collective, not the job.
  Ones third(queues[0]), fourth(queues[1]);
  const Pending next = fourth.submit();
  (void)queues[1].advance();
  third.run();
  queues.finish(next);
  EXPECT_TRUE(third.are_added() && fourth.are_added());
}

TEST(WorkQueue, InvalidCallRaisesTheReasonAndPeersAMismatch) {
  Queues queues;
  Ones first(queues[0]), second(queues[1]);
  const Pending mine = first.submit_invalid("there is no such root"), theirs = second.submit();
  queues.finish(mine);
  queues.finish(theirs);
  EXPECT_EQ(message_of<InvalidArgument>([&] { Work(mine).wait(); }), "there is no such root");
  (void)message_of<Mismatch>([&] { Work(theirs).wait(); });
  EXPECT_TRUE(first.are_untouched() && second.are_untouched());
}

TEST(WorkQueue, LostMessageFailsAllPendingCallsAndTheJob) {
  ScriptedNetwork network;
  Queues queues(&network);
  const Submitted calls(queues, 6);
  queues.advance_all();
  network.fail("the network is gone");
  queues.advance_all();
  for (const auto& works : calls.works) {
    for (const Pending& work : works) {
      ASSERT_TRUE(work->done);
      EXPECT_THAT(message_of<TransportError>([&] { Work(work).wait(); }), HasSubstr("the network is gone"));
    }
  }
  EXPECT_GT(network.withdrawn(), 0U);
  EXPECT_FALSE(queues[0].needs_this_rank());
  Ones late(queues[0]);
  EXPECT_THAT(message_of<TransportError>([&] { (void)late.submit(); }), HasSubstr("collective 1 of communicator 5"));
}

TEST(WorkQueue, CloseWaitsForPendingCalls) {
  Queues queues;
  Ones first(queues[0]), second(queues[1]);
  const Pending mine = first.submit();
  std::atomic<bool> closed{false};
  std::thread closer([&] {
    queues[0].close();
    closed = true;
  });
  for (int turns = 0; turns < 10'000 && !closed; ++turns) std::this_thread::yield();
  EXPECT_FALSE(closed) << "rank 1 has not come yet";
  second.run();
  closer.join();
  EXPECT_TRUE(mine->done);
  EXPECT_TRUE(first.are_added());
  EXPECT_FALSE(queues[0].needs_this_rank());
  queues[1].close();
}

TEST(WorkQueue, SeesThatAPeerHasBegunTheNextCollective) {
  Queues queues;
  queues.meet();
  Ones first(queues[0]), second(queues[1]);
  EXPECT_FALSE(queues[1].peer_has_started_next());
  const Pending mine = first.submit();
  queues.advance_all();
  EXPECT_TRUE(queues[1].peer_has_started_next());
  EXPECT_FALSE(queues[0].peer_has_started_next()) << "this rank is in it";
  EXPECT_THAT(queues[0].describe_missing(), HasSubstr("rank 1"));
  const Pending theirs = second.submit();
  queues.finish(theirs);
  queues.finish(mine);
  EXPECT_EQ(queues[0].describe_missing(), "");
}

/// Looks after the oldest collective of rank 0, to which rank 1 does not come, until it has failed.
template <class Kind>
std::string failure_of_a_wait(Queues& queues) {
  Ones first(queues[0]);
  const Pending mine = first.submit();
  while (!mine->done) {
    (void)queues[0].advance();
    queues[0].poll_health();
    std::this_thread::yield();
  }
  return message_of<Kind>([&] { Work(mine).wait(); });
}

TEST(WorkQueue, PollingHealthEndsCallsPastTheirDeadline) {
  const test::Variable timeout("FARANDOLE_TIMEOUT", "0.05");
  Queues queues;
  const std::string text = failure_of_a_wait<Timeout>(queues);
  EXPECT_THAT(text, HasSubstr("the deadline of 0.05 s (FARANDOLE_TIMEOUT) has passed"));
  EXPECT_THAT(text, HasSubstr("not in it yet: rank 1"));
}

TEST(WorkQueue, PollingHealthEndsAWaitForARankThatHasLeft) {
  Queues queues;
  queues.endpoint(1).late_ranks().set_has_left(true);
  EXPECT_THAT(failure_of_a_wait<PeerLost>(queues), HasSubstr("rank 1"));
}

TEST(WorkQueue, JobFaultEndsAllPendingCalls) {
  Queues queues;
  Ones first(queues[0]), second(queues[0]);
  const Pending works[] = {first.submit(), second.submit()};
  queues.advance_all();
  queues.endpoint(1).faults().poison(ErrorKind::kPeerLost, "rank 1 is gone");
  queues.advance_all();
  for (const Pending& work : works) EXPECT_EQ(message_of<PeerLost>([&] { Work(work).wait(); }), "rank 1 is gone");
  EXPECT_EQ(message_of<PeerLost>([&] { first.run(); }), "rank 1 is gone");
}

}  // namespace
}  // namespace farandole
