// SPDX-License-Identifier: Apache-2.0
// The engine of one process set, driven by hand: the test decides which rank advances, and at what time.
#include "set_engine.h"

#include <barrier>
#include <numeric>

#include "engine_harness.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/endpoint.h"

namespace farandole::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

/// Result of a join.
struct JoinEnd {
  int last_rank = -1;
  std::optional<RequestError> error;
  int times = 0;
  static void on_done(void* context, const farandole_error* error, std::int32_t last_rank) {
    auto& self = *static_cast<JoinEnd*>(context);
    if (error != nullptr) self.error = RequestError{error->kind, error->text};
    self.last_rank = last_rank;
    ++self.times;
  }
};

/// A rank of the set.
struct Member {
  std::unique_ptr<SetEngine> engine;
  Timeline timeline;
  Communicator control;
  Endpoint* endpoint = nullptr;

  /// Advances once, and runs what is due. True if something happened.
  bool advance(Clock::time_point now) {
    const bool moved = engine->advance(/*blocked=*/false, now);
    run_due();
    return moved;
  }
  void run_due() const {
    DueCallbacks due;
    engine->take_due(due);
    due.run();
  }
  /// Collectives that this rank has begun, of any communicator.
  std::size_t collectives() const { return endpoint->recorder().records().size(); }
};

/// The ranks 1, 2, … of a job form the set; the thread of rank 0, which is not in it, moves them on.
class HandDrivenSet {
 public:
  explicit HandDrivenSet(std::size_t members) : members_(members) {}

  SetEngine& operator[](std::size_t member) { return *members_[member].engine; }
  Member& member(std::size_t index) { return members_[index]; }

  /// A caller waits for it, so that its rank announces it with the next advance.
  PendingTensors submit(std::size_t member, const std::string& name, std::vector<float> values,
                        RequestOptions options = {}) {
    options.waiting = Waiting::kCaller;
    PendingTensors pending;
    std::vector<std::vector<float>> one;
    one.push_back(std::move(values));
    auto request = std::make_unique<LocalRequest>(request_of(name, std::move(one), options, pending));
    request->ticket = next_ticket_++;
    (*this)[member].submit(std::move(request), now);
    return pending;
  }
  /// The members advance in turn, until `done`, which is asked before each.
  void until(const std::function<bool()>& done) {
    for (std::size_t i = 0; i < 1'000'000; ++i) {
      if (done()) return;
      members_[i % members_.size()].advance(now);
    }
    ADD_FAILURE() << "what the test waits for has not come";
  }
  void until_done(const PendingTensors& pending) {
    until([&] { return pending.front()->done.load(); });
  }
  /// The member may move on as often as it likes, and nothing happens.
  void expect_still(std::size_t index) {
    const std::size_t before = members_[index].collectives();
    for (int pass = 0; pass < 1000; ++pass) EXPECT_FALSE(members_[index].advance(now));
    EXPECT_EQ(members_[index].collectives(), before) << "member " << index << " has sent something";
  }
  farandole_counters counters(std::size_t member) {
    farandole_counters sum{};
    (*this)[member].add_counters(sum);
    return sum;
  }
  void abort(const std::string& text) { members_.front().control.abort(text); }

  Clock::time_point now{std::chrono::hours(1)};

  /// Runs `body` on such a set.
  static void run(std::size_t members, const std::function<void(HandDrivenSet&)>& body) {
    HandDrivenSet set(members);
    std::barrier meet(static_cast<std::ptrdiff_t>(members) + 1);
    run_replicas(static_cast<int>(members) + 1, [&](Communicator& job) {
      const bool is_member = job.rank() > 0;
      const Communicator control = job.split(is_member ? 0 : -1, job.rank(), SetEngine::kControl);
      const Communicator data = job.split(is_member ? 0 : -1, job.rank(), SetEngine::kData);
      if (is_member) {
        Member& self = set.members_[static_cast<std::size_t>(job.rank() - 1)];
        self.control = control;
        self.endpoint = &internals(job).endpoint();
        std::vector<int> ranks(members);
        std::iota(ranks.begin(), ranks.end(), 1);
        self.engine = std::make_unique<SetEngine>(ranks, control, data, self.timeline);
      }
      meet.arrive_and_wait();
      if (!is_member) set.drive(body);
      meet.arrive_and_wait();
      if (is_member) {
        Member& self = set.members_[static_cast<std::size_t>(job.rank() - 1)];
        self.engine.reset();
        self.control = {};
      }
    });
  }

