// SPDX-License-Identifier: Apache-2.0
// Every rank gets the same bits, whatever the floating-point mode of the threads that run the collective.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "farandole/core/reduce.h"
#include "farandole/internal/communicator_access.h"
#include "foreign_mode.h"
#include "groups.h"

namespace farandole::test {
namespace {

constexpr std::array kFloats{DType::kF16, DType::kBF16, DType::kF32, DType::kF64};

/// The ranks' modes: one of them is that in which threads start.
Mode mode_of(int rank, int round) {
  constexpr std::array kModes{Mode::kUsual, Mode::kFlushing, Mode::kTowardZero, Mode::kFlushingUpward};
  return kModes[static_cast<std::size_t>(rank + round) % kModes.size()];
}

/// A subnormal whose bits are this number, which a type with so few bits stores as it is.
std::uint64_t sent(int rank, std::size_t index) {
  return (static_cast<std::size_t>(rank) + 1) * (index % 5 + 1);
}

/// Sums of subnormals that have no remainder are sums of their bits.
std::uint64_t expected(int size, std::size_t index) {
  const auto ranks = static_cast<std::uint64_t>(size);
  return ranks * (ranks + 1) / 2 * (index % 5 + 1);
}

std::uint64_t bits_at(const Buffer& buffer, std::size_t index) {
  std::uint64_t bits = 0;
  const std::size_t bytes = size_in_bytes(buffer.dtype());
  std::memcpy(&bits, static_cast<const std::byte*>(buffer.view().data) + index * bytes, bytes);
  return bits;
}

struct Way {
  std::string algorithm;  // empty: Farandole's choice
  bool in_window = false, in_place = false, blocking = false;
};

std::string describe(const Way& way, DType dtype, std::size_t count) {
  return fmt::format("{} of {} {}, window {}, in place {}, blocking {}", way.algorithm, count, name(dtype),
                     way.in_window, way.in_place, way.blocking);
}

Buffer make(Communicator& ranks, const Way& way, std::size_t count, DType dtype) {
  return way.in_window ? ranks.allocate(count, dtype) : Buffer(count, dtype);
}

void fill(Buffer& buffer, int rank) {
  const std::size_t bytes = size_in_bytes(buffer.dtype());
  for (std::size_t i = 0; i < buffer.count(); ++i) {
    const std::uint64_t value = sent(rank, i);
    std::memcpy(static_cast<std::byte*>(buffer.view().data) + i * bytes, &value, bytes);
  }
}

void sum_subnormals(Communicator& ranks, const Way& way, DType dtype, std::size_t count) {
  // MPI computes in the mode of the thread that calls it. A table may choose it.
  const std::string_view algorithm = way.algorithm;
  if (algorithm.empty() && internals(ranks).choose(Collective::kAllreduce, count * size_in_bytes(dtype)) == "vendor")
    return;
  Buffer input = make(ranks, way, count, dtype), apart = make(ranks, way, way.in_place ? 0 : count, dtype);
  Buffer& output = way.in_place ? input : apart;
  fill(input, ranks.rank());
  const CallOptions options{1.0, 1.0, algorithm, 0};
  if (way.blocking) {
    ranks.allreduce(input.view(), output.view(), ReduceOp::kSum, options);
  } else {
    ranks.allreduce_async(input.view(), output.view(), ReduceOp::kSum, options).wait();
  }
  std::size_t i = 0;
  while (i < count && bits_at(output, i) == expected(ranks.size(), i)) ++i;
  if (i == count) return;
  FAIL() << describe(way, dtype, count) << ": the bits of element " << i << " are " << bits_at(output, i)
         << ", expected " << expected(ranks.size(), i);
}

std::vector<std::string> own_algorithms(Communicator& ranks) {
  std::vector<std::string> names{""};
  for (const std::string& name : algorithm_names(Collective::kAllreduce, ranks)) {
    if (name != "vendor") names.push_back(name);
  }
  return names;
}

TEST(FloatMode, SumsOfSubnormalsAreExactOnEveryRankByEveryWay) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    const auto part = static_cast<std::size_t>(internals(ranks).settings().shared_memory.slice_bytes);
    const ForeignMode foreign(mode_of(ranks.rank(), 0));
    const std::uint64_t before = mode_bits();
    int k = 0;  // walks through what is not in the loops
    for (const std::string& algorithm : own_algorithms(ranks)) {
      for (const DType dtype : kFloats) {
        // In parts, where vectors are cut into some.
        const std::size_t most = algorithm.empty() ? 2 * part + 64 : 20'000;
        for (const std::size_t bytes : {std::size_t{8}, std::size_t{40}, std::size_t{1200}, most}) {
          for (const bool blocking : {true, false}) {
            ++k;
            const Way way{algorithm, k % 3 == 0, k % 5 < 2, blocking};
            sum_subnormals(ranks, way, dtype, bytes / size_in_bytes(dtype));
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
    EXPECT_EQ(mode_bits(), before) << "the caller's mode is another one now";
  });
}

/// Averages, which are divided and rounded, against those of ranks in the usual mode.
TEST(FloatMode, ScaledAveragesAreThoseOfTheUsualMode) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    for (const DType dtype : kFloats) {
      for (const std::size_t count : {std::size_t{3}, std::size_t{500}, std::size_t{20'000}}) {
        std::array<Buffer, 4> results;
        if (internals(ranks).choose(Collective::kAllreduce, count * size_in_bytes(dtype)) == "vendor") continue;
        // Multiplies the smallest subnormal numbers into normal numbers, most of which have to be rounded.
        const double factor = dtype == DType::kF64 ? 0x1.23p1000 : dtype == DType::kF16 ? 0x1.23p20 : 0x1.23p100;
        for (int round = 0; round < 4; ++round) {
          Buffer& values = results[static_cast<std::size_t>(round)] = Buffer(count, dtype);
          fill(values, ranks.rank());
          scale(values.view().data, values.view().data, count, dtype, factor);
          const ForeignMode foreign(round == 0 ? Mode::kUsual : mode_of(ranks.rank(), round));
          ranks.allreduce(values.view(), ReduceOp::kAverage, {1.0 / 7, 1.0 / 3, "", 0});
        }
        for (std::size_t round = 1; round < 4; ++round) {
          std::size_t i = 0;
          while (i < count && bits_at(results[round], i) == bits_at(results[0], i)) ++i;
          ASSERT_EQ(i, count) << name(dtype) << ": this element differs in round " << round;
        }
      }
    }
  });
}

TEST(FloatMode, ReductionsToOneRankAndOfPartsAreExact) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    const ForeignMode foreign(mode_of(ranks.rank(), 1));
    const auto size = static_cast<std::size_t>(ranks.size());
    for (const DType dtype : kFloats) {
      for (const std::size_t each : {1, 300, 50'000}) {
        Buffer input(size * each, dtype), whole(size * each, dtype), part(each, dtype);
        fill(input, ranks.rank());
        ranks.reduce(input.view(), whole.view(), ReduceOp::kSum, 0);
        ranks.reduce_scatter(input.view(), part.view(), ReduceOp::kSum);
        const std::size_t first = static_cast<std::size_t>(ranks.rank()) * each;
        for (std::size_t i = 0; i < each; ++i) ASSERT_EQ(bits_at(part, i), expected(ranks.size(), first + i));
        for (std::size_t i = 0; i < whole.count() && ranks.rank() == 0; ++i) {
          ASSERT_EQ(bits_at(whole, i), expected(ranks.size(), i));
        }
      }
    }
  });
}

}  // namespace
}  // namespace farandole::test
