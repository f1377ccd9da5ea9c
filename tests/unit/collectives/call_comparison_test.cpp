// SPDX-License-Identifier: Apache-2.0
// The comparison of calls by messages: every rank gets the same result, in whatever order messages arrive.
#include <fmt/core.h>
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

#include "farandole/core/error.h"
#include "farandole/core/world.h"
#include "messages/call_comparison.h"
#include "scripted_network.h"
#include "shm_ranks.h"

namespace farandole {
namespace {

using test::ScriptedNetwork;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Descriptor sum_of(std::uint64_t count) {
  Descriptor descriptor;
  descriptor.collective = Collective::kAllreduce;
  descriptor.dtype = DType::kF32;
  descriptor.count = count;
  return descriptor;
}

/// Returns the length of each rank's payload block, as `rank` declares the lengths in its call.
using Lengths = std::function<std::vector<std::size_t>(int rank)>;

std::byte shown_byte(int rank, std::size_t index) {
  return static_cast<std::byte>(rank * 31 + static_cast<int>(index) * 7 + 1);
}

PayloadBlocks blocks_of(int rank, const std::vector<std::size_t>& lengths) {
  PayloadBlocks blocks{lengths, nullptr};
  if (lengths.empty()) return blocks;
  blocks.write = [rank, bytes = lengths[static_cast<std::size_t>(rank)]](std::byte* to) {
    for (std::size_t i = 0; i < bytes; ++i) to[i] = shown_byte(rank, i);
  };
  return blocks;
}

/// True if a rank has received the blocks of all ranks after a successful comparison.
bool has_all(const CallComparison& comparison, const std::vector<std::size_t>& lengths) {
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    const std::byte* const block = comparison.block(static_cast<int>(rank));
    for (std::size_t i = 0; i < lengths[rank]; ++i) {
      if (block[i] != shown_byte(static_cast<int>(rank), i)) return false;
    }
  }
  return true;
}

std::vector<std::size_t> show_nothing(int /*rank*/) {
  return {};
}

/// Ranks that share no memory, all on this thread.
class Apart {
 public:
  Apart(int size, ScriptedNetwork& network) : world_(options_for(size)), groups_(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      Group& group = groups_[static_cast<std::size_t>(rank)];
      group.endpoint = world_.endpoint(rank).share();
      group.rank = rank;
      group.members.resize(static_cast<std::size_t>(size));
      std::iota(group.members.begin(), group.members.end(), 0);
      group.transport = &network;
    }
  }
  const Group& group(int rank) const { return groups_[static_cast<std::size_t>(rank)]; }

 private:
  static WorldOptions options_for(int size) {
    WorldOptions options;
    options.replicas = size;
    return options;
  }
  World world_;
  std::vector<Group> groups_;
};

