// SPDX-License-Identifier: Apache-2.0
// Every collective by the hierarchical method must give the same results as by messages between all ranks. The hosts
// are simulated by threads.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "communicator_probe.h"
#include "farandole/collectives/communicator.h"
#include "farandole/internal/communicator_access.h"

namespace farandole {
namespace {

using Blocks = std::vector<std::size_t>;

const std::vector<std::vector<int>> kHostsOfRanks{{0, 0, 1, 1}, {0, 0, 0, 1},    {0, 1, 1, 2, 2, 2},
                                                  {0, 1, 0, 1}, {1, 0, 1, 0, 1}, {0, 0, 1, 1, 1, 1, 0}};
constexpr std::size_t kLarge = 40'009;

std::size_t elements_before(const Blocks& counts, std::size_t end) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(end), std::size_t{0});
}

template <class T>
std::vector<T> values_of(int rank, std::size_t count) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<T>((static_cast<std::size_t>(rank) * 37 + i) % 11);
  return all;
}

/// Calls `body` on communicators of threads that count as living on these hosts.
void for_each_layout(const std::function<void(Communicator&)>& body) {
  for (const std::vector<int>& layout : kHostsOfRanks) {
    SCOPED_TRACE(testing::PrintToString(layout));
    run_replicas(static_cast<int>(layout.size()), [&](Communicator& ranks) {
      Communicator hosts = CommunicatorProbe::on_hosts(ranks.duplicate(), layout);
      body(hosts);
    });
  }
}

Blocks vector_counts(const Communicator& ranks) {
  return {0, 1, static_cast<std::size_t>(ranks.size()) - 1, 977, kLarge};
}

/// Even and uneven blocks, empty ones among them.
void for_each_counts(const Communicator& ranks, const std::function<void(const Blocks&)>& body) {
  const auto size = static_cast<std::size_t>(ranks.size());
  for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, size - 1, std::size_t{977}, kLarge / size}) {
    body(Blocks(size, unit));
    Blocks uneven(size);
    for (std::size_t rank = 0; rank < size; ++rank) uneven[rank] = rank % 2 == 1 ? 0 : unit + 3 * rank;
    body(uneven);
  }
}

/// Runs a call by the hierarchical method and by a schedule over messages, and compares the results. Reductions of
/// small numbers are exact, so both give the same bits.
template <class T, class Run>
void expect_same(const Communicator& ranks, Collective collective, std::size_t output_count, const Run& run,
                 const std::string& what) {
  std::vector<T> by_hosts(output_count, T(99)), by_messages(output_count, T(99));
  run(by_hosts, std::string_view("hierarchical"));
  const auto flat =
      std::ranges::find_if(algorithms(), [&](const Algorithm& one) { return one.collective == collective; });
  run(by_messages, flat->name);
  ASSERT_EQ(by_hosts, by_messages) << name(collective) << ", " << what << ", rank " << ranks.rank();
}

TEST(HierarchicalCollectives, BroadcastFromEveryRoot) {
  for_each_layout([](Communicator& ranks) {
    for (const std::size_t count : vector_counts(ranks)) {
      for (int root = 0; root < ranks.size(); ++root) {
        expect_same<std::int32_t>(
            ranks, Collective::kBroadcast, count,
            [&](std::vector<std::int32_t>& output, std::string_view algorithm) {
              if (ranks.rank() == root) output = values_of<std::int32_t>(root, count);
              ranks.broadcast(output, root, {.algorithm = algorithm});
            },
            fmt::format("{} elements from {}", count, root));
      }
    }
  });
}

