// SPDX-License-Identifier: Apache-2.0
// allreduce, reduce and reduce_scatter: compares every algorithm, size and count with a reduction in double.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "farandole/core/error.h"
#include "groups.h"
#include "values.h"

namespace farandole::test {
namespace {

std::vector<std::size_t> counts_for(int size) {
  const auto p = static_cast<std::size_t>(size);
  return {0, 1, p - 1, p, p + 1, 97, 40'009};
}

struct Case {
  std::string algorithm;
  std::size_t count;
  DType dtype;
  ReduceOp op;
  bool in_place;
  int segments;
};

std::string describe(const Case& c, const Communicator& ranks) {
  return fmt::format("{} of {} {} {}, in place {}, {} segments, rank {} of {}", c.algorithm, c.count, name(c.dtype),
                     name(c.op), c.in_place, c.segments, ranks.rank(), ranks.size());
}

void check_allreduce(Communicator& ranks, const Case& c) {
  Buffer input = values(ranks.rank(), 0, c.count, c.dtype, c.op);
  Buffer other(c.count, c.dtype);
  Buffer& output = c.in_place ? input : other;
  CallOptions options;
  options.algorithm = c.algorithm;
  options.segments = c.segments;
  ranks.allreduce(input.view(), output.view(), c.op, options);
  const std::string difference =
      first_difference(output.view(), [&](std::size_t i) { return reduced(ranks.size(), i, c.dtype, c.op); });
  EXPECT_EQ(difference, "") << describe(c, ranks);
  if (!c.in_place) {
    EXPECT_EQ(first_difference(input.view(), [&](std::size_t i) { return value(ranks.rank(), i, c.dtype, c.op); }), "")
        << "input changed by " << describe(c, ranks);
  }
}

TEST(Allreduce, EveryAlgorithmSizeAndCount) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    for (const std::string& algorithm : algorithm_names(Collective::kAllreduce, ranks)) {
      for (const std::size_t count : counts_for(ranks.size())) {
        for (const bool in_place : {false, true}) {
          check_allreduce(ranks, {algorithm, count, DType::kI32, ReduceOp::kSum, in_place, 0});
        }
      }
    }
  });
}

TEST(Allreduce, TypesOperationsSegmentsAndPlaceByPairs) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    int k = 0;  // walks through the parameters that are not in the loops
    for (const std::string& algorithm : algorithm_names(Collective::kAllreduce, ranks)) {
      for (const DType dtype : kAllDTypes) {
        for (const ReduceOp op : kAllReduceOps) {
          if (op == ReduceOp::kAverage || !is_defined(op, dtype)) continue;
          ++k;
          const std::size_t counts[] = {1, 37, 1031};
          // Products of 8-bit integers overflow from 2^7 on; with at most 8 ranks few enough factors are 2.
          check_allreduce(ranks, {algorithm, counts[k % 3], dtype, op, k % 2 == 0, 1 + k % 5});
        }
      }
    }
  });
}

TEST(Allreduce, AverageAndScaling) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    for (const std::string& algorithm : algorithm_names(Collective::kAllreduce, ranks)) {
      for (const DType dtype : {DType::kF32, DType::kF64}) {
        for (const bool in_place : {false, true}) {
          Buffer input = values(ranks.rank(), 0, 129, dtype, ReduceOp::kSum);
          Buffer other(129, dtype);
          Buffer& output = in_place ? input : other;
          CallOptions options;
          options.algorithm = algorithm;
          options.prescale = 0.5;
          options.postscale = 4.0;
          ranks.allreduce(input.view(), output.view(), ReduceOp::kAverage, options);
          for (std::size_t i = 0; i < 129; ++i) {
            const double expected = 2.0 * reduced(ranks.size(), i, dtype, ReduceOp::kSum) / ranks.size();
            // One rounding of the factor, one of the product.
            ASSERT_NEAR(load(output.view(), i), expected, 2e-7 * expected) << algorithm << ", element " << i;
          }
        }
      }
    }
  });
}

/// Product of an integer and a factor, rounded toward zero; exact for a factor of 1/n.
double truncated(double number, double factor) {
  return std::trunc(number * factor * (1 + 0x1p-50));
}