/// The error of each rank; "" where there is none.
std::vector<std::string> compare(int size, unsigned seed, const std::function<Descriptor(int)>& descriptor_of,
                                 const std::function<std::uint64_t(int)>& sequence_of,
                                 const Lengths& lengths_of = show_nothing, bool is_network_full = false) {
  ScriptedNetwork network;
  if (is_network_full) network.be_full();
  const Apart ranks(size, network);
  std::vector<std::unique_ptr<CallComparison>> comparisons;
  for (int rank = 0; rank < size; ++rank) {
    comparisons.push_back(std::make_unique<FlatComparison>(ranks.group(rank), sequence_of(rank), descriptor_of(rank),
                                                           blocks_of(rank, lengths_of(rank))));
  }
  std::mt19937 random(seed);
  std::vector<std::optional<std::string>> ends(static_cast<std::size_t>(size));
  const auto is_open = [&](std::size_t rank) { return !ends[rank]; };
  for (int turns = 0; turns < 10'000; ++turns) {
    const std::size_t rank = random() % ends.size();
    try {
      if (is_open(rank) && comparisons[rank]->advance() == Operation::State::kDone) {
        ends[rank] = has_all(*comparisons[rank], lengths_of(static_cast<int>(rank))) ? "" : "it has other data";
      }
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
  return LaneLedger::first_number(7);
}

TEST(CallComparison, EqualCallsSucceed) {
  for (const int size : {2, 3, 4, 5, 7, 8}) {
    for (unsigned seed = 0; seed < 5; ++seed) {
      const auto errors = compare(
          size, seed, [](int) { return sum_of(100); }, seventh);
      EXPECT_THAT(errors, testing::Each("")) << size << " ranks, seed " << seed;
    }
  }
}

TEST(CallComparison, AllRanksNameTheSameTwoRanks) {
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

TEST(CallComparison, DifferentSequenceNumbersAreAMismatch) {
  const auto errors = compare(
      3, 1, [](int) { return sum_of(100); }, [](int rank) { return LaneLedger::first_number(rank == 2 ? 11 : 7); });
  EXPECT_THAT(errors, testing::Each(HasSubstr("the number of calls before")));
}

/// Lengths of the ranks' blocks: no rank has a block, all blocks are equal, or only one rank has a block.
std::vector<std::size_t> lengths_among(int size, unsigned kind) {
  std::vector<std::size_t> lengths;
  for (int rank = 0; rank < size; ++rank) {
    const auto different = static_cast<std::size_t>(rank * 13 % 5);
    lengths.push_back(kind == 0 ? 24 : kind == 1 ? different : rank == size / 2 ? 1000 : 0);
  }
  return lengths;
}

TEST(CallComparison, EveryRankReceivesTheBlocksOfAllRanks) {
  for (const int size : {2, 3, 4, 5, 6, 7, 8, 13}) {
    for (unsigned kind = 0; kind < 3; ++kind) {
      for (unsigned seed = 0; seed < 5; ++seed) {
        const auto errors = compare(
            size, seed, [](int) { return sum_of(100); }, seventh, [&](int) { return lengths_among(size, kind); });
        EXPECT_THAT(errors, testing::Each("")) << size << " ranks, kind " << kind << ", seed " << seed;
      }
    }
  }
}

/// Every rank waits for one rank; a waiting rank must still complete its own sends, for which another rank waits.
TEST(CallComparison, TestsItsSendsWhileItWaits) {
  for (const int size : {2, 3, 4, 5, 8}) {
    const auto errors = compare(
        size, 1, [](int) { return sum_of(100); }, seventh, [&](int) { return lengths_among(size, 0); },
        /*is_network_full=*/true);
    EXPECT_THAT(errors, testing::Each("")) << size << " ranks";
  }
}

TEST(CallComparison, NamesTheRankThatDoesNotReceive) {
  ScriptedNetwork network;
  const Apart ranks(2, network);
  FlatComparison first(ranks.group(0), seventh(0), sum_of(100)), second(ranks.group(1), seventh(1), sum_of(100));
  (void)first.advance();
  (void)second.advance();
  EXPECT_THAT(first.waits_for(), ElementsAre(1));
  ASSERT_EQ(network.deliverable(), 2U);
  network.deliver(1);  // that of rank 1
  EXPECT_NE(first.advance(), Operation::State::kDone);
  EXPECT_THAT(first.waits_for(), ElementsAre(1)) << "it has not taken the message of rank 0";
  network.deliver(0);
  EXPECT_EQ(first.advance(), Operation::State::kDone);
  EXPECT_EQ(second.advance(), Operation::State::kDone);
}

TEST(CallComparison, WithdrawReleasesAllMessages) {
  ScriptedNetwork network;
  network.keep_withdrawn_sends();
  const Apart ranks(3, network);
  FlatComparison comparison(ranks.group(0), seventh(0), sum_of(100));
  (void)comparison.advance();
  EXPECT_EQ(comparison.withdraw(), BufferHazard::kRead);
  EXPECT_EQ(network.held_receives(), 0U);
  EXPECT_EQ(network.held_sends(), 1U);
}

/// The peer is found to be lost while its sends are gone through, some of which are complete.
TEST(CallComparison, CanBeWithdrawnAfterAFailedSend) {
  ScriptedNetwork network;
  const Apart ranks(5, network);
  std::vector<std::unique_ptr<FlatComparison>> comparisons;
  for (int rank = 0; rank < 5; ++rank) {
    comparisons.push_back(std::make_unique<FlatComparison>(ranks.group(rank), seventh(rank), sum_of(100)));
    (void)comparisons.back()->advance();
  }
  network.deliver_between(2, 3);
  network.deliver_between(4, 0);
  (void)comparisons[3]->advance();
  (void)comparisons[0]->advance();
  network.deliver_between(3, 0);
  (void)comparisons[0]->advance();
  // Rank 0 has sent to ranks 1, 2 and 4.
  network.deliver_between(0, 1);
  network.lose(4, "the cable was pulled");
  EXPECT_THROW((void)comparisons[0]->advance(), TransportError);
  EXPECT_EQ(comparisons[0]->withdraw(), BufferHazard::kNone);
}

/// Over hosts of several ranks, in each phase.
TEST(CallComparison, NamesTheRanksItWaitsFor) {
  ScriptedNetwork network;
  test::ShmRanks ranks(4, 1024, {0, 0, 1, 1}, &network);
  std::vector<Hierarchy> hierarchies;
  std::vector<std::unique_ptr<CallComparison>> comparisons;
  for (int rank = 0; rank < ranks.size(); ++rank) hierarchies.push_back(*Hierarchy::of(ranks.group(rank)));
  for (int rank = 0; rank < ranks.size(); ++rank) {
    comparisons.push_back(CallComparison::make(ranks.group(rank), &hierarchies[static_cast<std::size_t>(rank)],
                                               &ranks.shm(rank), seventh(rank), sum_of(100)));
  }
  const auto waits_after_a_step = [&](std::size_t rank) {
    EXPECT_NE(comparisons[rank]->advance(), Operation::State::kDone);
    return comparisons[rank]->waits_for();
  };
  EXPECT_THAT(waits_after_a_step(0), ElementsAre(1)) << "for the memory of its peer";
  (void)ranks.shm(1).connect();
  EXPECT_THAT(waits_after_a_step(0), ElementsAre(1)) << "for the call of its peer";
  EXPECT_THAT(waits_after_a_step(1), ElementsAre(0)) << "for the answer";
  EXPECT_THAT(waits_after_a_step(0), ElementsAre(2)) << "for the other host";
  EXPECT_THAT(waits_after_a_step(3), ElementsAre(2)) << "for the memory of its peer";
  EXPECT_THAT(waits_after_a_step(2), ElementsAre(3)) << "for the call of its peer";
  EXPECT_THAT(waits_after_a_step(3), ElementsAre(2)) << "for the answer";
  EXPECT_THAT(waits_after_a_step(2), ElementsAre(0)) << "for the other host";
  while (network.deliverable() > 0) network.deliver(0);
  for (const int rank : {0, 2, 1, 3}) {
    EXPECT_EQ(comparisons[static_cast<std::size_t>(rank)]->advance(), Operation::State::kDone);
  }
}

/// The odd one has longer or shorter vectors in mind, or those that do not travel with the comparison.
TEST(CallComparison, DifferentBlockLengthsAreAMismatch) {
  for (const int size : {2, 3, 4, 5, 7, 8}) {
    for (int odd = 0; odd < size; ++odd) {
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{4000}}) {
        const auto errors = compare(
            size, static_cast<unsigned>(odd), [&](int rank) { return sum_of(rank == odd ? bytes / 4 : 100); }, seventh,
            [&](int rank) {
              if (rank == odd && bytes == 0) return std::vector<std::size_t>();
              return std::vector<std::size_t>(static_cast<std::size_t>(size), rank == odd ? bytes : 400);
            });
        EXPECT_EQ(std::set<std::string>(errors.begin(), errors.end()).size(), 1U) << size << " ranks";
        EXPECT_THAT(errors.front(), HasSubstr(fmt::format("allreduce of {} f32 elements", bytes / 4)));
      }
    }
  }
}

/// A broken peer: its calls are the same, its data are not.
TEST(CallComparison, WrongDataLengthInEqualCallsIsAnError) {
  EXPECT_THROW(compare(
                   2, 1, [](int) { return sum_of(100); }, seventh,
                   [](int rank) { return std::vector<std::size_t>(2, rank == 0 ? 400 : 8); }),
               TransportError);
}

TEST(CallComparison, EveryDescriptorFieldIsCompared) {
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
