// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <latch>
#include <thread>

#include "engine_harness.h"
#include "sanitizers.h"
#include "variable.h"

namespace farandole::testing {
namespace {

using test::Variable;

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Every rank learns of it, nothing changes, and the job goes on.
TEST(EngineErrors, DisagreementsReachAllRanks) {
  std::vector<std::string> texts(3);
  run_engines(3, [&](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank();
    const bool odd = rank == 1;
    for (const bool known : {false, true}) {
      if (known) (void)client.allreduce("x", {1.0F, 2.0F});
      const std::string text = mismatch_of([&] { (void)client.allreduce("x", std::vector<float>(odd ? 3 : 2, 1.0F)); });
      EXPECT_THAT(text, HasSubstr("f32[3]"));
      EXPECT_THAT(text, HasSubstr("f32[2]"));
      texts[static_cast<std::size_t>(rank)] = text;
    }
    Client::Options other;
    other.op = odd ? ReduceOp::kMax : ReduceOp::kSum;
    EXPECT_THAT(mismatch_of([&] { (void)client.run("op", {1.0F}, other); }), HasSubstr("max"));
    other = {};
    other.kind = odd ? RequestKind::kAllgather : RequestKind::kAllreduce;
    EXPECT_THAT(mismatch_of([&] { (void)client.run("kind", {1.0F}, other); }), HasSubstr("allgather"));
    other = {};
    other.kind = RequestKind::kBroadcast;
    other.root = odd ? 1 : 0;
    EXPECT_THAT(mismatch_of([&] { (void)client.run("root", {1.0F}, other); }), HasSubstr("root 1"));
    EXPECT_THAT(mismatch_of([&] { (void)client.allreduce(odd ? "left" : "right", {1.0F}); }), HasSubstr("'left'"));
    EXPECT_THAT(client.allreduce("x", {1.0F, 1.0F}), Each(3.0F)) << "the job goes on";
  });
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
}

/// The name may be new, or one that all ranks know. The collectives by which ranks agree say nothing of their
/// own.
TEST(EngineErrors, WarningAndTimeoutNameTensorAndMissingRank) {
  const Variable warn_after("FARANDOLE_WARN_AFTER", "0.05");
  const Variable timeout("FARANDOLE_TIMEOUT", "1.5");
  for (const bool known : {false, true}) {
    std::latch timed_out(1);
    ::testing::internal::CaptureStderr();
    EXPECT_THROW(run_engines(2,
                             [&](TensorEngine& engine, Client& client) {
                               if (known) (void)client.allreduce("x", {1.0F});
                               if (engine.communicator().rank() == 1) {
                                 timed_out.wait();
                                 (void)client.allreduce("x", {1.0F});
                               }
                               try {
                                 (void)client.allreduce("x", {1.0F});
                               } catch (const Timeout& error) {
                                 EXPECT_THAT(error.what(), AllOf(HasSubstr("allreduce 'x' f32[1] sum"),
                                                                 HasSubstr("not there yet: rank 1")));
                                 timed_out.count_down();
                                 throw;
                               }
                             }),
                 Timeout);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("s for allreduce 'x' f32[1] sum"), Not(HasSubstr("u8 elements"))));
  }
}

/// Negotiations do not need the comparison of calls, but ranks that have no reason to begin one must see them.
TEST(EngineErrors, NegotiationsAreAnsweredWithoutComparisons) {
  const Variable check("FARANDOLE_CHECK", "off");
  for (const char* algorithm : {"ring", "binomial_tree", "auto"}) {
    const Variable forced("FARANDOLE_ALLREDUCE", algorithm);
    run_engines(2, [&](TensorEngine& engine, Client& client) {
      const bool first = engine.communicator().rank() == 0;
      for (const std::string negotiation : {"1", "2"}) {
        const Client::Tensors early = client.submit((first ? "x" : "y") + negotiation, {{1.0F}}, {});
        if (first) (void)client.allreduce("y" + negotiation, {1.0F});
        if (!first) client.wait(early);
        if (!first) (void)client.allreduce("x" + negotiation, {1.0F});
        client.wait(early);
      }
    });
  }
}

TEST(EngineErrors, DeadlockOverKnownNamesIsReported) {
  run_engines(2, [](TensorEngine& engine, Client& client) {
    (void)client.allreduce("a", {1.0F});
    (void)client.allreduce("b", {1.0F});
    const bool first = engine.communicator().rank() == 0;
    EXPECT_THAT(mismatch_of([&] { (void)client.allreduce(first ? "a" : "b", {1.0F}); }), HasSubstr("'a'"));
    EXPECT_THAT(client.allreduce("a", {1.0F}), Each(2.0F));
  });
}

// Ranks stand still after a tenth of a second.
constexpr const char* kWarnSoon = "0.6";

