// SPDX-License-Identifier: Apache-2.0
// Start and end of engines, process sets and jobs while requests are in flight.
#include <sys/resource.h>

#include <chrono>
#include <limits>
#include <numeric>
#include <thread>

#include "engine_harness.h"

namespace farandole::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr ErrorKind kRemoved = ErrorKind::kInvalidArgument;

struct JoinAnswer {
  std::atomic<bool> done{false};
  std::optional<ErrorKind> error;
  int last = -1;
  static void on_done(void* context, const farandole_error* error, std::int32_t last) {
    auto& self = *static_cast<JoinAnswer*>(context);
    if (error != nullptr) self.error = error->kind;
    self.last = last;
    self.done.store(true);
  }
};

TEST(EngineLifetime, EnginesComeAndGo) {
  for (int i = 0; i < 200; ++i) {
    run_engines(1 + i % 3, [&](TensorEngine&, Client& client) {
      if (i % 2 == 0) (void)client.allreduce("once", {1.0F});
    });
  }
}

TEST(EngineLifetime, ProcessSetsAreRefusedWhenTheirIdsAreExhausted) {
  run_replicas(2, [](Communicator& communicator) {
    constexpr int kLast = std::numeric_limits<std::int32_t>::max() - 1;
    TensorEngine engine(communicator, kLast);
    Client client(engine);
    EXPECT_EQ(engine.add_process_set({0}), kLast);
    engine.remove_process_set(kLast);
    EXPECT_EQ(engine.add_process_set({0, 1}), FARANDOLE_GLOBAL_SET) << "a set that there is needs no id";
    try {
      (void)engine.add_process_set({1});
      FAIL() << "there is no id for it";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("no ids for more"));
    }
    EXPECT_THAT(client.allreduce("goes on", {1.0F}), Each(2.0F));
    engine.leave();
  });
}

