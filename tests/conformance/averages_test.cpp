// SPDX-License-Identifier: Apache-2.0
// Averages whose sum overflows the type, and bit-exact results with factors, by every algorithm.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "groups.h"
#include "values.h"
#include "variable.h"

namespace farandole::test {
namespace {

constexpr DType kIntegers[] = {DType::kU8, DType::kI8, DType::kU16, DType::kI16, DType::kI32, DType::kU32};
constexpr std::size_t kCount = 1031;

double highest(DType dtype) {
  return with_stored_type(dtype, [](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>) return static_cast<double>(std::numeric_limits<T>::max());
    return 0.0;
  });
}
double lowest(DType dtype) {
  return with_stored_type(dtype, [](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>) return static_cast<double>(std::numeric_limits<T>::min());
    return 0.0;
  });
}

/// Near the ends of the range of an integer type.
double extreme(int rank, std::size_t index, DType dtype) {
  const auto off = static_cast<double>((index + static_cast<std::size_t>(rank)) % 7);
  return index % 2 == 0 ? highest(dtype) - off : lowest(dtype) + off;
}
double average_of_extremes(int size, std::size_t index, DType dtype) {
  double sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += extreme(rank, index, dtype);
  return std::trunc(sum / size);
}

Buffer extremes(int rank, std::size_t count, DType dtype) {
  Buffer buffer(count, dtype);
  for (std::size_t i = 0; i < count; ++i) store(buffer.view(), i, extreme(rank, i, dtype));
  return buffer;
}

TEST(Averages, IntegerAveragesAreExactIfTheSumOverflows) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    for (const std::string& algorithm : algorithm_names(Collective::kAllreduce, ranks)) {
      for (const DType dtype : kIntegers) {
        for (const std::size_t count : {std::size_t{3}, kCount}) {
          for (const bool in_place : {false, true}) {
            Buffer input = extremes(ranks.rank(), count, dtype);
            Buffer other(count, dtype);
            Buffer& output = in_place ? input : other;
            CallOptions options;
            options.algorithm = algorithm;
            ranks.allreduce(input.view(), output.view(), ReduceOp::kAverage, options);
            ASSERT_EQ(first_difference(output.view(),
                                       [&](std::size_t i) { return average_of_extremes(ranks.size(), i, dtype); }),
                      "")
                << algorithm << " of " << name(dtype) << ", in place " << in_place;
          }
        }
      }
    }
  });
}

TEST(Averages, IntegerAveragesOfReduceAndReduceScatterAreExact) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    const auto size = static_cast<std::size_t>(ranks.size());
    const int root = ranks.size() - 1;
    for (const DType dtype : kIntegers) {
      CallOptions options;
      for (const std::string& algorithm : algorithm_names(Collective::kReduce, ranks)) {
        options.algorithm = algorithm;
        const Buffer input = extremes(ranks.rank(), kCount, dtype);
        Buffer output(kCount, dtype);
        ranks.reduce(input.view(), output.view(), ReduceOp::kAverage, root, options);
        if (ranks.rank() != root) continue;
        ASSERT_EQ(
            first_difference(output.view(), [&](std::size_t i) { return average_of_extremes(ranks.size(), i, dtype); }),
            "")
            << "reduce by " << algorithm << " of " << name(dtype);
      }
      std::vector<std::size_t> counts(size, 100);
      counts.back() = 57;
      const std::size_t first = 100 * static_cast<std::size_t>(ranks.rank());
      for (const std::string& algorithm : algorithm_names(Collective::kReduceScatter, ranks)) {
        options.algorithm = algorithm;
        const Buffer input = extremes(ranks.rank(), 100 * (size - 1) + 57, dtype);
        Buffer output(counts[static_cast<std::size_t>(ranks.rank())], dtype);
        ranks.reduce_scatter(input.view(), output.view(), ReduceOp::kAverage, counts, options);
        ASSERT_EQ(first_difference(output.view(),
                                   [&](std::size_t i) { return average_of_extremes(ranks.size(), first + i, dtype); }),
                  "")
            << "reduce_scatter by " << algorithm << " of " << name(dtype);
      }
    }
  });
}