TEST(HierarchicalCollectives, ReduceToEveryRootAndAllreduceWithFactors) {
  for_each_layout([](Communicator& ranks) {
    for (const std::size_t count : vector_counts(ranks)) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kAverage}) {
        CallOptions options;
        options.prescale = 4.0;
        options.postscale = 0.5;
        const auto run = [&](std::vector<float>& output, std::string_view algorithm, int root, bool in_place) {
          std::vector<float> input = values_of<float>(ranks.rank(), count);
          if (in_place) output = input;
          const ConstBufferView from = in_place ? ConstBufferView(output) : ConstBufferView(input);
          options.algorithm = algorithm;
          if (root < 0) {
            ranks.allreduce(from, output, op, options);
          } else {
            ranks.reduce(from, output, op, root, options);
          }
          if (in_place) return;
          EXPECT_EQ(input, values_of<float>(ranks.rank(), count)) << "the input has changed";
        };
        for (int root = -1; root < ranks.size(); ++root) {
          for (const bool in_place : {false, true}) {
            const bool has_output = root < 0 || root == ranks.rank();
            expect_same<float>(
                ranks, root < 0 ? Collective::kAllreduce : Collective::kReduce, has_output ? count : 0,
                [&](auto& output, auto algorithm) { run(output, algorithm, root, in_place && has_output); },
                fmt::format("{} elements to {}, in place {}", count, root, in_place));
          }
        }
      }
    }
  });
}

TEST(HierarchicalCollectives, AllgatherAndGatherToEveryRoot) {
  for_each_layout([](Communicator& ranks) {
    const auto own = static_cast<std::size_t>(ranks.rank());
    for_each_counts(ranks, [&](const Blocks& counts) {
      for (int root = -1; root < ranks.size(); ++root) {
        for (const bool in_place : {false, true}) {
          const bool has_output = root < 0 || root == ranks.rank();
          expect_same<double>(
              ranks, root < 0 ? Collective::kAllgather : Collective::kGather,
              has_output ? elements_before(counts, counts.size()) : 0,
              [&](std::vector<double>& output, std::string_view algorithm) {
                const std::vector<double> input = values_of<double>(ranks.rank(), counts[own]);
                ConstBufferView from(input);
                if (in_place && has_output) {
                  const BufferView part = BufferView(output).part(elements_before(counts, own), counts[own]);
                  std::copy(input.begin(), input.end(), static_cast<double*>(part.data));
                  from = part;
                }
                if (root < 0) {
                  ranks.allgather(from, output, counts, {.algorithm = algorithm});
                } else {
                  ranks.gather(from, output, root, counts, {.algorithm = algorithm});
                }
              },
              fmt::format("{} elements to {}, in place {}", counts[0], root, in_place));
        }
      }
    });
  });
}

TEST(HierarchicalCollectives, ReduceScatterAndScatterFromEveryRoot) {
  for_each_layout([](Communicator& ranks) {
    const auto own = static_cast<std::size_t>(ranks.rank());
    for_each_counts(ranks, [&](const Blocks& counts) {
      for (int root = -1; root < ranks.size(); ++root) {
        expect_same<std::int64_t>(
            ranks, root < 0 ? Collective::kReduceScatter : Collective::kScatter, counts[own],
            [&](std::vector<std::int64_t>& output, std::string_view algorithm) {
              const bool has_input = root < 0 || root == ranks.rank();
              const auto input =
                  values_of<std::int64_t>(ranks.rank(), has_input ? elements_before(counts, counts.size()) : 0);
              if (root < 0) {
                CallOptions options;
                options.algorithm = algorithm;
                options.postscale = 2.0;
                ranks.reduce_scatter(input, output, ReduceOp::kSum, counts, options);
              } else {
                ranks.scatter(input, output, root, counts, {.algorithm = algorithm});
              }
            },
            fmt::format("{} elements from {}", counts[0], root));
      }
    });
  });
}

