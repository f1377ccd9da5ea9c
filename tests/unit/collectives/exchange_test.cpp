// SPDX-License-Identifier: Apache-2.0
// Exchange, the method for short vectors between hosts. The hosts are simulated by groups. (call_comparison_test.cpp
// tests the orders in which messages may arrive.)
#include "messages/exchange.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "communicator_probe.h"
#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "groups.h"
#include "message_of.h"
#include "selection/selection.h"
#include "variable.h"

namespace farandole {
namespace {

using test::message_of;
using testing::HasSubstr;
using Numbers = std::vector<float>;
using Counts = std::vector<std::size_t>;

constexpr std::string_view kExchange = "exchange";

using Layout = std::vector<int>;

Layout apart(int size) {
  Layout hosts(static_cast<std::size_t>(size));
  std::iota(hosts.begin(), hosts.end(), 0);
  return hosts;
}

/// Hosts of one rank each, and hosts of several, of unequal size and interleaved.
std::vector<Layout> layouts() {
  std::vector<Layout> all{{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {1, 0, 0}, {0, 1, 1, 0, 2, 2}, {2, 1, 2, 0, 2}};
  for (const int size : {2, 3, 4, 5, 7, 8}) all.push_back(apart(size));
  return all;
}

void exchange_on_hosts(const Layout& layout, const std::function<void(Communicator&)>& body) {
  SCOPED_TRACE(testing::PrintToString(layout));
  run_replicas(static_cast<int>(layout.size()), [&](Communicator& ranks) {
    Communicator on_hosts = CommunicatorProbe::on_hosts(ranks.duplicate(), layout);
    body(on_hosts);
  });
}

/// Element `index` of the data of `rank`: small whole numbers, so that sums are exact.
float value(int rank, std::size_t index) {
  return static_cast<float>(rank * 10 + static_cast<int>(index % 7));
}
Numbers numbers_of(int rank, std::size_t first, std::size_t count) {
  Numbers numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = value(rank, first + i);
  return numbers;
}
Numbers sums(int size, std::size_t first, std::size_t count, float factor) {
  Numbers sum(count, 0.0F);
  for (int rank = 0; rank < size; ++rank) {
    for (std::size_t i = 0; i < count; ++i) sum[i] += factor * value(rank, first + i);
  }
  return sum;
}
/// Millions of numbers in a moment, where testing::Each takes a second.
bool are_all(const Numbers& numbers, float expected) {
  return std::all_of(numbers.begin(), numbers.end(), [&](float number) { return number == expected; });
}
Numbers joined(const Counts& counts) {
  Numbers all;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const Numbers part = numbers_of(static_cast<int>(rank), 0, counts[rank]);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}
Counts uneven_counts(int size) {
  Counts counts;
  for (int rank = 0; rank < size; ++rank) counts.push_back(rank % 3 == 1 ? 0 : static_cast<std::size_t>(3 + 2 * rank));
  return counts;
}

TEST(Exchange, ReducesInAndOutOfPlaceWithFactors) {
  for (const Layout& layout : layouts()) {
    exchange_on_hosts(layout, [size = static_cast<int>(layout.size())](Communicator& ranks) {
      for (const std::size_t count : {0, 1, 5, 509}) {
        const Numbers own = numbers_of(ranks.rank(), 0, count);
        Numbers result(count, -1.0F), in_place = own;
        ranks.allreduce(own, result, ReduceOp::kSum, {.prescale = 2.0, .postscale = 0.5, .algorithm = kExchange});
        EXPECT_EQ(result, sums(size, 0, count, 1.0F));
        ranks.allreduce(in_place, ReduceOp::kAverage, {.postscale = size * 1.0, .algorithm = kExchange});
        EXPECT_EQ(in_place, sums(size, 0, count, 1.0F));
        for (int root = 0; root < size; ++root) {
          result.assign(count, -1.0F);
          ranks.reduce(own, result, ReduceOp::kSum, root, {.algorithm = kExchange});
          EXPECT_EQ(result, ranks.rank() == root ? sums(size, 0, count, 1.0F) : Numbers(count, -1.0F));
        }
      }
      const Counts counts = uneven_counts(size);
      const std::size_t first = std::accumulate(counts.begin(), counts.begin() + ranks.rank(), std::size_t{0});
      const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      Numbers part(counts[static_cast<std::size_t>(ranks.rank())], -1.0F);
      ranks.reduce_scatter(numbers_of(ranks.rank(), 0, total), part, ReduceOp::kSum, counts, {.algorithm = kExchange});
      EXPECT_EQ(part, sums(size, first, part.size(), 1.0F));
      Numbers whole = numbers_of(ranks.rank(), 0, total);
      const BufferView own_place = BufferView(whole).part(first, part.size());
      const CallOptions halved{.prescale = 0.5, .algorithm = kExchange};
      ranks.reduce_scatter(whole, own_place, ReduceOp::kSum, counts, halved);
      EXPECT_EQ(Numbers(whole.begin() + static_cast<std::ptrdiff_t>(first),
                        whole.begin() + static_cast<std::ptrdiff_t>(first + part.size())),
                sums(size, first, part.size(), 0.5F));
      ranks.reduce_scatter(numbers_of(ranks.rank(), 0, total), part, ReduceOp::kSum, counts, halved);
      EXPECT_EQ(part, sums(size, first, part.size(), 0.5F));
    });
  }
}

TEST(Exchange, TwoRanksPublishOnlyTheDataThePeerNeeds) {
  Numbers input(4), output(4);
  const auto shown_by = [&](Collective collective, int rank) {
    Call call;
    call.collective = collective;
    call.input = input;
    call.output = output;
    if (is_rooted(collective)) call.root = 1;
    return ShortCollective(PreparedCall(call, 2), rank, /*size=*/2, {}, ShortCollective::ShownTo::kOtherOfTwo)
        .shown_by(rank);
  };
  const auto count = [&](Collective collective, int rank) { return shown_by(collective, rank).count; };
  for (const Collective collective : {Collective::kReduce, Collective::kGather}) {
    EXPECT_EQ(count(collective, 0), 4U) << name(collective);
    EXPECT_EQ(count(collective, 1), 0U) << name(collective) << ": the root needs it";
  }
  for (const Collective collective : {Collective::kBroadcast, Collective::kScatter}) {
    EXPECT_EQ(count(collective, 0), 0U) << name(collective) << ": the root has it";
    EXPECT_EQ(count(collective, 1), 4U) << name(collective);
  }
  for (const Collective collective : {Collective::kReduceScatter, Collective::kAlltoall}) {
    EXPECT_EQ(count(collective, 0), 2U) << name(collective);
    EXPECT_EQ(shown_by(collective, 0).first, 2U) << name(collective);
    EXPECT_EQ(count(collective, 1), 2U) << name(collective);
    EXPECT_EQ(shown_by(collective, 1).first, 0U) << name(collective);
  }
  for (const Collective collective : {Collective::kAllreduce, Collective::kAllgather}) {
    EXPECT_EQ(count(collective, 0), 4U) << name(collective);
  }
}

TEST(Exchange, ScaledInputIsNotScaledAgain) {
  Numbers input(4, 3.0F), output(4, -1.0F);
  Call call;
  call.collective = Collective::kAllreduce;
  call.input = input;
  call.output = output;
  call.prescale = 2.0;
  const ShortCollective collective(PreparedCall(call, 2), /*rank=*/0, /*size=*/2, {},
                                   ShortCollective::ShownTo::kOtherOfTwo);
  std::vector<Numbers> shown{Numbers(4), Numbers(4, 1.0F)};
  collective.show(shown[0].data());
  input.assign(4, 100.0F);
  std::vector<const void*> pointers(2);
  collective.take(
      [&](int rank) { return reinterpret_cast<const std::byte*>(shown[static_cast<std::size_t>(rank)].data()); },
      pointers);
  EXPECT_EQ(output, Numbers(4, 7.0F));
}

TEST(Exchange, MovesEveryPartToItsPlace) {
  for (const Layout& layout : layouts()) {
    exchange_on_hosts(layout, [size = static_cast<int>(layout.size())](Communicator& ranks) {
      const Counts counts = uneven_counts(size);
      const auto me = static_cast<std::size_t>(ranks.rank());
      const Numbers all = joined(counts), own = numbers_of(ranks.rank(), 0, counts[me]);
      Numbers gathered(all.size(), -1.0F);
      ranks.allgather(own, gathered, counts, {.algorithm = kExchange});
      EXPECT_EQ(gathered, all);
      for (int root = 0; root < size; ++root) {
        const bool at_root = ranks.rank() == root;
        Numbers data = numbers_of(ranks.rank(), 0, 100), part(own.size(), -1.0F);
        gathered.assign(all.size(), -1.0F);
        ranks.broadcast(data, root, {.algorithm = kExchange});
        EXPECT_EQ(data, numbers_of(root, 0, 100));
        ranks.gather(own, at_root ? BufferView(gathered) : BufferView(nullptr, 0, DType::kF32), root, counts,
                     {.algorithm = kExchange});
        EXPECT_EQ(gathered, at_root ? all : Numbers(all.size(), -1.0F));
        ranks.scatter(at_root ? ConstBufferView(all) : ConstBufferView(nullptr, 0, DType::kF32), part, root, counts,
                      {.algorithm = kExchange});
        EXPECT_EQ(part, own);
      }
      // In place, and by Farandole's choice.
      Numbers exchanged = numbers_of(ranks.rank(), 0, static_cast<std::size_t>(size));
      ranks.alltoall(exchanged, exchanged);
      for (int rank = 0; rank < size; ++rank) EXPECT_EQ(exchanged[static_cast<std::size_t>(rank)], value(rank, me));
    });
  }
}

TEST(Exchange, AllRanksComputeTheSameBits) {
  exchange_on_hosts(apart(7), [](Communicator& ranks) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
      Buffer buffer(33, dtype);
      const BufferView values = buffer.view();
      auto* const halves = static_cast<std::uint16_t*>(values.data);
      const std::size_t bytes = values.size_in_bytes();
      // Halves of every type, none of them infinite.
      for (std::size_t i = 0; i < bytes / 2; ++i) {
        halves[i] = static_cast<std::uint16_t>(0x3000 + (ranks.rank() * 977 + static_cast<int>(i) * 131) % 0x0c00);
      }
      ranks.allreduce(values, ReduceOp::kSum, {.algorithm = kExchange});
      std::vector<std::uint8_t> all(7 * bytes);
      ranks.allgather(ConstBufferView(values.data, bytes, DType::kU8), all);
      for (std::size_t i = bytes; i < all.size(); ++i) ASSERT_EQ(all[i], all[i % bytes]) << name(dtype);
    }
  });
}

/// Whatever the odd rank calls: a vector of another length, one that is too long to travel, another collective.
TEST(Exchange, AllRanksRaiseTheSameMismatchAndContinue) {
  for (const Layout& layout : layouts()) {
    exchange_on_hosts(layout, [size = static_cast<int>(layout.size())](Communicator& ranks) {
      const bool is_odd = ranks.rank() == size - 1;
      for (const std::size_t count : {std::size_t{5}, std::size_t{60'000}, std::size_t{4} << 20}) {
        Numbers values(is_odd ? count : 100, 3.0F);
        const std::string text = message_of<Mismatch>([&] { ranks.allreduce(values, ReduceOp::kSum); });
        EXPECT_THAT(text, HasSubstr("allreduce of 100 f32 elements"));
        EXPECT_THAT(text, HasSubstr(fmt::format("allreduce of {} f32 elements", count)));
        EXPECT_TRUE(are_all(values, 3.0F));
      }
      Numbers values(50, 3.0F);
      const auto call = [&] {
        if (is_odd) return ranks.broadcast(values, 0);
        ranks.allreduce(values, ReduceOp::kSum);
      };
      EXPECT_THAT(message_of<Mismatch>(call), HasSubstr("called broadcast of 50 f32 elements"));
      const auto refused = [&] {
        if (!is_odd) return ranks.allreduce(values, ReduceOp::kSum);
        ranks.allreduce(ConstBufferView(values), BufferView(values).part(0, 10), ReduceOp::kSum);
      };
      if (is_odd) {
        EXPECT_THROW(refused(), InvalidArgument);
      } else {
        EXPECT_THAT(message_of<Mismatch>(refused), HasSubstr("arguments that it refuses"));
      }
      ranks.allreduce(values, ReduceOp::kSum);
      EXPECT_TRUE(are_all(values, 3.0F * static_cast<float>(size)));
    });
  }
}

TEST(Exchange, CommunicatorMayCompareCallsIfTheJobDoesNot) {
  const test::Variable check("FARANDOLE_CHECK", "off");
  for (const Layout& layout : {apart(2), Layout{0, 0}, Layout{0, 0, 1, 1}}) {
    SCOPED_TRACE(testing::PrintToString(layout));
    run_replicas(static_cast<int>(layout.size()), [&](Communicator& ranks) {
      const bool is_odd = ranks.rank() == 1;
      Communicator comparing = CommunicatorProbe::on_hosts(ranks.duplicate({.compare = true}), layout);
      for (const std::size_t count : {10, 500'000}) {
        Numbers values(is_odd ? count / 2 : count, 3.0F);
        EXPECT_THROW(comparing.allreduce(values, ReduceOp::kSum), Mismatch);
        EXPECT_TRUE(are_all(values, 3.0F));
        const auto refused = [&] {
          comparing.allreduce(ConstBufferView(values), BufferView(values).part(0, is_odd ? 1 : values.size()),
                              ReduceOp::kSum);
        };
        if (is_odd) {
          EXPECT_THROW(refused(), InvalidArgument);
        } else {
          EXPECT_THROW(refused(), Mismatch);
        }
      }
    });
  }
}

TEST(Exchange, ShortAndLongVectorsMayBeInFlightTogether) {
  for (const Layout& layout : layouts()) {
    exchange_on_hosts(layout, [](Communicator& ranks) {
      std::vector<Numbers> values;
      for (std::size_t call = 0; call < 40; ++call) values.emplace_back(call % 3 == 1 ? 90'000 : 9, 1.0F);
      std::vector<Work> works;
      for (Numbers& value : values) works.push_back(ranks.allreduce_async(value, ReduceOp::kSum));
      ranks.barrier();
      for (std::size_t call = works.size(); call-- > 0;) {
        works[call].wait();
        EXPECT_TRUE(are_all(values[call], static_cast<float>(ranks.size())));
      }
    });
  }
}

SelectionQuery between_hosts(std::size_t bytes, int size) {
  SelectionQuery asked;
  asked.bytes = bytes;
  asked.size = size;
  asked.link = {20.0, 1e-3};
  return asked;
}

TEST(Exchange, IsSelectedIfFasterThanAnotherRound) {
  const Settings settings;
  EXPECT_EQ(select(between_hosts(4, 2), settings).name(), kExchange);
  EXPECT_EQ(select(between_hosts(64 << 10, 2), settings).name(), kExchange);
  EXPECT_NE(select(between_hosts(4 << 20, 2), settings).name(), kExchange);
  EXPECT_EQ(select(between_hosts(4, 64), settings).name(), kExchange);
  EXPECT_NE(select(between_hosts(64 << 10, 64), settings).name(), kExchange);
  SelectionQuery asked = between_hosts(4, 4);
  asked.hosts = 2;
  EXPECT_EQ(select(asked, settings).name(), kExchange);
  asked.bytes = 64 << 10;
  EXPECT_NE(select(asked, settings).name(), kExchange);
  asked.shares_memory = true;
  EXPECT_NE(select(asked, settings).name(), kExchange);
}

TEST(Exchange, MovementMakesNoExtraCopies) {
  const Settings settings;
  for (const Collective collective : {Collective::kAllgather, Collective::kBroadcast}) {
    SelectionQuery asked = between_hosts(64 << 10, 2);
    asked.collective = collective;
    asked.link = {15.0, 8e-4};
    EXPECT_EQ(select(asked, settings).name(), kExchange) << name(collective);
    asked.bytes = 120 << 10;
    EXPECT_NE(select(asked, settings).name(), kExchange) << name(collective);
  }
}

TEST(Exchange, TwoRanksDoNotSendTheirOwnParts) {
  const Settings settings;
  for (const Collective collective : {Collective::kReduceScatter, Collective::kAlltoall, Collective::kScatter}) {
    SelectionQuery asked = between_hosts(64 << 10, 2);
    asked.collective = collective;
    asked.link = {15.0, 8e-4};
    EXPECT_EQ(select(asked, settings).name(), kExchange) << name(collective) << ": half of it is sent";
    // The rounds of a scatter to more ranks take longer than all of it.
    if (collective == Collective::kScatter) continue;
    asked.size = 3;
    EXPECT_NE(select(asked, settings).name(), kExchange) << name(collective) << ": all of it is";
  }
}

TEST(Exchange, IsNotSelectedIfCallsAreNotCompared) {
  const Settings settings;
  SelectionQuery asked = between_hosts(4, 2);
  asked.compares = false;
  EXPECT_EQ(select(asked, settings).name(), "recursive_doubling");
  asked.collective = Collective::kBroadcast;
  EXPECT_EQ(select(asked, settings).name(), "binomial");
  asked.size = 4;
  asked.hosts = 2;
  EXPECT_EQ(select(asked, settings).name(), "hierarchical");
  asked.collective = Collective::kAllreduce;
  EXPECT_EQ(select(asked, settings).name(), kExchange) << "takes as many rounds";
}

TEST(Exchange, OverHostsSelectionComparesWithTheHierarchy) {
  const Settings settings;
  SelectionQuery asked = between_hosts(64 << 10, 4);
  asked.hosts = 2;
  for (const Collective collective : {Collective::kAllgather, Collective::kBroadcast, Collective::kGather}) {
    asked.collective = collective;
    asked.bytes = 64 << 10;
    EXPECT_EQ(select(asked, settings).name(), kExchange) << name(collective) << ": a hierarchy sends as much";
    asked.bytes = (64 << 10) + 4;
    EXPECT_NE(select(asked, settings).name(), kExchange) << name(collective) << ": there is no room for more";
  }
  for (const Collective collective : {Collective::kAllreduce, Collective::kReduceScatter, Collective::kAlltoall}) {
    asked.collective = collective;
    asked.bytes = 4 << 10;
    EXPECT_EQ(select(asked, settings).name(), kExchange) << name(collective);
    asked.bytes = 16 << 10;
    EXPECT_NE(select(asked, settings).name(), kExchange) << name(collective) << ": the vectors of all ranks cross";
  }
}

TEST(Exchange, SettingIsSkippedForLongVectors) {
  const test::Variable allreduce("FARANDOLE_ALLREDUCE", std::string(kExchange));
  const test::Variable broadcast("FARANDOLE_BROADCAST", std::string(kExchange));
  for (const Layout& layout : {Layout{0, 1}, Layout{0, 0, 1, 1}}) {
    run_replicas(static_cast<int>(layout.size()), [&](Communicator& on_one_host) {
      // `on_one_host` could not be duplicated under this setting, which needs several hosts.
      Communicator ranks = CommunicatorProbe::on_hosts(std::move(on_one_host), layout);
      EXPECT_EQ(internals(ranks).choose(Collective::kAllreduce, 4), kExchange);
      for (const std::size_t count : {5, 300'000}) {
        Numbers values(count, 1.0F);
        ranks.allreduce(values, ReduceOp::kSum);
        EXPECT_TRUE(are_all(values, static_cast<float>(ranks.size()))) << count;
        values.assign(count, static_cast<float>(ranks.rank()));
        ranks.broadcast(values, 1);
        EXPECT_TRUE(are_all(values, 1.0F)) << count;
      }
    });
  }
}

TEST(Exchange, SettingHoldsForShortVectorsCallerForAll) {
  Settings settings;
  settings.collectives.allreduce = kExchange;
  EXPECT_EQ(select(between_hosts(4, 2), settings).name(), kExchange);
  EXPECT_NE(select(between_hosts(4 << 20, 2), settings).name(), kExchange);
  SelectionQuery asked = between_hosts(4 << 20, 2);
  asked.forced = kExchange;
  EXPECT_THROW((void)select(asked, settings), InvalidArgument);
}

}  // namespace
}  // namespace farandole
