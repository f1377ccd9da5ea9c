// SPDX-License-Identifier: Apache-2.0
// Inputs, outputs and counts that overlap: refused before data is touched, except in the documented in-place forms.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "farandole/core/error.h"
#include "groups.h"
#include "message_of.h"

namespace farandole::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Elements = std::vector<std::int32_t>;
using Counts = std::vector<std::size_t>;

constexpr std::size_t kEach = 5;

/// Memory for an input and an output, with a pattern that shows what was written.
struct GuardedMemory {
  Elements elements = Elements(3000);
  GuardedMemory() { std::iota(elements.begin(), elements.end(), 7); }

  BufferView at(std::size_t first, std::size_t count) { return BufferView(elements).part(first, count); }
};

/// A collective whose input begins at kInputAt.
struct OverlapCase {
  std::string name;
  std::size_t input_count, output_count;
  std::vector<std::size_t> overlapping;  // first elements of outputs
  std::function<Work(ConstBufferView, BufferView)> start;
};

constexpr std::size_t kInputAt = 500, kApart = 1500;

std::vector<OverlapCase> cases_of(Communicator& ranks, int odd, const Counts& counts) {
  const auto size = static_cast<std::size_t>(ranks.size()), own = static_cast<std::size_t>(ranks.rank());
  const std::size_t whole = kEach * size, part = counts[own];
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const std::size_t before = std::accumulate(counts.begin(), counts.begin() + ranks.rank(), std::size_t{0});
  const std::vector<std::size_t> shifted{kInputAt + 1, kInputAt - 1, kInputAt + whole - 1, kInputAt - whole + 1};
  // One element beside the part's own place.
  const std::vector<std::size_t> gathered{kInputAt - before - 1, kInputAt - before + 1};
  const std::vector<std::size_t> scattered{kInputAt + before + 1, kInputAt + before + (before > 0 ? -1 : 2)};
  const auto sum = ReduceOp::kSum;
  return {
      {"allreduce", whole, whole, shifted, [&, sum](auto in, auto out) { return ranks.allreduce_async(in, out, sum); }},
      {"reduce", whole, whole, shifted,
       [&, sum, odd](auto in, auto out) { return ranks.reduce_async(in, out, sum, odd); }},
      {"alltoall", whole, whole, shifted, [&](auto in, auto out) { return ranks.alltoall_async(in, out); }},
      {"allgather", part, total, gathered, [&](auto in, auto out) { return ranks.allgather_async(in, out, counts); }},
      {"gather", part, total, gathered,
       [&, odd](auto in, auto out) { return ranks.gather_async(in, out, odd, counts); }},
      {"reduce_scatter", total, part, scattered,
       [&, sum](auto in, auto out) { return ranks.reduce_scatter_async(in, out, sum, counts); }},
      {"scatter", total, part, scattered,
       [&, odd](auto in, auto out) { return ranks.scatter_async(in, out, odd, counts); }},
  };
}

/// Three elements and more for each rank.
Counts uneven_counts(const Communicator& ranks) {
  Counts counts(static_cast<std::size_t>(ranks.size()));
  std::iota(counts.begin(), counts.end(), std::size_t{3});
  return counts;
}

void expect_refused(Communicator& ranks, int odd, const OverlapCase& one, std::size_t overlapping) {
  SCOPED_TRACE(fmt::format("{}, input at {}, output at {}", one.name, kInputAt, overlapping));
  GuardedMemory memory;
  const Elements before = memory.elements;
  const bool is_odd = ranks.rank() == odd;
  const BufferView input = memory.at(kInputAt, one.input_count);
  const BufferView output = memory.at(is_odd ? overlapping : kApart, one.output_count);
  const auto call = [&] { one.start(input, output).wait(); };
  if (is_odd) {
    const auto begin = [](const BufferView& view) {
      return fmt::format("[{:#x}, ", reinterpret_cast<std::uintptr_t>(view.data));
    };
    EXPECT_THAT(message_of<InvalidArgument>(call),
                AllOf(HasSubstr(one.name + ":"), HasSubstr("overlap"), HasSubstr("the input " + begin(input)),
                      HasSubstr("the output " + begin(output))));
  } else {
    EXPECT_THAT(message_of<Mismatch>(call), HasSubstr(ranks.describe(odd)));
  }
  EXPECT_EQ(memory.elements, before);
}

TEST(Overlap, OverlapOnOneRankIsAMismatchOnOtherRanks) {
  for_each_group({1, 2, 3, 5}, [](Communicator& ranks) {
    const Counts counts = uneven_counts(ranks);
    for (const int odd : {0, ranks.size() - 1}) {
      for (const OverlapCase& one : cases_of(ranks, odd, counts)) {
        for (const std::size_t overlapping : one.overlapping) expect_refused(ranks, odd, one, overlapping);
      }
    }
    Elements one{1};
    ranks.allreduce(one, ReduceOp::kSum);
    EXPECT_EQ(one[0], ranks.size());
  });
}