TEST(Averages, HalfAveragesStayInRange) {
  for_each_group(conformance_sizes(), [](Communicator& ranks) {
    for (const std::string& algorithm : algorithm_names(Collective::kAllreduce, ranks)) {
      for (const std::size_t count : {std::size_t{3}, kCount}) {
        Buffer values(count, DType::kF16);
        for (std::size_t i = 0; i < count; ++i) store(values.view(), i, i % 2 == 0 ? 60'000 : -60'000);
        CallOptions options;
        options.algorithm = algorithm;
        ranks.allreduce(values.view(), values.view(), ReduceOp::kAverage, options);
        for (std::size_t i = 0; i < count; ++i) {
          const double wanted = i % 2 == 0 ? 60'000 : -60'000;
          // A rounding of each contribution and of each sum, where they travel.
          ASSERT_NEAR(load(values.view(), i), wanted, 2 * ranks.size() * 0x1p-11 * 60'000)
              << algorithm << ", element " << i;
          ASSERT_TRUE(std::isfinite(load(values.view(), i))) << algorithm << ", element " << i;
        }
      }
    }
  });
}

/// The average of `number`, three times, by messages.
double average_of_halves(double number) {
  double result = 0;
  run_replicas(3, [&](Communicator& ranks) {
    Buffer values(kCount, DType::kF16);
    for (std::size_t i = 0; i < kCount; ++i) store(values.view(), i, number);
    CallOptions options;
    options.algorithm = "ring";
    ranks.allreduce(values.view(), values.view(), ReduceOp::kAverage, options);
    if (ranks.rank() == 0) result = load(values.view(), kCount - 1);
  });
  return result;
}

TEST(Averages, SettingDividesHalvesFirstOrLast) {
  if (is_launched()) GTEST_SKIP() << "a job has the settings that it was started with";
  constexpr double kLeast = 0x1p-24;
  {
    const Variable first("FARANDOLE_F16_AVERAGE", "divide_first");
    EXPECT_NEAR(average_of_halves(60'000), 60'000, 100);
    EXPECT_EQ(average_of_halves(kLeast), 0) << "a third of it is no half";
  }
  const Variable last("FARANDOLE_F16_AVERAGE", "divide_last");
  EXPECT_EQ(average_of_halves(60'000), HUGE_VAL);
  EXPECT_EQ(average_of_halves(kLeast), kLeast);
}

/// One rank has numbers, the others zeros: no addition rounds.
Buffer numbers_of_first(const Communicator& ranks, std::size_t count) {
  Buffer values(count, DType::kF32);
  for (std::size_t i = 0; i < count; ++i) {
    const auto number = static_cast<float>(i) * 0.7300511F - 100.0F;
    store(values.view(), i, ranks.rank() == 0 ? static_cast<double>(number) : 0.0);
  }
  return values;
}

TEST(Averages, FactorsOfUsersMultiplyInFloat) {
  constexpr double kFactor = 0.1915194503788923;
  const auto product = [](double number, double factor) {
    return static_cast<double>(static_cast<float>(number) * static_cast<float>(factor));
  };
  for_each_group(conformance_sizes(), [&](Communicator& ranks) {
    for (const std::string& algorithm : algorithm_names(Collective::kAllreduce, ranks)) {
      for (const std::size_t count : {std::size_t{200}, std::size_t{5003}}) {
        const Buffer input = numbers_of_first(ranks, count);
        Buffer number = numbers_of_first(ranks, count);
        ranks.broadcast(number.view(), 0);
        Buffer output(count, DType::kF32);
        const auto check = [&](ReduceOp op, double prescale, double postscale, const char* what, const auto& wanted) {
          CallOptions options{.prescale = prescale, .postscale = postscale, .algorithm = algorithm};
          ranks.allreduce(input.view(), output.view(), op, options);
          ASSERT_EQ(first_difference(output.view(), [&](std::size_t i) { return wanted(load(number.view(), i)); }), "")
              << what << " by " << algorithm;
        };
        check(ReduceOp::kSum, kFactor, 1.0, "prescale", [&](double x) { return product(x, kFactor); });
        check(ReduceOp::kSum, 1.0, kFactor, "postscale", [&](double x) { return product(x, kFactor); });
        check(ReduceOp::kAverage, 1.0, 1.0, "average",
              [&](double x) { return static_cast<double>(static_cast<float>(x * (1.0 / ranks.size()))); });
        check(ReduceOp::kAverage, 1.0, kFactor, "average with postscale",
              [&](double x) { return product(x, static_cast<double>(static_cast<float>(kFactor)) / ranks.size()); });
      }
    }
  });
}

}  // namespace
}  // namespace farandole::test
