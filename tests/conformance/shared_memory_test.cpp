// SPDX-License-Identifier: Apache-2.0
// Collectives inside a host give the same results for every kind and size of buffer, and for any number of collectives
// in flight.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/waiter.h"
#include "farandole/sdk/transport.h"
#include "groups.h"
#include "trial.h"

namespace farandole::test {
namespace {

using testing::HasSubstr;

constexpr Collective kAll[] = {Collective::kAllreduce, Collective::kReduce,    Collective::kReduceScatter,
                               Collective::kBroadcast, Collective::kAllgather, Collective::kGather,
                               Collective::kScatter,   Collective::kAlltoall,  Collective::kBarrier};

bool may_be_in_place(Collective collective) {
  return collective != Collective::kGather && collective != Collective::kScatter && collective != Collective::kBarrier;
}
bool has_counts(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllgather ||
         collective == Collective::kGather || collective == Collective::kScatter || collective == Collective::kAlltoall;
}

std::string describe(const Shape& shape, const Places& places, const Communicator& ranks) {
  return fmt::format("{} of {} elements, spread {}, in place {}, root {}, {}, blocking {}, rank {} of {}",
                     name(shape.collective), shape.total, static_cast<int>(shape.spread), shape.in_place, shape.root,
                     places.name, shape.blocking, ranks.rank(), ranks.size());
}

template <class T>
void try_all(Communicator& ranks, std::size_t total) {
  int k = 0;  // walks through what is not in the loops
  for (const Collective collective : kAll) {
    for (const bool in_place : {false, true}) {
      if (in_place && !may_be_in_place(collective)) continue;
      for (const Spread spread : {Spread::kEven, Spread::kUneven, Spread::kLastOnly}) {
        if (spread != Spread::kEven && !has_counts(collective)) continue;
        for (const Places& places : all_places()) {
          ++k;
          const Shape shape{collective, total, spread, in_place, k % ranks.size(), k % 3 == 0};
          Trial<T> trial(ranks, shape, places);
          ASSERT_EQ(trial.difference(), "") << describe(shape, places, ranks);
        }
      }
    }
  }
}

std::size_t slot_bytes(const Communicator& ranks) {
  return static_cast<std::size_t>(internals(ranks).settings().shared_memory.slice_bytes);
}
/// The largest vector that is reduced whole by every rank.
std::size_t one_shot_bytes(const Communicator& ranks) {
  return std::min(static_cast<std::size_t>(internals(ranks).settings().shared_memory.one_shot_bytes),
                  slot_bytes(ranks));
}

TEST(SharedMemory, ShortVectorsWhereverTheyLie) {
  for_each_group({1, 2, 3, 4, 8}, [](Communicator& ranks) {
    // An arrival record carries 40 bytes.
    for (const std::size_t bytes : {0, 1, 39, 40, 41, 129}) try_all<std::uint8_t>(ranks, bytes);
    for (const std::size_t count : {1, 10, 11}) try_all<std::int32_t>(ranks, count);
  });
}

TEST(SharedMemory, VectorsAroundTheLimitWhereverTheyLie) {
  for_each_group({2, 3, 8}, [](Communicator& ranks) {
    const std::size_t limit = one_shot_bytes(ranks) / sizeof(std::int32_t);
    for (const std::size_t count : {limit, limit + 1}) try_all<std::int32_t>(ranks, count);
    if (limit > 0) try_all<std::int32_t>(ranks, limit - 1);
  });
}

TEST(SharedMemory, VectorsOfSeveralPartsWhereverTheyLie) {
  for_each_group({1, 2, 3, 4}, [](Communicator& ranks) {
    const std::size_t part = slot_bytes(ranks) / sizeof(std::int32_t);
    try_all<std::int32_t>(ranks, part + 1);
    try_all<std::int32_t>(ranks, static_cast<std::size_t>(std::min(ranks.size(), 2)) * (2 * part + part / 3) + 7);
  });
}

TEST(SharedMemory, ManyOperationsCompleteInAnyOrderOfWaits) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  for_each_group({2, 3, 4}, [&](Communicator& ranks) {
    std::vector<std::int32_t> agreed{static_cast<std::int32_t>(seed)};
    ranks.broadcast(agreed, 0);
    std::mt19937 common(static_cast<unsigned>(agreed[0]));
    std::mt19937 own(common() + static_cast<unsigned>(ranks.rank()));
    std::vector<Communicator> communicators{ranks, ranks.duplicate(), ranks.split(ranks.rank() % 2)};
    const std::size_t part = slot_bytes(ranks) / sizeof(std::int32_t);
    for (int round = 0; round < 4; ++round) {
      std::vector<std::unique_ptr<Trial<std::int32_t>>> trials;
      for (int i = 0; i < 30; ++i) {
        Communicator& where = communicators[common() % communicators.size()];
        const std::size_t limit = common() % 3 == 0 ? 2 * part : 40;
        const auto spread = static_cast<Spread>(common() % 3);
        Shape shape{kAll[common() % std::size(kAll)], common() % (limit + 1), spread, common() % 2 == 0, 0, false};
        shape.in_place = shape.in_place && may_be_in_place(shape.collective);
        const Places& places = all_places()[own() % all_places().size()];
        trials.push_back(std::make_unique<Trial<std::int32_t>>(where, shape, places));
      }
      std::shuffle(trials.begin(), trials.end(), own);
      for (const auto& trial : trials) ASSERT_EQ(trial->difference(), "") << "seed " << agreed[0];
    }
  });
}

TEST(SharedMemory, OppositeOrdersOnTwoCommunicatorsDoNotBlock) {
  for_each_group({2, 4}, [](Communicator& ranks) {
    Communicator other = ranks.duplicate();
    const std::size_t count = 3 * slot_bytes(ranks) / sizeof(std::int32_t);
    for (int round = 0; round < 20; ++round) {
      const Places& places = all_places()[static_cast<std::size_t>(round) % all_places().size()];
      const Shape shape{Collective::kAllreduce, round % 2 == 0 ? count : 20, Spread::kEven, false, 0, false};
      Communicator& first = ranks.rank() % 2 == 0 ? ranks : other;
      Communicator& second = ranks.rank() % 2 == 0 ? other : ranks;
      Trial<std::int32_t> one(first, shape, places), two(second, shape, places);
      ASSERT_EQ(one.difference(), "");
      ASSERT_EQ(two.difference(), "");
    }
  });
}

TEST(SharedMemory, CommunicatorsComeAndGoWhileRanksLagBehind) {
  for_each_group({2, 3, 4}, [](Communicator& ranks) {
    std::mt19937 own(static_cast<unsigned>(ranks.rank()));
    const std::size_t count = slot_bytes(ranks) / sizeof(std::int32_t) / 2;
    for (int i = 0; i < 150; ++i) {
      Communicator copy = i % 3 == 0 ? ranks.split(ranks.rank() % 2) : ranks.duplicate();
      for (int call = 0; call < i % 4; ++call) {
        const Shape shape{kAll[static_cast<std::size_t>(i + call) % std::size(kAll)],
                          call == 1 ? count : 3,
                          Spread::kEven,
                          false,
                          0,
                          call == 2};
        Trial<std::int32_t> trial(copy, shape, all_places()[own() % all_places().size()]);
        for (auto turns = own() % 50; turns > 0; --turns) std::this_thread::yield();
        ASSERT_EQ(trial.difference(), "") << describe(shape, all_places()[0], copy);
      }
      for (auto turns = own() % 50; turns > 0; --turns) std::this_thread::yield();
    }
  });
}

TEST(SharedMemory, BlocksOfFormerCommunicatorsAreUsedAgain) {
  if (is_launched()) GTEST_SKIP() << "the size of the blocks is the job's";
  // A block of this size fits the machine a few times only.
  const char* old = std::getenv("FARANDOLE_SLICE_BYTES");
  const std::string before = old != nullptr ? old : "";
  setenv("FARANDOLE_SLICE_BYTES", "32MiB", 1);
  run_replicas(2, [](Communicator& ranks) {
    for (int i = 0; i < 300; ++i) {
      Communicator copy = ranks.duplicate();
      std::vector<std::int32_t> one{1};
      copy.allreduce(one, ReduceOp::kSum);
      ASSERT_EQ(one[0], 2);
    }
  });
  before.empty() ? unsetenv("FARANDOLE_SLICE_BYTES") : setenv("FARANDOLE_SLICE_BYTES", before.c_str(), 1);
}

TEST(SharedMemory, OneShotReachesFurtherWhereRanksShareCores) {
  if (is_launched()) GTEST_SKIP() << "other ranks may share the cores";
  const auto cores = static_cast<int>(allowed_cores().count());
  for (const int size : {cores, cores + 1}) {
    if (size > kMaxReplicas) GTEST_SKIP() << "more cores than ranks in a process";
    run_replicas(size, [&](Communicator& ranks) {
      const auto limit = static_cast<std::size_t>(internals(ranks).settings().shared_memory.one_shot_bytes);
      if (size == 1 || limit == 0 || !ranks.shares_memory() || !internals(ranks).settings().collectives.tuning.empty())
        return;
      const std::size_t most = size > cores ? 4 * limit : limit;
      EXPECT_THAT(internals(ranks).explain(Collective::kAllreduce, most), HasSubstr("one shot"));
      EXPECT_THAT(internals(ranks).explain(Collective::kAllreduce, most + 1), HasSubstr("two shots"));
    });
  }
}

TEST(SharedMemory, EveryWayGivesTheSameBitsOnAllRanks) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  for_each_group({2, 3, 4, 5, 8}, [&](Communicator& ranks) {
    // Algorithms over messages, which a table may have chosen, associate in ways of their own.
    if (!ranks.shares_memory() || !internals(ranks).settings().collectives.tuning.empty()) return;
    const std::size_t count = 3 * slot_bytes(ranks) / sizeof(float) + 11;
    std::mt19937 random(seed + static_cast<unsigned>(ranks.rank()));
    std::uniform_real_distribution<float> distribution(-1000.0F, 1000.0F);
    std::vector<float> input(count), staged(count), pieces(count);
    for (float& x : input) x = distribution(random);
    ranks.allreduce(input, staged, ReduceOp::kSum);

    Buffer window = ranks.allocate(count, DType::kF32), target = ranks.allocate(count, DType::kF32);
    std::copy(input.begin(), input.end(), window.as<float>());
    ranks.allreduce(window.view(), target.view(), ReduceOp::kSum);
    EXPECT_EQ(std::memcmp(target.as<float>(), staged.data(), count * sizeof(float)), 0) << "windows";

    // The first elements again in pieces that are short enough to be one-shot, and some in arrival records.
    const std::size_t one_shot = one_shot_bytes(ranks) / sizeof(float);
    std::size_t first = 0;
    for (std::size_t length = 1; length <= std::max<std::size_t>(one_shot, 10) && first + length <= count;) {
      const auto piece = [&](std::vector<float>& of) { return BufferView(of.data() + first, length, DType::kF32); };
      if (length % 3 == 0) {
        ranks.allreduce_async(piece(input), piece(pieces), ReduceOp::kSum).wait();
      } else {
        ranks.allreduce(piece(input), piece(pieces), ReduceOp::kSum);
      }
      first += length;
      length = length < 12 ? length + 1 : 2 * length;
    }
    EXPECT_EQ(std::memcmp(pieces.data(), staged.data(), first * sizeof(float)), 0) << "one-shot";

    std::vector<float> of_first = staged;
    ranks.broadcast(of_first, 0);
    EXPECT_EQ(std::memcmp(of_first.data(), staged.data(), count * sizeof(float)), 0) << "another rank's result";
  });
}