TEST(EngineLifetime, AgreedRequestsFinishBeforeTheLastRankLeaves) {
  for (int i = 0; i < 40; ++i) {
    run_replicas(3, [&](Communicator& communicator) {
      TensorEngine engine(communicator);
      Client client(engine);
      Client::Options rows;
      rows.kind = RequestKind::kAllgather;
      std::vector<Client::Tensors> pending;
      pending.push_back(client.submit("large", {std::vector<float>(200'000, 1.0F)}, {}));
      for (const char* name : {"x", "y", "z"}) {
        pending.push_back(client.submit(name, {{1.0F}}, {}));
        pending.push_back(client.submit(name + std::string(" rows"), {{1.0F}, {2.0F}}, rows));
      }
      engine.leave();
      for (const auto& tensors : pending) {
        client.wait(tensors);
        for (const auto& tensor : tensors) {
          if (tensor->error) {
            EXPECT_EQ(tensor->error->kind, ErrorKind::kPeerLost);
          } else if (tensor->shape.front() != 3 || tensors.size() == 1) {
            EXPECT_THAT(tensor->output, Each(3.0F));
          }
        }
      }
    });
  }
}

TEST(EngineLifetime, ThreadsMaySubmitWhileTheRankLeaves) {
  for (int i = 0; i < 20; ++i) {
    run_replicas(2, [](Communicator& communicator) {
      TensorEngine engine(communicator);
      Client client(engine);
      std::atomic<int> submitted{0};
      std::vector<Client::Tensors> pending;
      std::thread other([&] {
        for (int n = 0;; ++n) {
          pending.push_back(client.submit("n" + std::to_string(n), {{1.0F}}, {}));
          submitted.fetch_add(1);
          client.wait(pending.back());
          if (pending.back().front()->error) return;
          EXPECT_THAT(pending.back().front()->output, Each(2.0F));
        }
      });
      while (submitted.load() < 10) std::this_thread::yield();
      engine.leave();
      other.join();
      EXPECT_EQ(pending.back().front()->error->kind, ErrorKind::kPeerLost);
    });
  }
}

TEST(EngineLifetime, ProcessSetsMayBeMadeWhileTheRankLeaves) {
  for (int i = 0; i < 30; ++i) {
    run_replicas(2, [&](Communicator& communicator) {
      TensorEngine engine(communicator);
      std::atomic<int> made{0};
      std::thread other([&] {
        const auto make_many = [&] {
          for (;; made.fetch_add(1)) {
            const int set = engine.add_process_set({1});
            engine.remove_process_set(set);
          }
        };
        EXPECT_THROW(make_many(), PeerLost);
      });
      while (made.load() < 3) std::this_thread::yield();
      engine.leave();
      other.join();
    });
  }
}

TEST(EngineLifetime, EveryCallbackComesThoughTheEngineEnds) {
  std::atomic<bool> submitted{false};
  run_replicas(2, [&](Communicator& communicator) {
    Client::Tensors pending;
    {
      TensorEngine engine(communicator);
      Client client(engine);
      pending = client.submit("alone on " + std::to_string(communicator.rank()), {{1.0F}}, {});
      if (communicator.rank() == 1) {
        submitted.store(true);
        client.wait(pending);
        EXPECT_THAT(pending.front()->error->text, HasSubstr("without leaving")) << "the others are announced";
      } else {
        while (!submitted.load()) std::this_thread::yield();
      }
    }
    ASSERT_TRUE(pending.front()->done.load());
    EXPECT_EQ(pending.front()->error->kind, ErrorKind::kPeerLost);
  });
}

TEST(EngineLifetime, FaultFailsPendingRequestsImmediately) {
  EXPECT_THROW(run_replicas(3,
                            [](Communicator& communicator) {
                              TensorEngine engine(communicator);
                              Client client(engine);
                              const auto alone =
                                  client.submit("alone on " + std::to_string(communicator.rank()), {{1.0F}}, {});
                              (void)client.allreduce("together", {1.0F});
                              const auto start = Clock::now();
                              if (communicator.rank() == 1) engine.abort("the disk is full");
                              // Nobody drives but the engine's own thread.
                              while (!alone.front()->done.load()) std::this_thread::yield();
                              EXPECT_LT(Seconds(Clock::now() - start).count(), 0.5);
                              EXPECT_THAT(alone.front()->error->text, HasSubstr("the disk is full"));
                              throw_error(alone.front()->error->kind, alone.front()->error->text);
                            }),
               PeerLost);
}

/// The fault comes earlier or later in it.
TEST(EngineLifetime, FaultEndsTheMakingOfAProcessSet) {
  for (int delay = 0; delay < 60; ++delay) {
    std::atomic<int> engines{0};
    run_replicas(2, [&](Communicator& communicator) {
      TensorEngine engine(communicator);
      engines.fetch_add(1);
      while (engines.load() < 2) std::this_thread::yield();
      std::thread other([&] {
        for (int i = 0; i < 20'000 * delay && communicator.rank() == 1; ++i) {
          std::atomic_signal_fence(std::memory_order_seq_cst);
        }
        if (communicator.rank() == 1) engine.abort("no time");
      });
      const auto make_many = [&] {
        for (;;) {
          const int set = engine.add_process_set({0});
          engine.remove_process_set(set);
        }
      };
      EXPECT_THROW(make_many(), PeerLost);
      other.join();
    });
  }
}

TEST(EngineLifetime, JoiningAfterARankHasLeftFails) {
  run_replicas(2, [](Communicator& communicator) {
    TensorEngine engine(communicator);
    Client client(engine);
    if (communicator.rank() == 0) {
      const auto pending = client.submit("alone", {{1.0F}}, {});
      client.wait(pending);  // fails when the other leaves
      JoinAnswer answer;
      engine.join(0, &answer, JoinAnswer::on_done);
      engine.wait_until([&] { return answer.done.load(); });
      EXPECT_EQ(answer.error, ErrorKind::kPeerLost);
    }
    engine.leave();
  });
}

/// One rank of the set has submitted, and waits for the other in a negotiation.
TEST(EngineLifetime, RemovedSetFailsItsPendingRequests) {
  run_engines(3, [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank();
    for (int i = 0; i < 30; ++i) {
      const int set = engine.add_process_set({0, 2});
      Client::Options options;
      options.process_set = set;
      Client::Tensors alone, together;
      JoinAnswer joined;
      if (rank == 0) alone = client.submit("alone", {{1.0F}}, options);
      if (rank == 2 && i % 2 == 0) engine.join(set, &joined, JoinAnswer::on_done);
      if (rank != 1 && i % 3 == 0) together = client.submit("together", {std::vector<float>(50'000, 1.0F)}, options);
      engine.remove_process_set(set);
      for (const auto* pending : {&alone, &together}) {
        client.wait(*pending);
        if (pending->empty()) continue;
        if (pending->front()->error) {
          EXPECT_EQ(pending->front()->error->kind, kRemoved) << pending->front()->error->text;
        } else {
          EXPECT_TRUE(pending == &together || i % 2 == 0) << "nobody supplied the other part";
        }
      }
      if (rank == 2 && i % 2 == 0) {
        engine.wait_until([&] { return joined.done.load(); });
        EXPECT_EQ(joined.error, kRemoved);
      }
      if (rank != 1) {
        EXPECT_THROW((void)client.run("alone", {1.0F}, options), InvalidArgument);
      }
      EXPECT_THAT(client.allreduce("all", {1.0F}), Each(3.0F));
    }
  });
}

TEST(EngineLifetime, RequestsRaceWithTheRemovalOfTheirSet) {
  run_engines(2, [](TensorEngine& engine, Client& client) {
    for (int i = 0; i < 30; ++i) {
      const int set = engine.add_process_set({0, 1});
      EXPECT_EQ(set, 0) << "the set of all ranks exists";
      const int own = engine.add_process_set({engine.communicator().size() - 1});
      std::atomic<bool> stop{false};
      std::thread other([&] {
        Client::Options options;
        options.process_set = own;
        while (!stop.load() && engine.communicator().rank() == 1) {
          try {
            EXPECT_THAT(client.run("own", {1.0F}, options), Each(1.0F));
          } catch (const InvalidArgument&) {
            return;
          }
        }
      });
      EXPECT_THAT(client.allreduce("all", {1.0F}), Each(2.0F));
      const auto before = engine.counters().negotiations;
      engine.remove_process_set(own);
      EXPECT_GT(engine.counters().negotiations, before) << "sets that are gone count too";
      stop.store(true);
      other.join();
    }
  });
}

/// Submits itself again from its callback, until `left` is 0.
struct Chain {
  TensorEngine* engine = nullptr;
  float value = 1.0F, sum = 0.0F;
  int left = 0;
  std::atomic<bool> done{false};

  void submit() {
    LocalRequest request;
    request.spec.name = "chain";
    request.spec.kind = RequestKind::kAllreduce;
    request.spec.tensors = {{DType::kF32, {1}}};
    LocalTensor& tensor = request.tensors.emplace_back();
    tensor.dtype = DType::kF32;
    tensor.shape = {1};
    tensor.input = &value;
    tensor.output = &sum;
    tensor.context = this;
    tensor.done = [](void* context, const farandole_result* result) {
      auto& self = *static_cast<Chain*>(context);
      EXPECT_EQ(result->error, nullptr);
      if (--self.left > 0) {
        self.submit();
      } else {
        self.done.store(true);
      }
    };
    engine->submit(std::move(request));
  }
};

TEST(EngineLifetime, CallbacksThatSubmitAgainDoNotFillTheStack) {
  for (const int ranks : {1, 2}) {
    run_engines(ranks, [&](TensorEngine& engine, Client&) {
      Chain chain;
      chain.engine = &engine;
      chain.left = ranks == 1 ? 100'000 : 500;
      chain.submit();
      engine.wait_until([&] { return chain.done.load(); });
      EXPECT_EQ(chain.sum, static_cast<float>(ranks));
    });
  }
}

TEST(EngineLifetime, SeveralThreadsOfARankWait) {
  run_engines(2, [](TensorEngine& engine, Client& client) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 50; ++i) {
          EXPECT_THAT(client.allreduce("thread " + std::to_string(thread), {1.0F}), Each(2.0F));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(engine.counters().requests, 200U);
  });
}

Seconds processor_time() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return Seconds(seconds(usage.ru_utime) + seconds(usage.ru_stime));
}

TEST(EngineLifetime, IdleJobIsSilentAndSleeps) {
  constexpr int kRanks = 4;
  constexpr std::chrono::seconds kIdle{2};
  std::atomic<int> ready{0};
  std::atomic<bool> over{false};
  run_engines(kRanks, [&](TensorEngine& engine, Client& client) {
    const int set = engine.add_process_set({0, 2});
    Client::Options options;
    options.process_set = set;
    for (int i = 0; i < 10; ++i) {
      EXPECT_THAT(client.allreduce("all", {1.0F}), Each(4.0F));
      if (engine.communicator().rank() % 2 != 0) continue;
      EXPECT_THAT(client.run("even", {1.0F}, options), Each(2.0F));
    }
    const auto before = engine.counters();
    ready.fetch_add(1);
    if (engine.communicator().rank() == 0) {
      while (ready.load() < kRanks) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const Seconds start = processor_time();
      std::this_thread::sleep_for(kIdle);  // what is measured, not what is waited for
      EXPECT_LT((processor_time() - start).count(), 0.005 * kRanks * Seconds(kIdle).count());
      over.store(true);
      over.notify_all();
    } else {
      over.wait(false);
    }
    const auto after = engine.counters();
    EXPECT_EQ(after.negotiations, before.negotiations);
    EXPECT_EQ(after.sent_bytes, before.sent_bytes);
    EXPECT_EQ(after.buckets, before.buckets);
  });
}

/// A callback that submits may be the last to let go of the engine.
TEST(EngineLifetime, ShutdownRacesWithSubmittingCallbacks) {
  struct Loop {
    std::atomic<int> done{0};
    float value = 1.0F;
    void submit() {
      farandole_tensor tensor{};
      tensor.struct_bytes = sizeof tensor;
      tensor.dtype = FARANDOLE_F32;
      tensor.input = tensor.output = &value;
      tensor.context = this;
      tensor.done = [](void* context, const farandole_result*) {
        static_cast<Loop*>(context)->done.fetch_add(1);
        static_cast<Loop*>(context)->submit();  // until it is refused
      };
      farandole_request request{};
      request.struct_bytes = sizeof request;
      request.name = "loop";
      request.collective = FARANDOLE_ALLREDUCE;
      request.prescale = request.postscale = 1.0;
      request.tensors = &tensor;
      request.tensor_count = 1;
      (void)farandole_submit(&request, nullptr);
    }
  };
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_SIZE") != nullptr) GTEST_SKIP();
  for (int i = 0; i < 30; ++i) {
    ASSERT_EQ(farandole_init(nullptr, nullptr), 0);
    Loop loop;
    loop.submit();
    while (loop.done.load() < 20) std::this_thread::yield();
    ASSERT_EQ(farandole_shutdown(nullptr), 0);
    EXPECT_EQ(farandole_is_initialized(), 0);
  }
}

}  // namespace
}  // namespace farandole::testing
