// SPDX-License-Identifier: Apache-2.0
// The collectives that move data without reducing it: broadcast, allgather, gather, scatter, alltoall, barrier.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "groups.h"
#include "values.h"

namespace farandole::test {
namespace {

constexpr ReduceOp kAny = ReduceOp::kSum;

/// Calls `body(counts, uneven)` with even and uneven counts per rank, empty ones among them.
void for_each_counts(int size, const std::function<void(const std::vector<std::size_t>&, bool)>& body) {
  const auto p = static_cast<std::size_t>(size);
  for (const std::size_t unit : {0, 1, 7, 1009}) {
    body(std::vector<std::size_t>(p, unit), false);
    std::vector<std::size_t> uneven(p);
    for (std::size_t r = 0; r < p; ++r) uneven[r] = r % 2 == 1 ? 0 : unit + 3 * r;
    body(uneven, true);
  }
}

/// Rank and index within its part of element `i` of the concatenation of all parts.
std::pair<int, std::size_t> owner_of(std::size_t i, const std::vector<std::size_t>& counts) {
  std::size_t rank = 0;
  while (i >= counts[rank]) i -= counts[rank++];
  return {static_cast<int>(rank), i};
}

std::size_t sum(const std::vector<std::size_t>& counts, std::size_t end) {
  std::size_t total = 0;
  for (std::size_t r = 0; r < end; ++r) total += counts[r];
  return total;
}

TEST(Broadcast, EveryAlgorithmRootAndCount) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    const auto p = static_cast<std::size_t>(ranks.size());
    for (const std::string& algorithm : algorithm_names(Collective::kBroadcast, ranks)) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, p - 1, p, p + 1, std::size_t{40'009}}) {
        for (int root = 0; root < ranks.size(); ++root) {
          Buffer data = values(ranks.rank(), 0, count, DType::kI16, kAny);
          ranks.broadcast(data.view(), root, {.algorithm = algorithm});
          EXPECT_EQ(first_difference(data.view(), [&](std::size_t i) { return value(root, i, DType::kI16, kAny); }), "")
              << algorithm << ", root " << root << ", count " << count;
        }
      }
    }
  });
}

TEST(Allgather, EveryAlgorithmEvenUnevenAndInPlace) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    const auto own = static_cast<std::size_t>(ranks.rank());
    for (const std::string& algorithm : algorithm_names(Collective::kAllgather, ranks)) {
      for_each_counts(ranks.size(), [&](const std::vector<std::size_t>& counts, bool uneven) {
        for (const bool in_place : {false, true}) {
          Buffer input = values(ranks.rank(), 0, counts[own], DType::kI64, kAny);
          Buffer output(sum(counts, counts.size()), DType::kI64);
          ConstBufferView source = input.view();
          if (in_place) {
            const BufferView part = output.view().part(sum(counts, own), counts[own]);
            for (std::size_t i = 0; i < counts[own]; ++i) store(part, i, value(ranks.rank(), i, DType::kI64, kAny));
            source = part;
          }
          ranks.allgather(source, output.view(), uneven ? counts : std::vector<std::size_t>{},
                          {.algorithm = algorithm});
          EXPECT_EQ(first_difference(output.view(),
                                     [&](std::size_t i) {
                                       const auto [rank, index] = owner_of(i, counts);
                                       return value(rank, index, DType::kI64, kAny);
                                     }),
                    "")
              << algorithm << ", uneven " << uneven << ", in place " << in_place;
        }
      });
    }
  });
}

TEST(Gather, EveryAlgorithmAndRoot) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    const auto own = static_cast<std::size_t>(ranks.rank());
    for (const std::string& algorithm : algorithm_names(Collective::kGather, ranks)) {
      for_each_counts(ranks.size(), [&](const std::vector<std::size_t>& counts, bool uneven) {
        for (int root = 0; root < ranks.size(); ++root) {
          Buffer input = values(ranks.rank(), 0, counts[own], DType::kF64, kAny);
          Buffer output(ranks.rank() == root ? sum(counts, counts.size()) : 0, DType::kF64);
          ranks.gather(input.view(), output.view(), root, uneven ? counts : std::vector<std::size_t>{},
                       {.algorithm = algorithm});
          EXPECT_EQ(first_difference(output.view(),
                                     [&](std::size_t i) {
                                       const auto [rank, index] = owner_of(i, counts);
                                       return value(rank, index, DType::kF64, kAny);
                                     }),
                    "")
              << algorithm << ", root " << root << ", uneven " << uneven;
        }
      });
    }
  });
}

