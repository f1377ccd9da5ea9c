// SPDX-License-Identifier: Apache-2.0
// Names that are used repeatedly, and requests that are invalid on one rank.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "checked_request.h"
#include "engine_harness.h"
#include "variable.h"

namespace farandole::testing {
namespace {

using test::Variable;

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

Client::Options by_order() {
  Client::Options options;
  options.by_order = true;
  return options;
}

void refuse(TensorEngine& engine, const std::string& name, const std::string& why, std::uint64_t generation = 0) {
  farandole_request request{};
  request.struct_bytes = sizeof request;
  request.name = name.c_str();
  request.generation = generation;
  engine.refuse(refusal_of(request, why));
}

/// The n-th of a name meets the n-th of all ranks, whatever they wait for first.
TEST(EngineNames, RequestsOfOneNameComeInTheOrderOfTheirCalls) {
  run_engines(3, [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank();
    constexpr std::size_t kCount = 40;
    std::vector<Client::Tensors> pending;
    for (std::size_t n = 0; n < kCount; ++n) {
      pending.push_back(client.submit("again", {std::vector<float>(1 + n % 3, static_cast<float>(n))}, by_order()));
      if (rank == 1 && n % 4 == 0) client.wait(pending.back());
    }
    std::vector<std::size_t> order(kCount);
    std::iota(order.begin(), order.end(), 0);
    if (rank == 2) std::reverse(order.begin(), order.end());
    for (const std::size_t n : order) {
      client.wait(pending[n]);
      ASSERT_FALSE(pending[n].front()->error) << pending[n].front()->error->text;
      EXPECT_THAT(pending[n].front()->output, Each(3.0F * static_cast<float>(n)));
    }
  });
}

/// They are alike, ready together, and reduced together; but the next time others come under their names.
TEST(EngineNames, RequestsByOrderMakeNoPlan) {
  run_engines(2, [](TensorEngine& engine, Client& client) {
    for (int turn = 0; turn < 12; ++turn) {
      std::vector<Client::Tensors> pending;
      for (int i = 0; i < 3; ++i) {
        pending.push_back(client.submit("n" + std::to_string((3 * turn + i) % 7), {{1.0F}}, by_order()));
      }
      for (const auto& each : pending) client.wait(each);
    }
    EXPECT_EQ(engine.counters().broken_buckets, 0U);
  });
}

TEST(EngineNames, DifferentAboutTextsAreAMismatch) {
  run_engines(2, [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank();
    for (int turn = 0; turn < 2; ++turn) {
      Client::Options options;
      options.about = "the same";
      (void)client.run("x", {1.0F}, options);
      options.about = "of rank " + std::to_string(rank);
      EXPECT_THAT(mismatch_of([&] { (void)client.run("x", {1.0F}, options); }),
                  AllOf(HasSubstr("(of rank 0)"), HasSubstr("(of rank 1)")));
    }
  });
}

TEST(EngineNames, RefusalReachesThoseThatAsk) {
  run_engines(3, [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank();
    for (const bool known : {false, true}) {
      if (known) (void)client.allreduce("x", {1.0F});
      if (rank == 1) {
        refuse(engine, "x", "there is no such root");
      } else {
        EXPECT_THAT(mismatch_of([&] { (void)client.allreduce("x", {1.0F}); }),
                    AllOf(HasSubstr("rank 1"), HasSubstr("an invalid request 'x' (there is no such root)"),
                          HasSubstr("allreduce 'x' f32[1] sum")));
      }
      // Rank 1's request is held until the other ranks have received the refusal.
      EXPECT_THAT(client.allreduce("x", {1.0F}), Each(3.0F));
    }
  });
}

TEST(EngineNames, EveryRefusalCounts) {
  run_engines(2, [](TensorEngine& engine, Client& client) {
    for (int turn = 0; turn < 5; ++turn) {
      if (engine.communicator().rank() == 1) {
        refuse(engine, "x", "first");
        refuse(engine, "x", "second");
      } else {
        EXPECT_THAT(mismatch_of([&] { (void)client.allreduce("x", {1.0F}); }), HasSubstr("first"));
        EXPECT_THAT(mismatch_of([&] { (void)client.allreduce("x", {1.0F}); }), HasSubstr("second"));
      }
      EXPECT_THAT(client.allreduce("x", {1.0F}), Each(2.0F));
    }
  });
}

TEST(EngineNames, RefusalOnEveryRankHasNoEffect) {
  run_engines(3, [](TensorEngine& engine, Client& client) {
    refuse(engine, "x", "the same");
    EXPECT_THAT(client.allreduce("x", {1.0F}), Each(3.0F));
    refuse(engine, "x", "of rank " + std::to_string(engine.communicator().rank()));
    EXPECT_THAT(client.allreduce("x", {1.0F}), Each(3.0F));
  });
}

/// The rank may have tried for itself: nobody waits, nothing is late, and the job ends well.
TEST(EngineNames, RefusalThatNobodyAsksForDisturbsNothing) {
  const Variable warn_after("FARANDOLE_WARN_AFTER", "0.05");
  const Variable timeout("FARANDOLE_TIMEOUT", "0.1");
  ::testing::internal::CaptureStderr();
  run_engines(2, [](TensorEngine& engine, Client& client) {
    if (engine.communicator().rank() == 1) refuse(engine, "alone", "it was tried");
    (void)client.allreduce("all", {1.0F});  // it may have been announced with this one
    const auto end = Clock::now() + std::chrono::milliseconds(400);
    while (Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_THAT(client.allreduce("all", {1.0F}), Each(2.0F));
  });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(EngineNames, RefusalOfAStepFailsIt) {
  run_engines(2, [](TensorEngine& engine, Client& client) {
    Client::Options step;
    step.generation = engine.generation(0);
    const auto other = client.submit("other", {{1.0F}}, step);
    if (engine.communicator().rank() == 1) {
      refuse(engine, "x", "no", step.generation);
    } else {
      EXPECT_THAT(mismatch_of([&] { (void)client.run("x", {1.0F}, step); }), HasSubstr("(no)"));
    }
    client.wait(other);  // agreed on before, or failed with the step
    EXPECT_THAT(client.allreduce("next", {1.0F}), Each(2.0F));
    EXPECT_EQ(engine.generation(0), step.generation + 1);
  });
}

TEST(EngineNames, ProcessSetsThatOneRankCannotMake) {
  run_engines(2, [](TensorEngine& engine, Client&) {
    if (engine.communicator().rank() == 1) {
      EXPECT_THROW((void)engine.add_process_set({7}), InvalidArgument);
      EXPECT_THROW(engine.remove_process_set(99), InvalidArgument);
    } else {
      EXPECT_THAT(mismatch_of([&] { (void)engine.add_process_set({0}); }), HasSubstr("these are [7]"));
      EXPECT_THAT(mismatch_of([&] { (void)engine.add_process_set({0}); }), HasSubstr("process set 99"));
    }
    EXPECT_EQ(engine.add_process_set({1}), 1);
  });
}

void expect_failures(Client& client, const std::vector<Client::Tensors>& pending, ErrorKind kind) {
  for (const auto& each : pending) {
    client.wait(each);
    ASSERT_TRUE(each.front()->error.has_value());
    EXPECT_EQ(each.front()->error->kind, kind) << each.front()->error->text;
  }
}

std::vector<Client::Tensors> submit_often(Client& client, int process_set) {
  Client::Options options = by_order();
  options.process_set = process_set;
  std::vector<Client::Tensors> pending;
  for (int i = 0; i < 3; ++i) pending.push_back(client.submit("never", {{1.0F}}, options));
  return pending;
}

TEST(EngineNames, RequestsHeldForTheirNameEndWithTheSet) {
  run_engines(3, [](TensorEngine& engine, Client& client) {
    const int set = engine.add_process_set({0, 1});
    std::vector<Client::Tensors> pending;
    if (engine.communicator().rank() == 1) pending = submit_often(client, set);
    engine.remove_process_set(set);
    expect_failures(client, pending, ErrorKind::kInvalidArgument);
  });
}

TEST(EngineNames, RequestsHeldForTheirNameEndWithTheJob) {
  run_replicas(2, [](Communicator& communicator) {
    TensorEngine engine(communicator);
    Client client(engine);
    std::vector<Client::Tensors> pending;
    if (communicator.rank() == 1) pending = submit_often(client, 0);
    engine.leave();
    expect_failures(client, pending, ErrorKind::kPeerLost);
  });
}

}  // namespace
}  // namespace farandole::testing