TEST(Overlap, OutputOverCountsIsAMismatchOnOtherRanks) {
  for_each_group({1, 2, 3}, [](Communicator& ranks) {
    const auto size = static_cast<std::size_t>(ranks.size());
    const int odd = ranks.size() - 1;
    std::vector<std::int64_t> memory(4 * size, 1), input(size, 5);
    const BufferView counts_memory(memory.data(), size, DType::kI64),
        apart(memory.data() + 2 * size, size, DType::kI64);
    const BufferView output = ranks.rank() == odd ? counts_memory : apart;
    // A count of 1 for each rank, which lies where rank `odd` wants its output.
    const std::span<const std::size_t> counts(reinterpret_cast<const std::size_t*>(memory.data()), size);
    const Counts elsewhere(size, 1);
    const std::vector<std::function<void()>> calls{
        [&] { ranks.allgather(BufferView(input).part(0, 1), output, counts); },
        [&] { ranks.alltoall(input, output, counts, elsewhere); },
        [&] { ranks.alltoall(input, output, elsewhere, counts); },
        [&] { ranks.reduce_scatter(input, output.part(0, 1), ReduceOp::kSum, counts); },
        [&] { ranks.gather(BufferView(input).part(0, 1), output, odd, counts); },
        [&] { ranks.scatter(input, output.part(0, 1), odd, counts); },
    };
    for (const auto& call : calls) {
      if (ranks.rank() == odd) {
        EXPECT_THAT(message_of<InvalidArgument>(call), AllOf(HasSubstr("the counts [0x"), HasSubstr("the output [0x")));
      } else {
        EXPECT_THAT(message_of<Mismatch>(call), HasSubstr(ranks.describe(odd)));
      }
      EXPECT_EQ(memory, std::vector<std::int64_t>(4 * size, 1));
    }
  });
}

/// `rooted` passes the root, which alone is in place there.
TEST(Overlap, DocumentedFormsInPlaceAreRight) {
  for_each_group({1, 2, 3, 4, 8}, [](Communicator& ranks) {
    const int size = ranks.size(), me = ranks.rank(), root = size - 1;
    for (const std::size_t scale : {std::size_t{1}, std::size_t{30'000}}) {
      Counts counts = uneven_counts(ranks);
      for (std::size_t& count : counts) count *= scale;
      const auto own = static_cast<std::size_t>(me);
      const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      const std::size_t before = std::accumulate(counts.begin(), counts.begin() + me, std::size_t{0});
      const auto value = [&](int rank, std::size_t i) {
        return static_cast<std::int32_t>(1000 * rank) + static_cast<std::int32_t>(i % 997);
      };
      Elements sums(total), concatenated, roots(total);
      for (std::size_t i = 0; i < total; ++i) {
        for (int rank = 0; rank < size; ++rank) sums[i] += value(rank, i);
        roots[i] = value(root, i);
      }
      for (int rank = 0; rank < size; ++rank) {
        for (std::size_t i = 0; i < counts[static_cast<std::size_t>(rank)]; ++i) concatenated.push_back(value(rank, i));
      }
      const auto mine = [&](std::size_t count) {
        Elements elements(count);
        for (std::size_t i = 0; i < count; ++i) elements[i] = value(me, i);
        return elements;
      };
      const auto own_part_of = [&](const Elements& all) {
        return Elements(all.begin() + static_cast<std::ptrdiff_t>(before),
                        all.begin() + static_cast<std::ptrdiff_t>(before + counts[own]));
      };
      Elements values = mine(total);
      ranks.reduce(values, values, ReduceOp::kSum, root);
      EXPECT_EQ(values, me == root ? sums : mine(total));
      values = mine(total);
      const auto place_in = [&](Elements& all) { return BufferView(all).part(before, counts[own]); };
      ranks.reduce_scatter(values, place_in(values), ReduceOp::kSum, counts);
      EXPECT_EQ(own_part_of(values), own_part_of(sums));
      values = mine(total);
      Elements apart(counts[own]);
      ranks.scatter(values, me == root ? place_in(values) : BufferView(apart), root, counts);
      EXPECT_EQ(me == root ? own_part_of(values) : apart, own_part_of(roots));
      const Elements part = mine(counts[own]);
      for (const bool everywhere : {true, false}) {
        Elements all(total, -1);
        std::copy(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(before));
        const BufferView gathered = place_in(all);
        everywhere ? ranks.allgather(gathered, all, counts) : ranks.gather(gathered, all, root, counts);
        if (everywhere || me == root) {
          EXPECT_EQ(all, concatenated);
        }
      }
    }
  });
}

}  // namespace
}  // namespace farandole::test
