// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "engine_harness.h"

namespace farandole::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class Engine : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Engine, ::testing::Values(1, 2, 3, 4));

float sum_of_ranks(int ranks) {
  const int sum = ranks * (ranks + 1) / 2;
  return static_cast<float>(sum);
}

TEST_P(Engine, AllreducesOneTensor) {
  run_engines(GetParam(), [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank(), size = engine.communicator().size();
    for (int step = 0; step < 50; ++step) {
      EXPECT_THAT(client.allreduce("one", std::vector<float>(7, static_cast<float>(rank + 1))),
                  Each(sum_of_ranks(size)));
    }
    const auto counters = engine.counters();
    EXPECT_EQ(counters.named, 1U) << "a name is announced once";
    EXPECT_EQ(counters.requests, 50U);
  });
}

TEST_P(Engine, AveragesAndScales) {
  run_engines(GetParam(), [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank(), size = engine.communicator().size();
    Client::Options options;
    options.op = ReduceOp::kAverage;
    options.prescale = 2.0;
    options.postscale = 10.0;
    EXPECT_THAT(client.run("scaled", {static_cast<float>(rank + 1)}, options),
                ElementsAre(20.0F * sum_of_ranks(size) / static_cast<float>(size)));
  });
}

TEST_P(Engine, GathersRowsOfDifferentNumbers) {
  run_engines(GetParam(), [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank(), size = engine.communicator().size();
    Client::Options options;
    options.kind = RequestKind::kAllgather;
    for (int step = 0; step < 3; ++step) {
      std::vector<float> expected;
      for (int r = 0; r < size; ++r)
        expected.insert(expected.end(), static_cast<std::size_t>(r) + static_cast<std::size_t>(step),
                        static_cast<float>(r));
      const std::vector<float> mine(static_cast<std::size_t>(rank) + static_cast<std::size_t>(step),
                                    static_cast<float>(rank));
      EXPECT_EQ(client.run("rows", mine, options), expected);
    }
    EXPECT_EQ(engine.counters().named, 1U) << "other lengths are not another request";
  });
}

TEST_P(Engine, BroadcastsFromAnyRoot) {
  run_engines(GetParam(), [](TensorEngine& engine, Client& client) {
    Client::Options options;
    options.kind = RequestKind::kBroadcast;
    for (options.root = 0; options.root < engine.communicator().size(); ++options.root) {
      const auto rank = static_cast<float>(engine.communicator().rank());
      EXPECT_THAT(client.run("values" + std::to_string(options.root), {rank, rank}, options),
                  Each(static_cast<float>(options.root)));
    }
  });
}

TEST_P(Engine, SendsSplitsToEachRank) {
  run_engines(GetParam(), [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank(), size = engine.communicator().size();
    Client::Options options;
    options.kind = RequestKind::kAlltoall;
    std::vector<float> values, expected;
    for (int to = 0; to < size; ++to) {
      options.splits.push_back(to + 1);
      values.insert(values.end(), static_cast<std::size_t>(to) + 1, static_cast<float>(10 * rank + to));
    }
    for (int from = 0; from < size; ++from) {
      expected.insert(expected.end(), static_cast<std::size_t>(rank) + 1, static_cast<float>(10 * from + rank));
    }
    const auto pending = client.submit("all to all", {values}, options);
    client.wait(pending);
    EXPECT_EQ(pending.front()->output, expected);
    EXPECT_EQ(pending.front()->received_splits, std::vector<std::int64_t>(static_cast<std::size_t>(size), rank + 1));
  });
}

TEST_P(Engine, ScattersRowsUnevenly) {
  run_engines(GetParam(), [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank(), size = engine.communicator().size();
    Client::Options options;
    options.kind = RequestKind::kReduceScatter;
    std::vector<float> values(2 * static_cast<std::size_t>(size) + 1);
    std::iota(values.begin(), values.end(), 0.0F);
    std::vector<float> expected;
    int first = 0;
    for (int r = 0; r < rank; ++r) first += 2 + (r < 1 ? 1 : 0);
    for (int row = first; row < first + 2 + (rank < 1 ? 1 : 0); ++row)
      expected.push_back(static_cast<float>(row * size));
    EXPECT_EQ(client.run("scattered", values, options), expected);
  });
}

TEST_P(Engine, BarrierWaitsForAll) {
  std::atomic<int> arrived{0};
  run_engines(GetParam(), [&](TensorEngine& engine, Client& client) {
    Client::Options options;
    options.kind = RequestKind::kBarrier;
    arrived.fetch_add(1);
    (void)client.run("barrier", {}, options);
    EXPECT_EQ(arrived.load(), engine.communicator().size());
  });
}