TEST(HierarchicalCollectives, AlltoallAndInPlace) {
  for_each_layout([](Communicator& hosts) {
    Communicator ranks = CommunicatorProbe::measured(std::move(hosts), Collective::kAlltoall, "hierarchical");
    ASSERT_EQ(internals(ranks).choose(Collective::kAlltoall, 0), "hierarchical");
    const auto size = static_cast<std::size_t>(ranks.size());
    for (const std::size_t each : {0, 1, 3, 97}) {
      for (const bool in_place : {false, true}) {
        std::vector<std::int16_t> input, output(size * each), wanted;
        for (std::size_t i = 0; i < size * each; ++i) {
          input.push_back(static_cast<std::int16_t>(1000 * ranks.rank() + static_cast<int>(i)));
          const auto from = static_cast<int>(i / each), index = ranks.rank() * static_cast<int>(each);
          wanted.push_back(static_cast<std::int16_t>(1000 * from + index + static_cast<int>(i % each)));
        }
        ranks.alltoall(input, in_place ? BufferView(input) : BufferView(output));
        ASSERT_EQ(in_place ? input : output, wanted) << each << " elements, rank " << ranks.rank();
      }
    }
  });
}

TEST(HierarchicalCollectives, LongVectorsPassInSlices) {
  for_each_layout([](Communicator& ranks) {
    const auto size = static_cast<std::size_t>(ranks.size());
    constexpr std::size_t kCount = 1'000'003;  // of 4 bytes: three slices
    const auto own = values_of<std::int32_t>(ranks.rank(), kCount);
    std::vector<std::int32_t> added(kCount), sent = own, wanted(kCount), gathered(kCount / size * size);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const auto more = values_of<std::int32_t>(rank, kCount);
      for (std::size_t i = 0; i < kCount; ++i) wanted[i] += more[i];
    }
    ranks.allreduce(own, added, ReduceOp::kSum, {1.0, 1.0, "hierarchical"});
    ranks.broadcast(sent, 1, {.algorithm = "hierarchical"});
    const std::size_t each = kCount / size;
    ranks.allgather(ConstBufferView(own.data(), each, DType::kI32), gathered, {}, {.algorithm = "hierarchical"});
    ASSERT_EQ(added, wanted);
    ASSERT_EQ(sent, values_of<std::int32_t>(1, kCount));
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const auto first = gathered.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rank) * each);
      ASSERT_TRUE(
          std::equal(first, first + static_cast<std::ptrdiff_t>(each), values_of<std::int32_t>(rank, each).begin()))
          << "the block of rank " << rank;
    }
  });
}

TEST(HierarchicalCollectives, DifferentCollectivesAreInFlightTogether) {
  for_each_layout([](Communicator& ranks) {
    const auto size = static_cast<std::size_t>(ranks.size());
    constexpr std::size_t kCount = 20'000;
    for (int round = 0; round < 5; ++round) {
      const auto own = static_cast<float>(ranks.rank() + round);
      std::vector<float> added(kCount, own), sent(kCount, own), gathered(size * 100), block(100, own), part(100);
      std::vector<float> all(size * 100, own);
      const int root = round % ranks.size();
      std::vector<Work> works;
      works.push_back(ranks.gather_async(block, ranks.rank() == root ? BufferView(gathered) : BufferView(), root));
      works.push_back(ranks.allreduce_async(added, ReduceOp::kSum));
      works.push_back(ranks.barrier_async());
      works.push_back(ranks.broadcast_async(sent, root));
      works.push_back(ranks.reduce_scatter_async(all, part, ReduceOp::kMax));
      std::for_each(works.rbegin(), works.rend(), [](Work& work) { work.wait(); });
      const std::size_t sum_of_ranks = size * (size - 1) / 2;
      const auto total = static_cast<float>(sum_of_ranks + size * static_cast<std::size_t>(round));
      ASSERT_EQ(added, std::vector<float>(kCount, total));
      ASSERT_EQ(sent, std::vector<float>(kCount, static_cast<float>(root + round)));
      ASSERT_EQ(part, std::vector<float>(100, static_cast<float>(ranks.size() - 1 + round)));
      for (std::size_t i = 0; ranks.rank() == root && i < gathered.size(); ++i) {
        ASSERT_EQ(gathered[i], static_cast<float>(static_cast<int>(i / 100) + round));
      }
    }
  });
}

}  // namespace
}  // namespace farandole
