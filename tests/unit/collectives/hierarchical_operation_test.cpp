// SPDX-License-Identifier: Apache-2.0
// The hierarchical operation, by the example of allreduce: step by step over a network that the test controls, and on
// threads. The hosts are simulated by groups. (tests/conformance/hierarchy_test.cpp counts the bytes between hosts.)
#include "messages/hierarchical_operation.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "communicator_probe.h"
#include "device/device_slot.h"
#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/internal/average.h"
#include "farandole/internal/communicator_access.h"
#include "groups.h"
#include "operation/method_inputs.h"
#include "scripted_network.h"
#include "shm_ranks.h"

namespace farandole {
namespace {

using test::ScriptedNetwork;
using test::ShmRanks;
using testing::ElementsAre;

constexpr std::size_t kOneShotBytes = 1024;
const std::vector<std::vector<int>> kLayouts{{0, 0, 1, 1},    {0, 1, 0, 1},       {0, 0, 0, 1}, {1, 0, 0},
                                             {0, 0, 1, 1, 1}, {0, 1, 1, 0, 2, 2}, {0, 1, 2, 2}};

std::string text_of(const std::vector<int>& hosts) {
  return testing::PrintToString(hosts);
}

std::optional<Hierarchy> hierarchy_of(const std::vector<int>& hosts, int rank) {
  const ShmRanks ranks(static_cast<int>(hosts.size()), kOneShotBytes, hosts);
  return Hierarchy::of(ranks.group(rank));
}

TEST(HierarchicalOperation, LongVectorsPassInSlices) {
  std::vector<float> values(1 << 20);
  Call call;
  call.input = ConstBufferView(values);
  call.output = BufferView(values);
  call.root = 0;
  for (const Collective collective : {Collective::kAllreduce, Collective::kBroadcast, Collective::kReduce}) {
    call.collective = collective;
    EXPECT_EQ(hierarchical_query(call, Hierarchy::of({0, 0, 1, 1}, 0), 4, kOneShotBytes).slices, 4) << name(collective);
  }
}

TEST(Hierarchy, KnowsTheHostOfEveryRank) {
  const std::optional<Hierarchy> blocks = hierarchy_of({0, 0, 1, 1}, 1);
  ASSERT_TRUE(blocks);
  EXPECT_THAT(blocks->hosts, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_EQ(blocks->host, 0);
  EXPECT_EQ(blocks->local, 1);
  EXPECT_EQ(blocks->min_local_size(), 2);
  const std::optional<Hierarchy> interleaved = hierarchy_of({0, 1, 0, 1}, 3);
  ASSERT_TRUE(interleaved);
  EXPECT_THAT(interleaved->hosts, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_EQ(interleaved->host, 1);
  EXPECT_EQ(interleaved->local, 1);
  EXPECT_EQ(interleaved->place_of(2).host, 0);
  EXPECT_EQ(interleaved->place_of(2).local, 1);
  const std::optional<Hierarchy> unequal = hierarchy_of({1, 0, 0}, 0);
  ASSERT_TRUE(unequal);
  EXPECT_THAT(unequal->hosts, ElementsAre(ElementsAre(1, 2), ElementsAre(0)));
  EXPECT_EQ(unequal->host, 1);
  EXPECT_EQ(unequal->min_local_size(), 1);
}

TEST(Hierarchy, KnowsBlockAndRoundRobinPlacement) {
  const auto is = [](const std::vector<int>& hosts) {
    const Hierarchy hierarchy = Hierarchy::of(hosts, 0);
    return std::pair(hierarchy.is_regular(), hierarchy.is_round_robin());
  };
  EXPECT_EQ(is({0, 0, 1, 1, 2, 2}), std::pair(true, false));
  EXPECT_EQ(is({0, 1, 2, 0, 1, 2}), std::pair(false, true));
  EXPECT_EQ(is({0, 1, 1, 0}), std::pair(false, false));
  EXPECT_EQ(is({1, 0, 1, 0}), std::pair(false, false)) << "hosts are in the order of their numbers";
  EXPECT_EQ(is({0, 1, 0}), std::pair(false, false));
}

TEST(Hierarchy, NeedsSeveralHostsAndAHostOfSeveralRanks) {
  EXPECT_FALSE(hierarchy_of({0, 0, 0}, 0));
  EXPECT_FALSE(hierarchy_of({0, 1, 2}, 0));
  EXPECT_TRUE(hierarchy_of({0, 1, 1}, 0));
}

/// All ranks on this thread, as if they lived on these hosts, and the network between those.
class Hosts {
 public:
  explicit Hosts(const std::vector<int>& hosts)
      : ranks_(static_cast<int>(hosts.size()), kOneShotBytes, hosts, &network_) {
    ranks_.connect();
    for (int rank = 0; rank < ranks_.size(); ++rank) hierarchies_.push_back(*Hierarchy::of(ranks_.group(rank)));
    for (int rank = 0; rank < ranks_.size(); ++rank) plans_.emplace_back(ranks_.group(rank), hierarchy(rank));
  }
  ScriptedNetwork& network() { return network_; }
  int size() const { return ranks_.size(); }
  const Group& group(int rank) const { return ranks_.group(rank); }
  const Hierarchy& hierarchy(int rank) const { return hierarchies_[static_cast<std::size_t>(rank)]; }
  PreparedPlans& plans(int rank) { return plans_[static_cast<std::size_t>(rank)]; }
  /// Null where a rank is alone on its host, as in a communicator.
  ShmGroup* shm(int rank) { return hierarchy(rank).local_size() > 1 ? &ranks_.shm(rank) : nullptr; }

  /// All operations of this rank up to here have ended.
  bool has_completed(int rank, std::uint64_t number) {
    return shm(rank) == nullptr || shm(rank)->ledger().completed() >= number;
  }

 private:
  ScriptedNetwork network_;
  ShmRanks ranks_;
  std::vector<Hierarchy> hierarchies_;
  std::vector<PreparedPlans> plans_;
};

struct Options {
  std::size_t count = 10;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0, postscale = 1.0;
  bool in_place = false;
};

/// One allreduce (f32) of all ranks. Element i of rank r is r + i % 100.
class Reduction {
 public:
  Reduction(Hosts& hosts, std::uint64_t sequence, const Options& options)
      : hosts_(hosts), sequence_(sequence), options_(options), sides_(static_cast<std::size_t>(hosts.size())) {
    for (int rank = 0; rank < hosts.size(); ++rank) {
      Side& side = sides_[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < options.count; ++i) side.input.push_back(static_cast<float>(rank) + at(i));
      side.output.assign(options.count, -1.0F);
      side.call.collective = Collective::kAllreduce;
      side.call.op = options.op;
      side.call.prescale = options.prescale;
      side.call.final_scale = options.op == ReduceOp::kAverage
                                  ? average_factor(options.postscale, DType::kF32, hosts.size())
                                  : options.postscale;
      std::vector<float>& result = options.in_place ? side.input : side.output;
      side.call.input = {side.input.data(), options.count, DType::kF32};
      side.call.output = {result.data(), options.count, DType::kF32};
      side.descriptor.collective = Collective::kAllreduce;
      side.descriptor.count = options.count;
    }
  }

  /// Announces the call on every rank, as the work queue does in the order of the calls.
  void announce() {
    VendorSlot none(hosts_.group(0));
    DeviceSlot no_devices(hosts_.group(0));
    for (int rank = 0; rank < hosts_.size(); ++rank) {
      const Side& side = sides_[static_cast<std::size_t>(rank)];
      kHierarchicalMethod.announce({hosts_.group(rank), hosts_.shm(rank), &hosts_.hierarchy(rank), &hosts_.plans(rank),
                                    none, no_devices, PreparedCall(side.call, hosts_.size()), sequence_, false});
    }
  }
  void begin() {
    for (int rank = 0; rank < hosts_.size(); ++rank) {
      Side& side = sides_[static_cast<std::size_t>(rank)];
      side.operation = std::make_unique<HierarchicalOperation>(hosts_.group(rank), hosts_.plans(rank), hosts_.shm(rank),
                                                               side.call, side.descriptor, sequence_);
    }
  }
  /// A step of a rank that has not ended. True if it has now.
  bool advance(int rank) {
    Side& side = sides_[static_cast<std::size_t>(rank)];
    if (side.operation && side.operation->advance() == Operation::State::kDone) side.operation.reset();
    return side.operation == nullptr;
  }
  /// Every rank takes some steps, but no message is delivered.
  void advance_all() {
    for (int step = 0; step < 50; ++step) {
      for (int rank = 0; rank < hosts_.size(); ++rank) (void)advance(rank);
    }
  }
  bool is_done() const {
    return std::all_of(sides_.begin(), sides_.end(), [](const Side& side) { return side.operation == nullptr; });
  }
  /// Ranks and messages of this lane move on one at a time, in an order that the generator draws. False: not all ranks
  /// come to the end.
  bool go_on(std::mt19937& random) {
    for (int step = 0; step < 20'000 && !is_done(); ++step) {
      (void)advance(static_cast<int>(random() % sides_.size()));
      if (random() % 2 == 0) (void)hosts_.network().deliver_all_of(lane());
    }
    return is_done();
  }
  bool run(std::mt19937& random) {
    begin();
    return go_on(random);
  }
  std::uint8_t lane() const { return static_cast<std::uint8_t>(sequence_ % kLanes); }

  /// The first wrong element of any rank, or nothing.
  std::string difference() const {
    const auto size = static_cast<float>(sides_.size());
    for (std::size_t rank = 0; rank < sides_.size(); ++rank) {
      const std::vector<float>& result = options_.in_place ? sides_[rank].input : sides_[rank].output;
      for (std::size_t i = 0; i < options_.count; ++i) {
        float wanted = size * (size - 1) / 2 + size * at(i);
        wanted *= static_cast<float>(options_.prescale * options_.postscale);
        if (options_.op == ReduceOp::kAverage) wanted /= size;
        if (result[i] != wanted) return fmt::format("rank {}: element {} is {}, not {}", rank, i, result[i], wanted);
      }
    }
    return {};
  }

  /// Abandons all operations that have not ended.
  void withdraw() {
    for (int rank = 0; rank < hosts_.size(); ++rank) {
      Side& side = sides_[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(!side.operation || side.operation->withdraw() == BufferHazard::kNone);
      side.operation.reset();
      if (hosts_.shm(rank) != nullptr) hosts_.shm(rank)->ledger().withdraw(LaneLedger::first_number(sequence_));
    }
  }
  BufferHazard withdraw_of(int rank) { return sides_[static_cast<std::size_t>(rank)].operation->withdraw(); }
  std::vector<int> waits_for(int rank) const { return sides_[static_cast<std::size_t>(rank)].operation->waits_for(); }

 private:
  static float at(std::size_t index) { return static_cast<float>(index % 100); }
  struct Side {
    std::vector<float> input, output;
    Call call;
    Descriptor descriptor;
    std::unique_ptr<HierarchicalOperation> operation;
  };

  Hosts& hosts_;
  const std::uint64_t sequence_;
  const Options options_;
  std::vector<Side> sides_;
};

TEST(HierarchicalOperation, AddsInEveryOrderOfRanksAndMessages) {
  for (const std::vector<int>& layout : kLayouts) {
    Hosts hosts(layout);
    std::uint64_t sequence = 0;
    for (unsigned seed = 0; seed < 10; ++seed) {
      std::mt19937 random(seed);
      // One element, short vectors, and long ones, whose parts do not end on lines.
      for (const std::size_t count : {1, 256, 257, 5003}) {
        Options options;
        options.count = count;
        options.in_place = seed % 2 == 1;
        Reduction reduction(hosts, ++sequence, options);
        ASSERT_TRUE(reduction.run(random)) << text_of(layout) << ", " << count << " elements, seed " << seed;
        ASSERT_EQ(reduction.difference(), "") << text_of(layout) << ", " << count << " elements, seed " << seed;
      }
    }
  }
}

TEST(HierarchicalOperation, AppliesFactorsOnce) {
  for (const std::vector<int>& layout : {std::vector<int>{0, 1, 0, 1}, std::vector<int>{0, 1, 1, 0, 2, 2, 2, 2}}) {
    Hosts hosts(layout);
    std::uint64_t sequence = 0;
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      for (const std::size_t count : {3, 1000}) {
        std::mt19937 random(1);
        Reduction reduction(hosts, ++sequence, {count, op, 0.5, 4.0});
        ASSERT_TRUE(reduction.run(random)) << text_of(layout);
        EXPECT_EQ(reduction.difference(), "") << text_of(layout) << ", " << count << " elements";
      }
    }
  }
}

TEST(HierarchicalOperation, LeadersSendShortVectorsAllRanksLongVectors) {
  for (const std::size_t count : {10, 1000}) {
    Hosts hosts({0, 1, 0, 1});
    std::mt19937 random(1);
    Reduction reduction(hosts, 1, {count});
    ASSERT_TRUE(reduction.run(random));
    if (count == 10) {
      EXPECT_THAT(hosts.network().senders(), ElementsAre(0, 1));
    } else {
      EXPECT_THAT(hosts.network().senders(), ElementsAre(0, 1, 2, 3));
    }
  }
}

TEST(HierarchicalOperation, LongVectorsAreMarkedAsLongTraffic) {
  for (const std::size_t count : {1000, 200'000}) {
    Hosts hosts({0, 1, 0, 1});
    std::mt19937 random(1);
    Reduction reduction(hosts, 1, {count});
    ASSERT_TRUE(reduction.run(random));
    EXPECT_EQ(hosts.network().has_sent(Traffic::kShort), count == 1000);
    EXPECT_EQ(hosts.network().has_sent(Traffic::kLong), count != 1000);
  }
}

/// Whether the first half of the first collective counts as completed on all ranks, and the second one.
void expect_completed(Hosts& hosts, bool first_half, bool second_half) {
  for (int rank = 0; rank < hosts.size(); ++rank) {
    if (hosts.shm(rank) == nullptr) continue;
    EXPECT_EQ(hosts.has_completed(rank, LaneLedger::first_number(1)), first_half) << "rank " << rank;
    EXPECT_EQ(hosts.has_completed(rank, LaneLedger::first_number(1) + 1), second_half) << "rank " << rank;
  }
}

TEST(HierarchicalOperation, AnnouncedFirstEndsFirst) {
  for (const std::vector<int>& layout : kLayouts) {
    SCOPED_TRACE(text_of(layout));
    Hosts hosts(layout);
    std::mt19937 random(3);
    Reduction first(hosts, 1, {1000}), second(hosts, 2, {1000});
    first.announce();
    second.announce();
    // The comparison of the second call ends before that of the first.
    EXPECT_FALSE(second.run(random));
    expect_completed(hosts, false, false);
    ASSERT_TRUE(first.run(random));
    ASSERT_TRUE(second.go_on(random));
    EXPECT_EQ(first.difference() + second.difference(), "");
    for (int rank = 0; rank < hosts.size(); ++rank)
      EXPECT_TRUE(hosts.has_completed(rank, LaneLedger::first_number(2) + 1)) << "rank " << rank;
  }
}

TEST(HierarchicalOperation, SecondHalfIsPendingWhileTheNetworkIsSlow) {
  for (const std::vector<int>& layout : kLayouts) {
    SCOPED_TRACE(text_of(layout));
    Hosts hosts(layout);
    std::mt19937 random(4);
    Reduction first(hosts, 1, {1000}), second(hosts, 2, {1000});
    first.begin();
    first.advance_all();
    EXPECT_FALSE(second.run(random)) << "it does not wait for the first";
    EXPECT_FALSE(first.is_done());
    expect_completed(hosts, true, false);
    while (hosts.network().deliver_all_of(first.lane())) first.advance_all();
    ASSERT_TRUE(first.is_done());
    ASSERT_TRUE(second.go_on(random));
    EXPECT_EQ(first.difference() + second.difference(), "");
  }
}

/// Runs it until so many messages have been delivered; then the rest is lost.
void lose_messages_after(std::size_t delivered, const std::vector<int>& layout) {
  Hosts hosts(layout);
  Reduction reduction(hosts, 1, {1000});
  reduction.announce();
  reduction.begin();
  reduction.advance_all();
  while (hosts.network().delivered() < delivered && hosts.network().deliverable() > 0) {
    hosts.network().deliver(0);
    reduction.advance_all();
  }
  if (reduction.is_done()) return;
  hosts.network().fail("the network is gone");
  int raised = 0;
  for (int rank = 0; rank < hosts.size(); ++rank) {
    try {
      for (int step = 0; step < 10; ++step) (void)reduction.advance(rank);
    } catch (const TransportError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("the network is gone"));
      EXPECT_THAT(reduction.waits_for(rank), testing::Not(testing::Contains(rank)));
      ++raised;
    }
  }
  EXPECT_GT(raised, 0) << "no rank saw it";
  reduction.withdraw();
  EXPECT_GT(hosts.network().withdrawn(), 0U);
  // The lane is free for the next operation: no message of the lane counts as pending.
  for (int rank = 0; rank < hosts.size(); ++rank)
    EXPECT_TRUE(hosts.has_completed(rank, LaneLedger::first_number(1))) << "rank " << rank;
}

TEST(HierarchicalOperation, LostMessagesRaiseAndReleaseEverything) {
  for (const std::vector<int>& layout : kLayouts) {
    SCOPED_TRACE(text_of(layout));
    for (std::size_t delivered = 0; delivered < 12; ++delivered) lose_messages_after(delivered, layout);
  }
}

/// Also where it stays for the sake of a message whose memory may still be used, and is not destroyed.
TEST(HierarchicalOperation, WithdrawWaitsUntilNoPeerUsesTheBuffers) {
  Hosts hosts({0, 0, 1, 1});
  Reduction reduction(hosts, 1, {1000});
  reduction.announce();
  reduction.begin();
  (void)reduction.advance(0);
  ShmGroup& shm = *hosts.shm(1);
  std::atomic<std::uint64_t>& touching =
      shm.layout().lane(shm.rank(), shm.ledger().lane_of(LaneLedger::first_number(1))).touching;
  touching.store(1);
  std::future<void> withdrawn = std::async(std::launch::async, [&] { (void)reduction.withdraw_of(0); });
  EXPECT_EQ(withdrawn.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  touching.store(0);
  withdrawn.get();
  reduction.withdraw();
}

/// A communicator of threads that count as living on these hosts.
void run_on_hosts(const std::vector<int>& layout, const std::function<void(Communicator&)>& body) {
  run_replicas(static_cast<int>(layout.size()), [&](Communicator& ranks) {
    Communicator hosts = CommunicatorProbe::on_hosts(ranks.duplicate(), layout);
    ASSERT_EQ(internals(hosts).choose(Collective::kAllreduce, 1 << 20), "hierarchical");
    body(hosts);
  });
}

TEST(HierarchicalOperation, ManyAreInFlightOnThreads) {
  for (const std::vector<int>& layout : kLayouts) {
    run_on_hosts(layout, [&](Communicator& ranks) {
      constexpr int kCalls = 40;
      std::vector<std::vector<float>> values;
      for (int call = 0; call < kCalls; ++call) {
        const std::size_t count = call % 3 == 0 ? 5 : call % 3 == 1 ? 3000 : 200'000;
        values.emplace_back(count, static_cast<float>(ranks.rank() + call));
      }
      std::vector<Work> works;
      for (auto& value : values) works.push_back(ranks.allreduce_async(value, ReduceOp::kSum));
      const int size = ranks.size();
      for (int call = kCalls - 1; call >= 0; --call) {
        const auto index = static_cast<std::size_t>(call);
        works[index].wait();
        const int sum_of_ranks = size * (size - 1) / 2;
        const std::vector<float> wanted(values[index].size(), static_cast<float>(sum_of_ranks + size * call));
        ASSERT_EQ(values[index], wanted) << text_of(layout) << ", call " << call << ", rank " << ranks.rank();
      }
    });
  }
}

TEST(HierarchicalOperation, MismatchEndsOneCallOnAllRanks) {
  for (const std::vector<int>& layout : kLayouts) {
    run_on_hosts(layout, [&](Communicator& ranks) {
      const bool odd = ranks.rank() == ranks.size() - 1;
      std::vector<float> before(3000, 1.0F), values(odd ? 3001 : 3000, 1.0F), after(3000, 1.0F);
      Work first = ranks.allreduce_async(before, ReduceOp::kSum);
      Work second = ranks.allreduce_async(values, ReduceOp::kSum);
      Work third = ranks.allreduce_async(after, ReduceOp::kSum);
      third.wait();
      EXPECT_THROW(second.wait(), Mismatch) << text_of(layout) << ", rank " << ranks.rank();
      first.wait();
      EXPECT_EQ(values, std::vector<float>(values.size(), 1.0F)) << "data was touched";
      const std::vector<float> wanted(3000, static_cast<float>(ranks.size()));
      EXPECT_EQ(before, wanted);
      EXPECT_EQ(after, wanted);
    });
  }
}

/// Its peer on the host has not found its memory yet, and the other hosts wait for that peer.
TEST(HierarchicalOperation, RankThatLeavesBeforeTheFirstCallIsLost) {
  run_on_hosts({0, 0, 1}, [](Communicator& ranks) {
    if (ranks.rank() == 1) return;
    std::vector<float> values(3, 1.0F);
    EXPECT_THROW(ranks.allreduce(values, ReduceOp::kSum), PeerLost) << "rank " << ranks.rank();
  });
}

TEST(HierarchicalOperation, RankThatFailsMidwayEndsItOnAllHosts) {
  for (const std::vector<int>& layout : kLayouts) {
    std::latch started(static_cast<std::ptrdiff_t>(layout.size()) - 1);
    run_on_hosts(layout, [&](Communicator& ranks) {
      std::vector<float> together(3000, 1.0F), values(200'000, 1.0F);
      ranks.allreduce(together, ReduceOp::kSum);
      if (ranks.rank() == ranks.size() - 1) {
        started.wait();
        ranks.abort("this rank gives up");
        EXPECT_THROW(ranks.allreduce(values, ReduceOp::kSum), Error);
        return;
      }
      Work work = ranks.allreduce_async(values, ReduceOp::kSum);
      started.count_down();
      EXPECT_THROW(work.wait(), Error) << text_of(layout) << ", rank " << ranks.rank();
    });
  }
}

}  // namespace
}  // namespace farandole