/// Every rank raises Mismatch, its output stays as it was, and the communicator works.
void expect_disagreement(Communicator& ranks, BufferView output, const char* what, const std::function<void()>& call) {
  std::memset(output.data, 0x77, output.size_in_bytes());
  EXPECT_THROW(call(), Mismatch) << what << ", rank " << ranks.rank() << " of " << ranks.size();
  const auto* bytes = static_cast<const unsigned char*>(output.data);
  EXPECT_TRUE(std::all_of(bytes, bytes + output.size_in_bytes(), [](unsigned char byte) { return byte == 0x77; }))
      << what << " changed the output of rank " << ranks.rank();
  std::vector<std::int32_t> one{1};
  ranks.allreduce(one, ReduceOp::kSum);
  EXPECT_EQ(one[0], ranks.size()) << what;
}

void disagree_about_everything(Communicator& ranks, Buffer& input, Buffer& output) {
  const bool odd = ranks.rank() == ranks.size() - 1;
  const std::size_t count = input.count() - 1, p = static_cast<std::size_t>(ranks.size());
  const auto in = [&](std::size_t n, DType dtype = DType::kF32) { return BufferView(input.view().data, n, dtype); };
  const auto out = [&](std::size_t n, DType dtype = DType::kF32) { return BufferView(output.view().data, n, dtype); };
  const auto disagree = [&](const char* what, const std::function<void()>& call) {
    expect_disagreement(ranks, output.view(), what, call);
  };
  const auto n = [&](std::size_t other) { return odd ? other : count; };
  disagree("count", [&] { ranks.allreduce(in(n(count + 1)), out(n(count + 1)), ReduceOp::kSum); });
  disagree("long and short", [&] { ranks.allreduce(in(n(1)), out(n(1)), ReduceOp::kSum); });
  disagree("asynchronous", [&] { ranks.allreduce_async(in(n(2)), out(n(2)), ReduceOp::kSum).wait(); });
  disagree("type", [&] {
    const DType dtype = odd ? DType::kI32 : DType::kF32;
    ranks.allreduce(in(count, dtype), out(count, dtype), ReduceOp::kSum);
  });
  disagree("op", [&] { ranks.allreduce(in(count), out(count), odd ? ReduceOp::kMax : ReduceOp::kSum); });
  disagree("scale", [&] {
    CallOptions options;
    options.postscale = odd ? 2.0 : 1.0;
    ranks.allreduce(in(count), out(count), ReduceOp::kSum, options);
  });
  disagree("root of a broadcast", [&] { ranks.broadcast(out(count), odd ? 1 : 0); });
  disagree("root of a reduce", [&] { ranks.reduce(in(count), out(count), ReduceOp::kSum, odd ? 1 : 0); });
  disagree("collective",
           [&] { odd ? ranks.broadcast(out(count), 0) : ranks.allreduce(in(count), out(count), ReduceOp::kSum); });
  disagree("barrier", [&] { odd ? ranks.barrier() : ranks.allreduce(in(count), out(count), ReduceOp::kSum); });
  disagree("algorithm", [&] {
    CallOptions options;
    options.algorithm = odd ? "ring" : ranks.shares_memory() ? "shared_memory" : "recursive_doubling";
    ranks.allreduce(in(count), out(count), ReduceOp::kSum, options);
  });
  const std::vector<std::size_t> counts(p, count / p);
  std::vector<std::size_t> uneven = counts;
  uneven[0] += odd ? 1 : 0;
  disagree("counts of allgather", [&] {
    const std::size_t own = uneven[static_cast<std::size_t>(ranks.rank())];
    ranks.allgather(in(own), out(count / p * p + (odd ? 1 : 0)), uneven);
  });
  disagree("counts of alltoall",
           [&] { ranks.alltoall(in(count / p * p), out(count / p * p + (odd ? 1 : 0)), counts, uneven); });
}