/// The deadlock of a framework's function: its other parts could still submit requests.
TEST(EngineErrors, DeadlockOfProgramsIsReported) {
  const Variable warn_after("FARANDOLE_WARN_AFTER", kWarnSoon);
  for (const Waiting of_last : {Waiting::kProgram, Waiting::kCaller}) {
    run_engines(3, [&](TensorEngine& engine, Client& client) {
      const bool last = engine.communicator().rank() == 2;
      Client::Options options;
      options.waiting = last ? of_last : Waiting::kProgram;
      options.generation = options.waiting == Waiting::kProgram ? engine.generation(0) : 0;
      const auto pending = client.submit(last ? "b" : "a", {{1.0F}}, options);
      client.wait(pending);
      ASSERT_TRUE(pending.front()->error.has_value());
      EXPECT_EQ(pending.front()->error->kind, ErrorKind::kMismatch);
      EXPECT_THAT(pending.front()->error->text,
                  AllOf(HasSubstr("every rank waits"), HasSubstr("'a'"), HasSubstr("'b'")));
      EXPECT_THAT(client.allreduce("a", {1.0F}), Each(3.0F)) << "the job goes on";
    });
  }
}

/// The rank may have submitted a request for which no thread of this test waits.
TEST(EngineErrors, ARankThatWaitsForSomethingElseIsWaitedFor) {
  const Variable warn_after("FARANDOLE_WARN_AFTER", kWarnSoon);
  run_engines(2, [](TensorEngine& engine, Client& client) {
    const bool late = engine.communicator().rank() == 1;
    Client::Options options;
    options.waiting = late ? Waiting::kNobody : Waiting::kProgram;
    const auto first = client.submit(late ? "b" : "a", {{1.0F}}, options);
    if (late) std::this_thread::sleep_for(milliseconds(1500));  // what is waited for
    if (!late) client.wait(first);
    const auto second = client.submit(late ? "a" : "b", {{1.0F}}, options);
    client.wait(first);
    client.wait(second);
    EXPECT_FALSE(first.front()->error.has_value()) << first.front()->error->text;
  });
}

/// A request is held until the earlier request of the same name has ended.
TEST(EngineErrors, ACallerThatIsKeptBackWaitsToo) {
  run_engines(2, [](TensorEngine& engine, Client& client) {
    const bool first = engine.communicator().rank() == 0;
    Client::Options options;
    options.by_order = true;
    if (!first) {
      EXPECT_THAT(mismatch_of([&] { (void)client.allreduce("b", {1.0F}); }), HasSubstr("for 'n'; rank 1"));
      (void)client.run("n", {1.0F}, options);
      return;
    }
    const auto early = client.submit("n", {{1.0F}}, options);
    options.waiting = Waiting::kCaller;
    const auto pending = client.submit("n", {{1.0F}}, options);
    client.wait(early);
    EXPECT_TRUE(early.front()->error.has_value());
    client.wait(pending);
    EXPECT_FALSE(pending.front()->error.has_value());
  });
}

void expect_of_failed_step(const Client::Tensors& pending) {
  ASSERT_TRUE(pending.front()->error.has_value());
  EXPECT_EQ(pending.front()->error->kind, ErrorKind::kMismatch);
  EXPECT_THAT(pending.front()->error->text,
              AllOf(HasSubstr("'late' is of a step that has failed"), HasSubstr("'odd'")));
}

/// The last rank disagrees about "odd" before it comes to "late", which the others have submitted.
TEST(EngineErrors, PendingRequestsFailWithTheirStepOnAllRanks) {
  run_engines(3, [](TensorEngine& engine, Client& client) {
    const bool last = engine.communicator().rank() == 2;
    for (int turn = 0; turn < 6; ++turn) {
      Client::Options step;
      step.generation = engine.generation(0);
      const auto start = Clock::now();
      Client::Tensors late;
      if (!last) late = client.submit("late", {{-1.0F}}, step);
      (void)client.allreduce("all have come so far", {1.0F});
      const auto odd = client.submit("odd", {std::vector<float>(last ? 2 : 1)}, step);
      client.wait(odd);
      ASSERT_TRUE(odd.front()->error.has_value());
      if (last) late = client.submit("late", {{-1.0F}}, step);  // as if it had been about to start
      client.wait(late);
      EXPECT_LT(Seconds(Clock::now() - start).count(), 1.0 * test::kSlowness);
      expect_of_failed_step(late);
      // The next step; whoever comes first meets nothing of the last.
      step.generation = engine.generation(0);
      if (last == (turn % 2 == 0)) std::this_thread::yield();
      const auto next = client.submit("late", {{1.0F}}, step);
      client.wait(next);
      ASSERT_FALSE(next.front()->error.has_value()) << next.front()->error->text;
      EXPECT_THAT(next.front()->output, Each(3.0F));
    }
  });
}

