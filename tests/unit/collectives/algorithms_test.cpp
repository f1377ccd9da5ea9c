// SPDX-License-Identifier: Apache-2.0
// Every algorithm of the table: the verifier accepts its schedules at all sizes, and values are associated as
// documented.
#include "farandole/collectives/algorithms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "farandole/collectives/verifier.h"
#include "farandole/core/error.h"

namespace farandole {
namespace {

std::string label(const Algorithm& algorithm, int size, int root, int segments) {
  return std::string(name(algorithm.collective)) + "/" + std::string(algorithm.name) + " size " + std::to_string(size) +
         " root " + std::to_string(root) + " segments " + std::to_string(segments);
}

void expect_verified(const Algorithm& algorithm, int size, const std::set<int>& all_segments) {
  if (!algorithm.supports(size)) {
    return;
  }
  const std::set<int> roots = is_rooted(algorithm.collective) ? std::set<int>{0, size / 2, size - 1} : std::set<int>{0};
  for (const int root : roots) {
    for (const int segments : all_segments) {
      const Verdict verdict = verify(algorithm, size, root, segments);
      EXPECT_TRUE(verdict.correct) << label(algorithm, size, root, segments) << ": " << verdict.fault;
    }
  }
}

class EveryAlgorithm : public testing::TestWithParam<Algorithm> {};

TEST_P(EveryAlgorithm, VerifiesUpTo33) {
  for (int size = 1; size <= 33; ++size) {
    expect_verified(GetParam(), size, {1, 3});
  }
}

/// Algorithms with a chunk per rank have P² pieces, which bounds what a unit test can do; so does a build that is not
/// optimised.
std::vector<int> large_sizes(const Algorithm& algorithm) {
#ifdef NDEBUG
  const bool few_pieces = algorithm.chunks(1000) < 1000;
  return !algorithm.logarithmic ? std::vector<int>{64, 256}
         : few_pieces           ? std::vector<int>{64, 1000, 4096}
                                : std::vector<int>{64, 127, 512};
#else
  return algorithm.logarithmic ? std::vector<int>{64, 127, 256} : std::vector<int>{64, 100};
#endif
}

TEST_P(EveryAlgorithm, VerifiesLargeSizes) {
  for (const int size : large_sizes(GetParam())) {
    expect_verified(GetParam(), size, {1});
  }
}

TEST_P(EveryAlgorithm, OneRankNeedsNoMessages) {
  const Schedule schedule = GetParam().make({0, 1, 0}, 2);
  for (const Step& step : schedule.steps) {
    EXPECT_TRUE(step.kind == StepKind::kFinish || step.kind == StepKind::kCopy) << name(step.kind);
  }
}

/// A tree over ranks, written so that operands in either order look alike: "((0 1) 2)".
using Tree = std::string;

Tree join(const Tree& a, const Tree& b) {
  return "(" + std::min(a, b) + " " + std::max(a, b) + ")";
}

/// Runs the schedules of a reduction on trees. Steps run as soon as they can, in passes over all ranks.
std::vector<std::vector<Tree>> association(const std::vector<Schedule>& schedules) {
  const auto ranks = schedules.size();
  const auto pieces = static_cast<std::size_t>(schedules[0].pieces());
  std::vector<std::vector<std::vector<Tree>>> memory(ranks);  // per rank: data, then scratch slots
  std::vector<std::vector<bool>> done(ranks);
  std::map<std::pair<int, int>, std::vector<std::vector<Tree>>> channels;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    memory[rank].assign(static_cast<std::size_t>(schedules[rank].scratch_slots) + 1, std::vector<Tree>(pieces));
    done[rank].assign(schedules[rank].steps.size(), false);
  }
  const auto values = [&](std::size_t rank, const Region& region) {
    std::vector<Tree> found(static_cast<std::size_t>(region.count), std::to_string(rank));
    if (region.space != Space::kInput) {
      const auto& space = memory[rank][region.space == Space::kData ? 0 : static_cast<std::size_t>(region.slot) + 1];
      std::copy_n(space.begin() + region.first, region.count, found.begin());
    }
    return found;
  };
  const auto run = [&](std::size_t rank, const Step& step) {
    const auto self = static_cast<int>(rank);
    if (step.kind == StepKind::kSend) {
      channels[{self, step.peer}].push_back(values(rank, step.operand));
      return true;
    }
    std::vector<Tree> result = values(rank, step.operand);
    std::vector<Tree> incoming = values(rank, step.other);
    if (step.kind == StepKind::kRecv || step.kind == StepKind::kRecvReduce) {
      auto& channel = channels[{step.peer, self}];
      if (channel.empty()) {
        return false;
      }
      incoming = channel.front();
      channel.erase(channel.begin());
    }
    if (step.kind == StepKind::kRecv) {
      result = incoming;
    } else if (!incoming.empty()) {
      std::transform(result.begin(), result.end(), incoming.begin(), result.begin(), join);
    }
    auto& space = memory[rank][step.target.space == Space::kData ? 0 : static_cast<std::size_t>(step.target.slot) + 1];
    std::copy(result.begin(), result.end(), space.begin() + step.target.first);
    return true;
  };
  // In program order on every rank; sends are buffered here, so this ends.
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < done[rank].size(); ++i) {
        if (!done[rank][i]) {
          done[rank][i] = run(rank, schedules[rank].steps[i]);
          moved = moved || done[rank][i];
          if (!done[rank][i]) {
            break;
          }
        }
      }
    }
  }
  std::vector<std::vector<Tree>> results;
  for (const auto& spaces : memory) {
    results.push_back(spaces[0]);
  }
  return results;
}