 private:
  void drive(const std::function<void(HandDrivenSet&)>& body) {
    try {
      body(*this);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    const bool has_ended =
        std::none_of(members_.begin(), members_.end(), [](const Member& each) { return each.engine->is_active(); });
    EXPECT_TRUE(has_ended) << "something is under way at the end of the test";
    if (!has_ended) abort("a test has left something under way");  // so that no destructor waits for it
  }

  std::vector<Member> members_;
  std::uint64_t next_ticket_ = 1;
};

void expect_failed(const PendingTensors& pending, ErrorKind kind, const std::string& text) {
  ASSERT_TRUE(pending.front()->done.load());
  ASSERT_TRUE(pending.front()->error.has_value());
  EXPECT_EQ(pending.front()->error->kind, kind);
  EXPECT_THAT(pending.front()->error->text, HasSubstr(text));
}

TEST(SetEngine, RunsARequestOnceAllRanksHaveSubmittedIt) {
  HandDrivenSet::run(3, [](HandDrivenSet& set) {
    for (std::uint64_t turn = 1; turn <= 3; ++turn) {
      const auto first = set.submit(0, "x", {1.0F});
      const auto second = set.submit(1, "x", {2.0F});
      for (int pass = 0; pass < 1000; ++pass) set.member(static_cast<std::size_t>(pass % 3)).advance(set.now);
      EXPECT_FALSE(first.front()->done || second.front()->done) << "one rank has not submitted it";
      const auto third = set.submit(2, "x", {4.0F});
      for (const auto* pending : {&first, &second, &third}) {
        set.until_done(*pending);
        EXPECT_THAT(pending->front()->output, ElementsAre(7.0F));
      }
      EXPECT_EQ(set.counters(0).named, 1U) << "its name travels once";
    }
  });
}

/// The engine asks for memory by a callback, and goes on when it has been run.
TEST(SetEngine, GathersIntoMemoryThatItAsksFor) {
  HandDrivenSet::run(2, [](HandDrivenSet& set) {
    RequestOptions rows;
    rows.kind = RequestKind::kAllgather;
    const auto first = set.submit(0, "rows", {1.0F, 2.0F}, rows);
    const auto second = set.submit(1, "rows", {3.0F}, rows);
    set.until_done(first);
    set.until_done(second);
    EXPECT_THAT(first.front()->output, ElementsAre(1.0F, 2.0F, 3.0F));
    EXPECT_THAT(second.front()->output, ElementsAre(1.0F, 2.0F, 3.0F));
  });
}

TEST(SetEngine, DisagreementsFailOnAllRanksAndTheSetGoesOn) {
  HandDrivenSet::run(2, [](HandDrivenSet& set) {
    const auto first = set.submit(0, "x", {1.0F});
    const auto second = set.submit(1, "x", {1.0F, 2.0F});
    set.until_done(first);
    set.until_done(second);
    expect_failed(first, ErrorKind::kMismatch, "f32[2]");
    expect_failed(second, ErrorKind::kMismatch, first.front()->error->text);
    const auto again = set.submit(0, "x", {1.0F}), there = set.submit(1, "x", {1.0F});
    set.until_done(again);
    set.until_done(there);
    EXPECT_THAT(again.front()->output, ElementsAre(2.0F));
  });
}

TEST(SetEngine, RanksThatHaveJoinedSupplyZerosUntilAllHave) {
  HandDrivenSet::run(2, [](HandDrivenSet& set) {
    JoinEnd early, late;
    set[1].join(&early, JoinEnd::on_done);
    const auto alone = set.submit(0, "x", {5.0F});
    set.until_done(alone);
    EXPECT_THAT(alone.front()->output, ElementsAre(5.0F));
    EXPECT_EQ(early.times, 0) << "one rank has not joined";
    set[0].join(&late, JoinEnd::on_done);
    set.until([&] { return early.times + late.times == 2; });
    for (const JoinEnd& end : {early, late}) {
      EXPECT_EQ(end.times, 1);
      EXPECT_EQ(end.error, std::nullopt);
      EXPECT_EQ(end.last_rank, 1) << "of the job";
    }
  });
}

/// A batch that waits for memory, because the callbacks do not run yet.
TEST(SetEngine, RanksLeaveAfterTheirAgreedRequests) {
  HandDrivenSet::run(2, [](HandDrivenSet& set) {
    RequestOptions rows;
    rows.kind = RequestKind::kAllgather;
    std::vector<PendingTensors> pending;
    for (std::size_t i = 0; i < 2; ++i) pending.push_back(set.submit(i, "rows", {1.0F}, rows));
    set.until([&] { return set[0].has_batches() || set[1].has_batches(); });
    for (std::size_t i = 0; i < 2; ++i) set[i].leave(Departure::kLeavesJob);
    for (int pass = 0; pass < 1000; ++pass) {
      for (std::size_t i = 0; i < 2; ++i) {
        set[i].advance(/*blocked=*/false, set.now);
        ASSERT_FALSE(set[i].has_left()) << "member " << i << " has left too early";
      }
    }
    set.until([&] { return set[0].has_left() && set[1].has_left(); });
    for (const auto& each : pending) EXPECT_THAT(each.front()->output, ElementsAre(1.0F, 1.0F));
    const auto refused = set.submit(0, "later", {1.0F});
    set.member(0).run_due();
    expect_failed(refused, ErrorKind::kPeerLost, "has left the job");
  });
}

TEST(SetEngine, RequestsAwaitingALeavingRankFailAndNameTheRank) {
  HandDrivenSet::run(2, [](HandDrivenSet& set) {
    const auto alone = set.submit(0, "alone", {1.0F});
    JoinEnd joining;
    set[0].join(&joining, JoinEnd::on_done);
    set[1].leave(Departure::kLeavesJob);
    set.until_done(alone);
    expect_failed(alone, ErrorKind::kPeerLost, "rank 2 ");  // of the job
    EXPECT_EQ(joining.times, 1);
    EXPECT_TRUE(joining.error.has_value());
    EXPECT_FALSE(set[0].has_left()) << "it has not left itself";
    set[0].leave(Departure::kSetRemoved);
    set.until([&] { return set[0].has_left() && set[1].has_left(); });
  });
}

/// One request is in a negotiation, one in a batch, one in the list of changes, and a rank is joining.
TEST(SetEngine, EverythingPendingFailsWithTheJob) {
  HandDrivenSet::run(2, [](HandDrivenSet& set) {
    std::vector<PendingTensors> moving, changes;
    RequestOptions change;
    change.kind = RequestKind::kRemoveSet;
    change.arguments = {7};
    for (std::size_t i = 0; i < 2; ++i) {
      moving.push_back(set.submit(i, "moving", std::vector<float>(1 << 19, 1.0F)));
      changes.push_back(set.submit(i, "change", {1.0F}, change));
    }
    set.until([&] { return set[0].has_batches() || set[1].has_batches(); });
    JoinEnd joining;
    set[0].join(&joining, JoinEnd::on_done);
    const auto negotiating = set.submit(0, "negotiating", {1.0F});
    set.member(0).advance(set.now);
    set.abort("the data is gone");
    const RequestError gone{ErrorKind::kPeerLost, "the data is gone"};
    for (std::size_t i = 0; i < 2; ++i) {
      const auto go_on = [&] {
        while (set[i].is_active()) set.member(i).advance(set.now);
      };
      EXPECT_THROW(go_on(), PeerLost);
      EXPECT_TRUE(set[i].is_active());
      set[i].fail(gone);
      set.member(i).run_due();
      EXPECT_FALSE(set[i].is_active());
      EXPECT_EQ(set[i].waits_since(), std::nullopt);
      EXPECT_FALSE(set[i].next_set_change().has_value());
      expect_failed(moving[i], gone.kind, gone.text);
      expect_failed(changes[i], gone.kind, gone.text);
    }
    expect_failed(negotiating, gone.kind, gone.text);
    EXPECT_EQ(joining.times, 1);
    EXPECT_EQ(joining.error->text, gone.text);
  });
}

TEST(SetEngine, HandsOutChangesOfProcessSetsOneByOne) {
  HandDrivenSet::run(2, [](HandDrivenSet& set) {
    std::vector<PendingTensors> pending;
    for (const auto kind : {RequestKind::kAddSet, RequestKind::kRemoveSet}) {
      RequestOptions change;
      change.kind = kind;
      change.arguments = {1};
      for (std::size_t i = 0; i < 2; ++i) pending.push_back(set.submit(i, std::string(name(kind)), {1.0F}, change));
    }
    std::vector<std::vector<std::string>> changes(2);
    set.until([&] {
      for (std::size_t i = 0; i < 2; ++i) {
        while (const auto change = set[i].next_set_change()) {
          EXPECT_NE(change->local, nullptr) << "its callback is the owner's of the sets";
          changes[i].push_back(change->spec->name);
        }
      }
      return changes[0].size() + changes[1].size() == 4;
    });
    EXPECT_EQ(changes[0], changes[1]);
    EXPECT_THAT(changes[0], UnorderedElementsAre(name(RequestKind::kAddSet), name(RequestKind::kRemoveSet)));
    EXPECT_FALSE(pending.front().front()->done.load());
  });
}

/// On a device, collectives of the new set must not come before those of a batch that was agreed earlier.
TEST(SetEngine, HandsOutAChangeOnceEarlierBatchesHaveStarted) {
  HandDrivenSet::run(2, [](HandDrivenSet& set) {
    RequestOptions rows, change;
    rows.kind = RequestKind::kAllgather;
    change.kind = RequestKind::kAddSet;
    change.arguments = {1};
    std::vector<PendingTensors> gathers, changes;
    for (std::size_t i = 0; i < 2; ++i) gathers.push_back(set.submit(i, "rows", {1.0F}, rows));
    // Member 0 asks for memory, and does not get it yet.
    const auto advance = [&] {
      set[0].advance(/*blocked=*/false, set.now);
      set.member(1).advance(set.now);
    };
    while (!set[0].has_batches() || !set[1].has_batches()) advance();
    for (std::size_t i = 0; i < 2; ++i) changes.push_back(set.submit(i, "change", {1.0F}, change));
    while (!set[1].next_set_change()) advance();
    for (int pass = 0; pass < 1000; ++pass) {
      advance();
      ASSERT_FALSE(set[0].next_set_change().has_value());
    }
    set.member(0).run_due();
    while (!set[0].next_set_change()) advance();
    set.until_done(gathers[0]);
    set.until_done(gathers[1]);
  });
}

TEST(SetEngine, SendsNothingWhileIdleAndAnswersOnlyRequests) {
  HandDrivenSet::run(2, [](HandDrivenSet& set) {
    const auto expect_idle = [&] {
      for (std::size_t i = 0; i < 2; ++i) {
        set.expect_still(i);
        EXPECT_FALSE(set[i].is_active());
        EXPECT_EQ(set[i].next_wakeup(), Clock::time_point::max());
      }
    };
    expect_idle();
    const auto first = set.submit(0, "x", {1.0F});
    EXPECT_LE(set[0].next_wakeup(), set.now);
    EXPECT_TRUE(set.member(0).advance(set.now));
    EXPECT_TRUE(set[0].is_active());
    set.expect_still(0);  // it waits for its peer
    set.expect_still(1);  // nothing can be ready without it
    const auto second = set.submit(1, "x", {1.0F});
    set.until_done(first);
    set.until_done(second);
    expect_idle();
    set.now += std::chrono::hours(1);
    expect_idle();
  });
}

/// A rank that has announced something answers a negotiation that has nothing new from it.
TEST(SetEngine, AnswersNegotiationsWhileARequestIsPending) {
  HandDrivenSet::run(2, [](HandDrivenSet& set) {
    std::vector<PendingTensors> early, late;
    for (std::size_t i = 0; i < 2; ++i) early.push_back(set.submit(i, i == 0 ? "x" : "y", {1.0F}));
    for (int pass = 0; pass < 1000; ++pass) set.member(static_cast<std::size_t>(pass % 2)).advance(set.now);
    late.push_back(set.submit(0, "y", {1.0F}));
    set.until_done(early[1]);
    set.until_done(late[0]);
    EXPECT_FALSE(early[0].front()->done.load());
    late.push_back(set.submit(1, "x", {1.0F}));
    set.until_done(early[0]);
    set.until_done(late[1]);
  });
}

TEST(SetEngine, ReportsWaitsWithNamesRanksAndTimes) {
  HandDrivenSet::run(3, [](HandDrivenSet& set) {
    EXPECT_EQ(set[0].waits_since(), std::nullopt);
    std::vector<PendingTensors> pending;
    const auto submitted = set.now;
    pending.push_back(set.submit(0, "x", {1.0F}));
    EXPECT_EQ(set[0].waits_since(), submitted);
    EXPECT_EQ(set[0].describe_waiting(), "allreduce 'x' f32[1] sum");
    set.now += std::chrono::seconds(5);
    pending.push_back(set.submit(1, "x", {1.0F}));
    for (int pass = 0; pass < 1000; ++pass) set.member(static_cast<std::size_t>(pass % 2)).advance(set.now);
    EXPECT_EQ(set[0].waits_since(), submitted);
    EXPECT_EQ(set[1].waits_since(), set.now);
    // Its rank in the job.
    EXPECT_THAT(set[0].describe_waiting(),
                AllOf(HasSubstr("allreduce 'x' f32[1] sum; not there yet: rank 3 ("), Not(HasSubstr("rank 2"))));
    EXPECT_EQ(set[2].waits_since(), std::nullopt);
    pending.push_back(set.submit(2, "x", {1.0F}));
    for (const auto& each : pending) set.until_done(each);
    EXPECT_EQ(set[0].waits_since(), std::nullopt);
  });
}

/// A join is no request, but the negotiation that it waits in has a beginning.
TEST(SetEngine, WaitsSinceItsNegotiationBegan) {
  HandDrivenSet::run(2, [](HandDrivenSet& set) {
    JoinEnd joining;
    set[0].join(&joining, JoinEnd::on_done);
    EXPECT_TRUE(set.member(0).advance(set.now));
    const auto began = set.now;
    set.now += std::chrono::seconds(1);
    const auto pending = set.submit(0, "x", {1.0F});
    EXPECT_EQ(set[0].waits_since(), began);
    set[1].leave(Departure::kLeavesJob);
    set[0].leave(Departure::kLeavesJob);
    set.until([&] { return set[0].has_left() && set[1].has_left(); });
  });
}

/// It matters to its peers only, which say themselves that they wait.
TEST(SetEngine, ARefusalDoesNotWait) {
  HandDrivenSet::run(2, [](HandDrivenSet& set) {
    RequestOptions refused;
    refused.kind = RequestKind::kRefused;
    refused.about = "its shape is wrong";
    const auto refusal = set.submit(0, "x", {1.0F}, refused);
    set.member(0).advance(set.now);
    EXPECT_EQ(set[0].waits_since(), std::nullopt);
    const auto request = set.submit(1, "x", {1.0F});
    EXPECT_EQ(set[1].waits_since(), set.now);
    set.until_done(request);
    expect_failed(request, ErrorKind::kMismatch, "its shape is wrong");
    set.until_done(refusal);
  });
}

/// A peer that is not of this program, or whose memory is damaged.
TEST(NegotiationExchange, RefusesImpossibleLengths) {
  for (const std::int64_t length : {std::int64_t{-1}, Announcements::kMaxBytes + 1}) {
    run_replicas(2, [&](Communicator& ranks) {
      Communicator control = ranks.duplicate(SetEngine::kControl);
      Communicator data = ranks.duplicate(SetEngine::kData);
      if (ranks.rank() == 1) {
        std::vector<std::uint8_t> bytes{1}, negotiation{1, 1};
        std::vector<std::int64_t> own{length}, all{0, 0};
        data.barrier();
        control.allreduce(bytes, ReduceOp::kMin);
        control.allreduce(negotiation, ReduceOp::kMin);
        control.allgather(own, all);
        return;
      }
      Negotiator negotiator(0, {"rank 0", "rank 1"}, {});
      NegotiationExchange exchange(control, data);
      RequestSpec spec;
      spec.name = "x";
      (void)negotiator.submit({1, spec, Waiting::kCaller}, Clock::now());
      exchange.begin(negotiator.open(false, Clock::now()), Clock::now());
      const auto run_to_its_end = [&] {
        while (!exchange.is_idle()) (void)exchange.advance(negotiator, Clock::now());
      };
      try {
        run_to_its_end();
        ADD_FAILURE() << length << " bytes were believed";
      } catch (const TransportError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1 "), HasSubstr(std::to_string(length) + " bytes")));
      }
    });
  }
}

}  // namespace
}  // namespace farandole::testing