TEST_P(Engine, GroupIsReducedTogether) {
  run_engines(GetParam(), [](TensorEngine& engine, Client& client) {
    const int size = engine.communicator().size();
    const auto value = static_cast<float>(engine.communicator().rank() + 1);
    for (int step = 0; step < 3; ++step) {
      // A large one that is not copied, and small ones that are packed.
      const auto pending =
          client.submit("group", {{value}, std::vector<float>(100'000, value), std::vector<float>(33, value), {}}, {});
      client.wait(pending);
      for (const auto& tensor : pending) EXPECT_THAT(tensor->output, Each(sum_of_ranks(size)));
    }
  });
}

/// The order of a training step's tensors differs from rank to rank and from step to step.
TEST_P(Engine, AnyOrderGivesTheSameBuckets) {
  constexpr int kSteps = 20;
  run_engines(GetParam(), [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank(), size = engine.communicator().size();
    const std::size_t names = size == 4 ? 5000 : 500;
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<int> order(names);
    std::iota(order.begin(), order.end(), 0);
    std::uint64_t rounds_before = 0, buckets_before = 0;
    for (int step = 0; step < kSteps; ++step) {
      std::shuffle(order.begin(), order.end(), random);
      std::vector<std::pair<int, Client::Tensors>> pending;
      for (const int i : order) {
        pending.emplace_back(
            i, client.submit("t" + std::to_string(i), {std::vector<float>(3, static_cast<float>(i * (rank + 1)))}, {}));
      }
      for (const auto& [i, tensors] : pending) {
        client.wait(tensors);
        ASSERT_THAT(tensors.front()->output, Each(static_cast<float>(i) * sum_of_ranks(size)));
      }
      if (step == 2) {
        const auto counters = engine.counters();
        rounds_before = counters.negotiations;
        buckets_before = counters.buckets;
      }
    }
    const auto counters = engine.counters();
    EXPECT_EQ(counters.named, names);
    EXPECT_LE(counters.negotiations - rounds_before, 2 * (counters.buckets - buckets_before) + 2);
  });
}

TEST_P(Engine, ProcessSetsAreIndependent) {
  run_engines(GetParam(), [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank(), size = engine.communicator().size();
    std::vector<int> even;
    for (int r = 0; r < size; r += 2) even.push_back(r);
    const int set = engine.add_process_set(even);
    EXPECT_EQ(engine.add_process_set(even), set) << "the same ranks are the same set";
    EXPECT_EQ(engine.ranks_of(set), even);
    Client::Options options;
    options.process_set = set;
    if (rank % 2 == 0) {
      EXPECT_THAT(client.run("in set", {1.0F}, options), ElementsAre(static_cast<float>(even.size())));
    } else {
      EXPECT_THROW((void)client.run("in set", {1.0F}, options), InvalidArgument);
    }
    EXPECT_THAT(client.allreduce("in all", {1.0F}), ElementsAre(static_cast<float>(size)));
    if (set != 0) {
      engine.remove_process_set(set);
      EXPECT_EQ(engine.ranks_of(set), std::nullopt);
    }
  });
}

TEST_P(Engine, JoinedRanksSupplyZeros) {
  run_engines(GetParam(), [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank(), size = engine.communicator().size();
    // Rank r has r + 1 batches; two epochs, so that joining works again.
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (int batch = 0; batch <= rank; ++batch) {
        EXPECT_THAT(client.allreduce("gradient", {1.0F, 1.0F}), Each(static_cast<float>(size - batch)));
      }
      struct Answer {
        std::atomic<bool> done{false};
        int last = -1;
      } answer;
      engine.join(0, &answer, [](void* context, const farandole_error* error, std::int32_t last) {
        EXPECT_EQ(error, nullptr);
        static_cast<Answer*>(context)->last = last;
        static_cast<Answer*>(context)->done.store(true);
      });
      engine.wait_until([&] { return answer.done.load(); });
      EXPECT_EQ(answer.last, size - 1);
    }
  });
}

/// Expected result on the ranks that have not joined: `op` over the ranks from `first` on; rank r contributes r + 2.
float reduced(ReduceOp op, int first, int size) {
  const auto value = [](int rank) { return static_cast<float>(rank + 2); };
  float result = value(first);
  for (int rank = first + 1; rank < size; ++rank) {
    if (op == ReduceOp::kMin) continue;
    if (op == ReduceOp::kMax) result = value(rank);
    if (op == ReduceOp::kProduct) result *= value(rank);
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) result += value(rank);
  }
  return op == ReduceOp::kAverage ? result / static_cast<float>(size) : result;
}

void join_and_wait(TensorEngine& engine) {
  std::atomic<bool> done{false};
  engine.join(0, &done, [](void* context, const farandole_error* error, std::int32_t) {
    EXPECT_EQ(error, nullptr);
    static_cast<std::atomic<bool>*>(context)->store(true);
  });
  engine.wait_until([&] { return done.load(); });
}

/// Alone, grouped, in a bucket with others, and too large to be packed; scaled so that what is neutral is not any more.
TEST_P(Engine, JoinedRanksChangeNothingWhateverTheOperation) {
  run_engines(GetParam(), [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank(), size = engine.communicator().size();
    const auto mine = static_cast<float>(rank + 2);
    const std::size_t large = (128 << 10) / sizeof(float) + 5;
    // Rank r joins after r + 1 batches: from batch b on the ranks below b have.
    for (int batch = 0; batch <= rank; ++batch) {
      for (const ReduceOp op : kAllReduceOps) {
        if (is_bitwise(op)) continue;
        for (const double prescale : {1.0, -2.0, 0.0}) {
          Client::Options options;
          options.op = op;
          options.prescale = prescale;
          const std::string name = fmt::format("{} {} {}", farandole::name(op), prescale, batch);
          std::vector<Client::Tensors> pending;
          pending.push_back(client.submit(name + " alone", {{mine, mine}}, options));
          pending.push_back(client.submit(name + " grouped", {{mine}, {mine, mine, mine}}, options));
          pending.push_back(client.submit(name + " large", {std::vector<float>(large, mine)}, options));
          const int at = prescale < 0 && op == ReduceOp::kMin ? -1 : prescale < 0 && op == ReduceOp::kMax ? 1 : 0;
          // A negative factor reverses the order of the values: the largest becomes the smallest.
          const ReduceOp seen = at < 0 ? ReduceOp::kMax : at > 0 ? ReduceOp::kMin : op;
          float wanted = reduced(seen, batch, size) * static_cast<float>(prescale);
          if (op == ReduceOp::kProduct) {
            wanted = reduced(op, batch, size) * static_cast<float>(std::pow(prescale, size - batch));
          }
          for (const auto& tensors : pending) {
            client.wait(tensors);
            for (const auto& tensor : tensors) {
              ASSERT_FALSE(tensor->error.has_value()) << tensor->error->text;
              ASSERT_THAT(tensor->output, Each(::testing::FloatEq(wanted))) << name << ", rank " << rank;
            }
          }
        }
      }
    }
    join_and_wait(engine);
  });
}

std::uint32_t bits_of_rank(int rank) {
  return 0x9e3779b9U * static_cast<std::uint32_t>(rank + 1);
}

std::uint32_t reduced_bits(ReduceOp op, int first_rank, int size) {
  std::uint32_t bits = bits_of_rank(first_rank);
  for (int rank = first_rank + 1; rank < size; ++rank) {
    if (op == ReduceOp::kBitAnd) bits &= bits_of_rank(rank);
    if (op == ReduceOp::kBitOr) bits |= bits_of_rank(rank);
    if (op == ReduceOp::kBitXor) bits ^= bits_of_rank(rank);
  }
  return bits;
}

TEST_P(Engine, JoinedRanksChangeNoBitsOfIntegers) {
  run_engines(GetParam(), [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank(), size = engine.communicator().size();
    const auto mine = std::bit_cast<float>(bits_of_rank(rank));
    // Rank r joins after r + 1 batches: from batch b on the ranks below b have.
    for (int batch = 0; batch <= rank; ++batch) {
      for (const ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
        for (const DType dtype : {DType::kI32, DType::kU32}) {
          Client::Options options;
          options.op = op;
          options.dtype = dtype;
          const std::string name = fmt::format("{} {} {}", farandole::name(op), farandole::name(dtype), batch);
          const Client::Tensors tensors = client.submit(name, {{mine}, {mine, mine, mine}}, options);
          client.wait(tensors);
          for (const auto& tensor : tensors) {
            ASSERT_FALSE(tensor->error.has_value()) << tensor->error->text;
            for (const float element : tensor->output) {
              ASSERT_EQ(std::bit_cast<std::uint32_t>(element), reduced_bits(op, batch, size)) << name;
            }
          }
        }
      }
    }
    join_and_wait(engine);
  });
}

TEST_P(Engine, JoinedRanksAddNothingToAnAdaptiveSum) {
  run_engines(GetParam(), [](TensorEngine& engine, Client& client) {
    const int rank = engine.communicator().rank(), size = engine.communicator().size();
    Client::Options options;
    options.adasum = true;
    options.prescale = 2.0;
    // All but the last rank have joined: it gets what it has.
    if (rank == size - 1) {
      EXPECT_THAT(client.run("alone", {1.0F, -3.0F, INFINITY}, options), ElementsAre(2.0F, -6.0F, INFINITY));
    }
    join_and_wait(engine);
  });
}

}  // namespace
}  // namespace farandole::testing