TEST(Allreduce, FactorsAndAveragesOfIntegers) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    for (const std::string& algorithm : algorithm_names(Collective::kAllreduce, ranks)) {
      for (const DType dtype : kAllDTypes) {
        if (dtype == DType::kBool || is_floating_point(dtype)) continue;
        for (const auto& [op, prescale, postscale] :
             {std::tuple(ReduceOp::kAverage, 1.0, 1.0), std::tuple(ReduceOp::kAverage, 1.5, 2.5),
              std::tuple(ReduceOp::kSum, 0.5, 0.75)}) {
          Buffer input = values(ranks.rank(), 0, 129, dtype, ReduceOp::kSum);
          Buffer output(129, dtype);
          CallOptions options;
          options.algorithm = algorithm;
          options.prescale = prescale;
          options.postscale = postscale;
          ranks.allreduce(input.view(), output.view(), op, options);
          const double factor = op == ReduceOp::kAverage ? postscale / ranks.size() : postscale;
          const std::string difference = first_difference(output.view(), [&, scale = prescale](std::size_t i) {
            double sum = 0;
            for (int r = 0; r < ranks.size(); ++r) sum += truncated(value(r, i, dtype, ReduceOp::kSum), scale);
            return truncated(sum, factor);
          });
          ASSERT_EQ(difference, "") << algorithm << " of " << name(dtype) << ", factors " << prescale << ", " << factor;
        }
      }
    }
  });
}

TEST(Allreduce, SameBitsOnAllRanksAndErrorWithinBound) {
  const unsigned seed = std::random_device{}();
  for_each_group({2, 3, 4, 7, 8}, [&](Communicator& ranks) {
    const auto p = static_cast<std::size_t>(ranks.size());
    std::vector<std::uint32_t> shared_seed{seed};
    BufferView seed_view(shared_seed.data(), 1, DType::kI32);
    ranks.broadcast(seed_view, 0);
    constexpr std::size_t kCount = 5003;
    for (const std::string& algorithm : algorithm_names(Collective::kAllreduce, ranks)) {
      std::vector<std::vector<float>> all(p, std::vector<float>(kCount));
      for (std::size_t r = 0; r < p; ++r) {
        std::mt19937 random(shared_seed[0] + static_cast<unsigned>(r));
        std::normal_distribution<float> normal;
        for (float& x : all[r]) x = normal(random);
      }
      std::vector<float> result(kCount);
      CallOptions options;
      options.algorithm = algorithm;
      ranks.allreduce(all[static_cast<std::size_t>(ranks.rank())], result, ReduceOp::kSum, options);
      for (std::size_t i = 0; i < kCount; ++i) {
        double exact = 0, magnitude = 0;
        for (std::size_t r = 0; r < p; ++r) exact += all[r][i], magnitude += std::abs(all[r][i]);
        // p - 1 additions, each with a relative error of at most 2^-24 of the sum of magnitudes.
        const double bound = static_cast<double>(p - 1) * 0x1p-24 * magnitude;
        ASSERT_NEAR(result[i], exact, bound) << algorithm << ", seed " << shared_seed[0] << ", element " << i;
      }
      std::vector<std::uint8_t> bytes(kCount * sizeof(float)), root_bytes;
      std::memcpy(bytes.data(), result.data(), bytes.size());
      root_bytes = bytes;
      ranks.broadcast(root_bytes, 0);
      ASSERT_EQ(bytes, root_bytes) << algorithm << " gave rank " << ranks.rank() << " other bits than rank 0";
    }
  });
}

TEST(Reduce, EveryAlgorithmRootAndCount) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    for (const std::string& algorithm : algorithm_names(Collective::kReduce, ranks)) {
      for (const std::size_t count : counts_for(ranks.size())) {
        for (const int root : {0, ranks.size() / 2, ranks.size() - 1}) {
          Buffer input = values(ranks.rank(), 0, count, DType::kI32, ReduceOp::kSum);
          Buffer output(ranks.rank() == root ? count : 0, DType::kI32);
          CallOptions options;
          options.algorithm = algorithm;
          ranks.reduce(input.view(), output.view(), ReduceOp::kSum, root, options);
          EXPECT_EQ(
              first_difference(output.view(),
                               [&](std::size_t i) { return reduced(ranks.size(), i, DType::kI32, ReduceOp::kSum); }),
              "")
              << algorithm << ", root " << root << ", count " << count;
          EXPECT_EQ(
              first_difference(input.view(),
                               [&](std::size_t i) { return value(ranks.rank(), i, DType::kI32, ReduceOp::kSum); }),
              "")
              << "input changed by " << algorithm;
        }
      }
    }
  });
}