TEST(SharedMemory, DisagreementKeepsOutputsAndCommunicatorUsable) {
  for_each_group({2, 3, 4}, [](Communicator& ranks) {
    if (ranks.size() == 1) return;
    const std::size_t limit = one_shot_bytes(ranks) / sizeof(float);
    for (const std::size_t count : {std::size_t{9}, std::size_t{10}, std::max<std::size_t>(limit, 20), limit + 40,
                                    3 * slot_bytes(ranks) / sizeof(float)}) {
      for (const bool windows : {false, true}) {
        const auto buffer = [&] {
          return windows ? ranks.allocate(count + 1, DType::kF32) : Buffer(count + 1, DType::kF32);
        };
        Buffer input = buffer(), output = buffer();
        disagree_about_everything(ranks, input, output);
      }
    }
  });
}

TEST(SharedMemory, ScalesAreAppliedOnceWhereverBuffersLie) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    CallOptions options;
    options.prescale = 0.5;
    options.postscale = 4.0;
    for (const std::size_t count : {std::size_t{7}, std::size_t{300}, 2 * slot_bytes(ranks) / sizeof(float)}) {
      for (const Places& places : all_places()) {
        Placed<float> input(ranks, places.input(ranks.rank()), count, 3);
        Placed<float> output(ranks, places.output(ranks.rank()), count, 1);
        for (std::size_t i = 0; i < count; ++i) input.data()[i] = static_cast<float>(i % 1000);
        ranks.allreduce(BufferView(input.data(), count, DType::kF32), BufferView(output.data(), count, DType::kF32),
                        ReduceOp::kAverage, options);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_FLOAT_EQ(output.data()[i], static_cast<float>(2 * (i % 1000))) << places.name << ", count " << count;
          ASSERT_EQ(input.data()[i], static_cast<float>(i % 1000)) << "the input changed, " << places.name;
        }
      }
    }
  });
}

}  // namespace
}  // namespace farandole::test