TEST(EngineErrors, StepsOfAnotherProcessSetGoOn) {
  run_engines(3, [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank();
    const int set = engine.add_process_set({0, 1});
    EXPECT_EQ(engine.generation(set + 1), 0U) << "there is no such set";
    Client::Options all, some;
    all.generation = engine.generation(0);
    const auto late = client.submit("late", {{1.0F}}, all);
    if (rank < 2) {
      some.process_set = set;
      some.generation = engine.generation(set);
      const auto odd = client.submit("odd", {std::vector<float>(rank == 0 ? 2 : 1)}, some);
      client.wait(odd);
      EXPECT_TRUE(odd.front()->error.has_value());
      EXPECT_EQ(engine.generation(set), some.generation + 1);
    }
    client.wait(late);
    EXPECT_FALSE(late.front()->error.has_value());
    EXPECT_EQ(engine.generation(0), all.generation);
    all.generation += 1;
    EXPECT_THROW((void)client.submit("of the future", {{1.0F}}, all), InvalidArgument);
  });
}

TEST(EngineErrors, PendingNameIsRefused) {
  run_engines(2, [](TensorEngine& engine, Client& client) {
    std::atomic<bool> tried{false};
    if (engine.communicator().rank() == 0) {
      const auto pending = client.submit("twice", {{1.0F}}, {});
      EXPECT_THROW((void)client.submit("twice", {{1.0F}}, {}), DuplicateName);
      (void)client.allreduce("go", {0.0F});
      client.wait(pending);
    } else {
      (void)client.allreduce("go", {0.0F});
      (void)client.allreduce("twice", {1.0F});
    }
  });
}

TEST(EngineErrors, RankThatLeavesIsNamed) {
  run_replicas(2, [](Communicator& communicator) {
    TensorEngine engine(communicator);
    Client client(engine);
    (void)client.allreduce("together", {1.0F});
    if (communicator.rank() == 0) {
      try {
        (void)client.allreduce("alone", {1.0F});
        ADD_FAILURE() << "rank 1 took part in what it did not submit";
      } catch (const PeerLost& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 1"));
      }
    }
    engine.leave();
  });
}

TEST(EngineErrors, AbortFailsAllRanksWithItsText) {
  EXPECT_THROW(run_replicas(2,
                            [](Communicator& communicator) {
                              TensorEngine engine(communicator);
                              Client client(engine);
                              (void)client.allreduce("together", {1.0F});
                              if (communicator.rank() == 1) engine.abort("the data is gone");
                              try {
                                (void)client.allreduce("after", {1.0F});
                              } catch (const PeerLost& error) {
                                EXPECT_THAT(error.what(), HasSubstr("the data is gone"));
                                throw;
                              }
                            }),
               PeerLost);
}

/// The engine holds no lock during a callback: other threads advance the engine, and a callback may call any function.
TEST(EngineCallbacks, MayUseTheEngineWhileTheyAllocate) {
  run_engines(2, [](TensorEngine& engine, Client& client) {
    Client::Options gather;
    gather.kind = RequestKind::kAllgather;
    gather.while_allocating = [&](Pending&) {
      EXPECT_GT(engine.counters().requests, 0U);
      std::jthread([&] { EXPECT_GT(engine.counters().negotiations, 0U); }).join();
    };
    EXPECT_THAT(client.run("x", {1.0F, 2.0F}, gather), ElementsAre(1.0F, 2.0F, 1.0F, 2.0F));
    Client::Options scatter = gather;
    scatter.kind = RequestKind::kReduceScatter;
    EXPECT_THAT(client.run("y", {1.0F, 2.0F}, scatter), ElementsAre(engine.communicator().rank() == 0 ? 2.0F : 4.0F));
  });
}

/// The job fails while a thread is in `allocate`: that tensor's `done` comes when it has returned.
TEST(EngineCallbacks, DoneComesAfterAllocateAlsoWhenTheJobFailsMeanwhile) {
  run_engines(2, [](TensorEngine& engine, Client& client) {
    Client::Options gather;
    gather.kind = RequestKind::kAllgather;
    Client::Tensors lonely;
    if (engine.communicator().rank() == 0) {
      lonely = client.submit("of rank 0 only", {{1.0F}}, {});
      gather.while_allocating = [&](Pending& self) {
        engine.abort("no room");
        std::jthread([&] { client.wait(lonely); }).join();
        EXPECT_FALSE(self.done) << "its memory is still being allocated";
      };
    }
    const Client::Tensors pending = client.submit("x", {{1.0F, 2.0F}}, gather);
    client.wait(pending);
    ASSERT_TRUE(pending.front()->error.has_value());
    EXPECT_THAT(pending.front()->error->text, HasSubstr("no room"));
  });
}

}  // namespace
}  // namespace farandole::testing