TEST(ReduceScatter, EveryAlgorithmEvenAndUnevenCounts) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    const auto p = static_cast<std::size_t>(ranks.size());
    for (const std::string& algorithm : algorithm_names(Collective::kReduceScatter, ranks)) {
      for (const std::size_t unit : {0, 1, 5, 1009}) {
        for (const bool uneven : {false, true}) {
          std::vector<std::size_t> counts(p, unit);
          if (uneven) {
            for (std::size_t r = 0; r < p; ++r) counts[r] = r % 3 == 1 ? 0 : unit + r;
          }
          std::size_t total = 0, first = 0;
          for (std::size_t r = 0; r < p; ++r) {
            if (static_cast<int>(r) < ranks.rank()) first += counts[r];
            total += counts[r];
          }
          Buffer input = values(ranks.rank(), 0, total, DType::kF32, ReduceOp::kSum);
          Buffer output(counts[static_cast<std::size_t>(ranks.rank())], DType::kF32);
          CallOptions options;
          options.algorithm = algorithm;
          ranks.reduce_scatter(input.view(), output.view(), ReduceOp::kSum,
                               uneven ? counts : std::vector<std::size_t>{}, options);
          EXPECT_EQ(first_difference(
                        output.view(),
                        [&](std::size_t i) { return reduced(ranks.size(), first + i, DType::kF32, ReduceOp::kSum); }),
                    "")
              << algorithm << ", unit " << unit << ", uneven " << uneven << ", rank " << ranks.rank();
        }
      }
    }
  });
}

/// All ranks' elements but the last part are of equal length, and the lengths are odd.
TEST(ReduceScatter, BitwiseOperationsOfEveryInteger) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    const auto size = static_cast<std::size_t>(ranks.size()), rank = static_cast<std::size_t>(ranks.rank());
    constexpr std::size_t kPart = 37;
    std::vector<std::size_t> counts(size, kPart);
    counts.back() = 3;
    const std::size_t total = kPart * (size - 1) + counts.back();
    for (const std::string& algorithm : algorithm_names(Collective::kReduceScatter, ranks)) {
      for (const DType dtype : kAllDTypes) {
        for (const ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
          if (!is_defined(op, dtype)) continue;
          Buffer input = values(ranks.rank(), 0, total, dtype, op);
          Buffer output(counts[rank], dtype);
          ranks.reduce_scatter(input.view(), output.view(), op, counts, {.algorithm = algorithm});
          EXPECT_EQ(first_difference(output.view(),
                                     [&](std::size_t i) { return reduced(ranks.size(), kPart * rank + i, dtype, op); }),
                    "")
              << algorithm << " " << name(dtype) << " " << name(op) << ", rank " << rank;
        }
      }
    }
  });
}

TEST(Reduce, BitwiseOperationsOfEveryInteger) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    constexpr std::size_t kCount = 41;
    const int root = ranks.size() - 1;
    for (const std::string& algorithm : algorithm_names(Collective::kReduce, ranks)) {
      for (const DType dtype : kAllDTypes) {
        for (const ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
          if (!is_defined(op, dtype)) continue;
          Buffer input = values(ranks.rank(), 0, kCount, dtype, op);
          Buffer output(ranks.rank() == root ? kCount : 0, dtype);
          ranks.reduce(input.view(), output.view(), op, root, {.algorithm = algorithm});
          EXPECT_EQ(first_difference(output.view(), [&](std::size_t i) { return reduced(ranks.size(), i, dtype, op); }),
                    "")
              << algorithm << " " << name(dtype) << " " << name(op) << ", rank " << ranks.rank();
        }
      }
    }
  });
}

}  // namespace
}  // namespace farandole::test