TEST(Scatter, EveryAlgorithmAndRoot) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    const auto own = static_cast<std::size_t>(ranks.rank());
    for (const std::string& algorithm : algorithm_names(Collective::kScatter, ranks)) {
      for_each_counts(ranks.size(), [&](const std::vector<std::size_t>& counts, bool uneven) {
        for (int root = 0; root < ranks.size(); ++root) {
          Buffer input;
          if (ranks.rank() == root) input = values(root, 0, sum(counts, counts.size()), DType::kU8, kAny);
          Buffer output(counts[own], DType::kU8);
          ranks.scatter(input.view(), output.view(), root, uneven ? counts : std::vector<std::size_t>{},
                        {.algorithm = algorithm});
          const std::size_t first = sum(counts, own);
          EXPECT_EQ(
              first_difference(output.view(), [&](std::size_t i) { return value(root, first + i, DType::kU8, kAny); }),
              "")
              << algorithm << ", root " << root << ", uneven " << uneven;
        }
      });
    }
  });
}

/// Number of elements that rank `from` sends to rank `to`.
std::size_t exchanged(int from, int to, std::size_t unit) {
  return (from + 2 * to) % 3 == 0 ? 0 : unit + static_cast<std::size_t>(from);
}

TEST(Alltoall, EvenAndInPlace) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    const auto p = static_cast<std::size_t>(ranks.size());
    const auto own = static_cast<std::size_t>(ranks.rank());
    for (const std::size_t unit : {0, 1, 1009}) {
      for (const bool in_place : {false, true}) {
        Buffer input = values(ranks.rank(), 0, p * unit, DType::kF32, kAny);
        Buffer other(p * unit, DType::kF32);
        Buffer& output = in_place ? input : other;
        ranks.alltoall(input.view(), output.view());
        EXPECT_EQ(first_difference(output.view(),
                                   [&](std::size_t i) {
                                     return value(static_cast<int>(i / unit), own * unit + i % unit, DType::kF32, kAny);
                                   }),
                  "")
            << "unit " << unit << ", in place " << in_place;
      }
    }
  });
}

TEST(Alltoall, Uneven) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    for (const std::size_t unit : {0, 1, 211}) {
      std::vector<std::size_t> send, recv;
      for (int peer = 0; peer < ranks.size(); ++peer) {
        send.push_back(exchanged(ranks.rank(), peer, unit));
        recv.push_back(exchanged(peer, ranks.rank(), unit));
      }
      Buffer input(sum(send, send.size()), DType::kI32), output(sum(recv, recv.size()), DType::kI32);
      for (std::size_t i = 0; i < input.count(); ++i) {
        const auto [to, index] = owner_of(i, send);
        store(input.view(), i, 1000 * ranks.rank() + 100 * to + static_cast<double>(index % 100));
      }
      ranks.alltoall(input.view(), output.view(), send, recv);
      EXPECT_EQ(first_difference(output.view(),
                                 [&](std::size_t i) {
                                   const auto [from, index] = owner_of(i, recv);
                                   return 1000 * from + 100 * ranks.rank() + static_cast<double>(index % 100);
                                 }),
                "");
    }
  });
}

TEST(Barrier, NobodyLeavesBeforeAllHaveEntered) {
  std::atomic<int> entered{0};
  for_each_group({1, 2, 3, 5, 8}, [&](Communicator& ranks) {
    if (is_launched()) {  // ranks have no memory in common: only that it returns can be seen
      for (int i = 0; i < 100; ++i) ranks.barrier();
      return;
    }
    for (int round = 1; round <= 50; ++round) {
      ++entered;
      ranks.barrier();
      EXPECT_GE(entered.load(), round * ranks.size());
      ranks.barrier();
    }
    ranks.barrier();
    if (ranks.rank() == 0) entered = 0;
    ranks.barrier();
  });
}

}  // namespace
}  // namespace farandole::test