std::vector<Schedule> schedules_of(const Algorithm& algorithm, int size, int segments) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < size; ++rank) {
    schedules.push_back(algorithm.make({rank, size, 0}, segments));
  }
  return schedules;
}

Tree balanced(int first, int count) {
  return count == 1 ? std::to_string(first) : join(balanced(first, count / 2), balanced(first + count / 2, count / 2));
}

TEST(AssociationTest, AllRanksOfAnAllreduceGetTheSameBits) {
  for (const Algorithm& algorithm : algorithms()) {
    for (int size = 2; size <= 17; ++size) {
      if (algorithm.collective == Collective::kAllreduce && algorithm.supports(size)) {
        const auto results = association(schedules_of(algorithm, size, 2));
        for (const auto& result : results) {
          ASSERT_EQ(result, results[0]) << label(algorithm, size, 0, 2);
        }
      }
    }
  }
}

TEST(AssociationTest, PositionIndependentMeansOneTreeForAllPieces) {
  for (const Algorithm& algorithm : algorithms()) {
    for (int size = 2; size <= 17; ++size) {
      if (algorithm.position_independent && algorithm.supports(size)) {
        const std::vector<Tree> at_root = association(schedules_of(algorithm, size, 2))[0];
        for (const Tree& tree : at_root) {
          ASSERT_EQ(tree, at_root[0]) << label(algorithm, size, 0, 2);
        }
        if ((size & (size - 1)) == 0) {
          ASSERT_EQ(at_root[0], balanced(0, size)) << label(algorithm, size, 0, 2);
        }
      }
    }
  }
}

TEST(AlgorithmsTest, FirstRowSupportsEverySizeAndNamesAreUnique) {
  std::set<Collective> seen;
  std::set<std::pair<Collective, std::string_view>> names;
  for (const Algorithm& algorithm : algorithms()) {
    if (seen.insert(algorithm.collective).second) {
      for (int size = 1; size < 70; ++size) {
        EXPECT_TRUE(algorithm.supports(size)) << algorithm.name;
      }
    }
    EXPECT_TRUE(names.emplace(algorithm.collective, algorithm.name).second) << algorithm.name;
    EXPECT_EQ(find_algorithm(algorithm.collective, algorithm.name), &algorithm);
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kCollectiveCount));
  EXPECT_EQ(find_algorithm(Collective::kBarrier, "ring"), nullptr);
}

TEST(AlgorithmsTest, ParsesCollectives) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    EXPECT_EQ(parse_collective(name(static_cast<Collective>(i))), static_cast<Collective>(i));
  }
  try {
    parse_collective("allreduc");
    FAIL() << "a collective that does not exist was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'allreduce'"), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryAlgorithm, testing::ValuesIn(algorithms().begin(), algorithms().end()),
                         [](const testing::TestParamInfo<Algorithm>& test) {
                           return std::string(name(test.param.collective)) + "_" + std::string(test.param.name);
                         });

}  // namespace
}  // namespace farandole
