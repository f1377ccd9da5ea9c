// SPDX-License-Identifier: Apache-2.0
// The comparison of calls by messages: every rank raises the same, in whatever order messages arrive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "farandole/core/world.h"
#include "messages/call_comparison.h"
#include "scripted_network.h"

namespace farandole {
namespace {

using test::ScriptedNetwork;
using testing::AllOf;
using testing::HasSubstr;

Descriptor sum_of(std::uint64_t count) {
  Descriptor descriptor;
  descriptor.collective = Collective::kAllreduce;
  descriptor.dtype = DType::kF32;
  descriptor.count = count;
  return descriptor;
}

/// The error of each rank; "" where there is none.
std::vector<std::string> compare(int size, unsigned seed, const std::function<Descriptor(int)>& descriptor_of,
                                 const std::function<std::uint64_t(int)>& sequence_of) {
  WorldOptions options;
  options.replicas = size;
  World world(options);
  ScriptedNetwork network;
  std::vector<Group> groups(static_cast<std::size_t>(size));
  std::vector<std::unique_ptr<CallComparison>> comparisons;
  for (int rank = 0; rank < size; ++rank) {
    Group& group = groups[static_cast<std::size_t>(rank)];
    group.endpoint = world.endpoint(rank).share();
    group.rank = rank;
    group.members.resize(static_cast<std::size_t>(size));
    std::iota(group.members.begin(), group.members.end(), 0);
    group.transport = &network;
    comparisons.push_back(std::make_unique<CallComparison>(group, 0, sequence_of(rank), descriptor_of(rank)));
  }
  std::mt19937 random(seed);
  std::vector<std::optional<std::string>> ends(static_cast<std::size_t>(size));
  const auto is_open = [&](std::size_t rank) { return !ends[rank]; };
  for (int turns = 0; turns < 10'000; ++turns) {
    const std::size_t rank = random() % ends.size();
    try {
      if (is_open(rank) && comparisons[rank]->advance() == Operation::State::kDone) ends[rank] = "";
    } catch (const Mismatch& error) {
      ends[rank] = error.what();
    }
    if (const std::size_t deliverable = network.deliverable()) network.deliver(random() % deliverable);
  }
  std::vector<std::string> texts;
  for (const auto& end : ends) texts.push_back(end.value_or("it has not ended"));
  return texts;
}

std::uint64_t seventh(int /*rank*/) {
  return 7;
}

TEST(CallComparison, RanksThatCallTheSameGoOn) {
  for (const int size : {2, 3, 4, 5, 7, 8}) {
    for (unsigned seed = 0; seed < 5; ++seed) {
      const auto errors = compare(
          size, seed, [](int) { return sum_of(100); }, seventh);
      EXPECT_THAT(errors, testing::Each("")) << size << " ranks, seed " << seed;
    }
  }
}

TEST(CallComparison, AllRanksNameTheSameTwo) {
  for (const int size : {2, 3, 4, 5, 7}) {
    for (int odd = 0; odd < size; ++odd) {
      const auto errors = compare(
          size, static_cast<unsigned>(odd), [&](int rank) { return sum_of(rank == odd ? 5 : 100); }, seventh);
      EXPECT_EQ(std::set<std::string>(errors.begin(), errors.end()).size(), 1U) << size << " ranks";
      EXPECT_THAT(errors.front(), AllOf(HasSubstr("5 f32 elements"), HasSubstr("100 f32 elements")))
          << size << " ranks";
    }
  }
}

TEST(CallComparison, ARankThatHasCalledMoreOftenDiffers) {
  const auto errors = compare(
      3, 1, [](int) { return sum_of(100); }, [](int rank) { return rank == 2 ? std::uint64_t{8} : 7; });
  EXPECT_THAT(errors, testing::Each(HasSubstr("the number of calls before")));
}

TEST(CallComparison, EveryFieldCounts) {
  const std::vector<std::function<void(Descriptor&)>> changes{[](Descriptor& d) { d.collective = Collective::kReduce; },
                                                              [](Descriptor& d) { d.dtype = DType::kI32; },
                                                              [](Descriptor& d) { d.memory = MemoryKind::kCuda; },
                                                              [](Descriptor& d) { d.op = ReduceOp::kMax; },
                                                              [](Descriptor& d) { d.algorithm = 1; },
                                                              [](Descriptor& d) { d.root = 0; },
                                                              [](Descriptor& d) { d.count = std::uint64_t{1} << 63; },
                                                              [](Descriptor& d) { d.digest = 1; }};
  std::set<std::uint64_t> digests{digest_of(sum_of(100), 14)};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Descriptor changed = sum_of(100);
    changes[i](changed);
    digests.insert(digest_of(changed, 14));
    const auto errors = compare(
        2, 1, [&](int rank) { return rank == 0 ? sum_of(100) : changed; }, seventh);
    EXPECT_THAT(errors, testing::Each(HasSubstr("called"))) << "change " << i;
  }
  EXPECT_EQ(digests.size(), changes.size() + 1) << "in shared memory ranks compare digests";
}

}  // namespace
}  // namespace farandole
