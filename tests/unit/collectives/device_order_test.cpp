// SPDX-License-Identifier: Apache-2.0
// The order of device operations in random jobs. Ranks call operations of overlapping communicators in any order, or in
// the same order while they wait for some operations before they call the next. Proposals arrive after any delay. No
// rank may get stuck, and all ranks must run shared operations in the same order.
#include "device/device_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace farandole {
namespace {

struct Member {
  int rank = 0;
  bool has_called = false, has_proposed = false, has_agreed = false, has_run = false;
};
struct PlannedOperation {
  DeviceOrder::Ticket ticket;
  std::vector<Member> members;
  bool is_blocking = false;
  DeviceOrder::Time agreed = 0;

  bool all(bool Member::*have) const {
    return std::all_of(members.begin(), members.end(), [&](const Member& each) { return each.*have; });
  }
};

/// A job of ranks with communicators of random ranks.
class RandomJob {
 public:
  /// kAny: calls do not block. kSame: all ranks make all calls in one order, and half of the calls block.
  enum class Calls { kAny, kSame };
  RandomJob(unsigned seed, Calls calls) : random_(seed), calls_(calls), orders_(kRanks), ran_(kRanks) {
    for (std::uint16_t communicator = 0; communicator < kCommunicators; ++communicator) {
      std::vector<Member> members;
      for (int rank = 0; rank < kRanks; ++rank) {
        if (pick(2) == 0) members.push_back({rank});
      }
      for (std::uint64_t sequence = 0; sequence < kCalls; ++sequence) {
        operations_.push_back({{communicator, sequence}, members, calls == Calls::kSame && pick(2) == 0});
      }
    }
    if (calls_ == Calls::kAny) return;
    std::shuffle(operations_.begin(), operations_.end(), random_);
    std::map<std::uint16_t, std::uint64_t> next;
    for (PlannedOperation& each : operations_) each.ticket.sequence = next[each.ticket.communicator]++;
  }

  void run() {
    for (int idle = 0; idle < 2000; ++idle) {
      PlannedOperation& operation = operations_[pick(operations_.size())];
      if (operation.members.empty()) continue;
      Member& member = operation.members[pick(operation.members.size())];
      if (advance(operation, member)) idle = 0;
    }
  }

  bool is_over() const {
    return std::all_of(operations_.begin(), operations_.end(),
                       [](const PlannedOperation& operation) { return operation.all(&Member::has_run); });
  }
  /// Every rank ran its operations in the order of their agreed times: one order for all, in which nothing waits in a
  /// circle.
  bool is_consistent() const {
    return std::all_of(ran_.begin(), ran_.end(), [&](const auto& tickets) {
      return std::is_sorted(tickets.begin(), tickets.end(), [&](const auto& one, const auto& other) {
        return std::pair(agreed_.at(one), one) < std::pair(agreed_.at(other), other);
      });
    });
  }

 private:
  static constexpr int kRanks = 4;
  static constexpr std::uint16_t kCommunicators = 5;
  static constexpr std::uint64_t kCalls = 4;

  std::size_t pick(std::size_t below) { return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_); }

  /// A rank calls the operations of one communicator in order, those of different ones in any or in the job's.
  bool may_call(const PlannedOperation& operation, int rank) const {
    return std::all_of(operations_.begin(), operations_.end(), [&](const PlannedOperation& other) {
      const bool is_earlier = calls_ == Calls::kSame ? &other < &operation
                                                     : other.ticket.communicator == operation.ticket.communicator &&
                                                           other.ticket.sequence < operation.ticket.sequence;
      return !is_earlier || std::all_of(other.members.begin(), other.members.end(), [&](const Member& each) {
        return each.rank != rank || (other.is_blocking ? each.has_run : each.has_called);
      });
    });
  }

  bool advance(PlannedOperation& operation, Member& member) {
    DeviceOrder& order = orders_[static_cast<std::size_t>(member.rank)];
    if (!member.has_called) {
      if (!may_call(operation, member.rank)) return false;
      order.add(operation.ticket);
      return member.has_called = true;
    }
    if (!member.has_proposed) {
      if (!operation.all(&Member::has_called)) return false;
      const auto proposed = order.propose(operation.ticket);
      if (!proposed) return false;
      operation.agreed = std::max(operation.agreed, *proposed);
      return member.has_proposed = true;
    }
    if (!member.has_agreed) {
      if (!operation.all(&Member::has_proposed)) return false;
      order.agree(operation.ticket, operation.agreed);
      agreed_[operation.ticket] = operation.agreed;
      return member.has_agreed = true;
    }
    if (member.has_run || !order.is_next(operation.ticket)) return false;
    order.remove(operation.ticket);
    ran_[static_cast<std::size_t>(member.rank)].push_back(operation.ticket);
    return member.has_run = true;
  }

  std::mt19937 random_;
  const Calls calls_;
  std::vector<DeviceOrder> orders_;
  std::vector<std::vector<DeviceOrder::Ticket>> ran_;
  std::vector<PlannedOperation> operations_;
  std::map<DeviceOrder::Ticket, DeviceOrder::Time> agreed_;
};

TEST(DeviceOrder, RanksRunSharedOperationsInOneOrder) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    for (const RandomJob::Calls calls : {RandomJob::Calls::kAny, RandomJob::Calls::kSame}) {
      RandomJob job(seed, calls);
      job.run();
      ASSERT_TRUE(job.is_over()) << "seed " << seed << ", calls " << static_cast<int>(calls);
      ASSERT_TRUE(job.is_consistent()) << "seed " << seed << ", calls " << static_cast<int>(calls);
    }
  }
}

TEST(DeviceOrder, WaitsForProposalsThatMayComeEarlier) {
  DeviceOrder order;
  const DeviceOrder::Ticket first{1, 0}, second{0, 0};
  for (const auto& ticket : {first, second}) order.add(ticket);
  EXPECT_EQ(order.propose(first), 1U);
  EXPECT_EQ(order.propose(second), 2U);
  order.agree(second, 5);
  EXPECT_FALSE(order.is_next(second));  // the first one may be given 1 to 5
  order.agree(first, 5);
  EXPECT_FALSE(order.is_next(first));  // of one time the lower communicator goes first
  EXPECT_TRUE(order.is_next(second));
  order.remove(second);
  EXPECT_TRUE(order.is_next(first));
  order.add({2, 0});
  EXPECT_EQ(order.propose({2, 0}), 6U);
}

TEST(DeviceOrder, DoesNotWaitForCallsThatPeersHaveNotMade) {
  DeviceOrder order;
  for (const std::uint16_t communicator : {0, 1}) order.add({communicator, 0});
  EXPECT_EQ(order.propose({1, 0}), 1U);
  order.agree({1, 0}, 7);
  EXPECT_TRUE(order.is_next({1, 0}));
  EXPECT_EQ(order.propose({0, 0}), 8U);
}

TEST(DeviceOrder, CallsOfACommunicatorProposeInOrder) {
  DeviceOrder order;
  for (const std::uint64_t sequence : {0, 1}) order.add({3, sequence});
  EXPECT_EQ(order.propose({3, 1}), std::nullopt);
  EXPECT_EQ(order.propose({3, 0}), 1U);
  EXPECT_EQ(order.propose({3, 1}), 2U);
}

TEST(DeviceOrder, DoesNotWaitForLaterCallsOfACommunicator) {
  // This rank has made fewer calls than its peers, so its proposals are far below the agreed times; its third call is
  // agreed on only after its first has run, and so is the second call on the other communicator.
  DeviceOrder order;
  for (const std::uint16_t communicator : {0, 1}) {
    for (std::uint64_t sequence = 0; sequence < 3; ++sequence) {
      order.add({communicator, sequence});
      order.propose({communicator, sequence});
    }
  }
  order.agree({1, 0}, 30);
  order.agree({0, 0}, 20);
  EXPECT_TRUE(order.is_next({0, 0}));
  EXPECT_FALSE(order.is_next({1, 0}));
  order.remove({0, 0});
  EXPECT_FALSE(order.is_next({1, 0}));  // {0, 1} may still get an earlier time
  order.agree({0, 1}, 40);
  EXPECT_TRUE(order.is_next({1, 0}));
}

}  // namespace
}  // namespace farandole
