// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks, and communicators of a part of the ranks.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/endpoint.h"
#include "groups.h"
#include "message_of.h"
#include "values.h"

namespace farandole::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kShortBytes = 8192;  // a longer message is announced first

int next(const Communicator& ranks) {
  return (ranks.rank() + 1) % ranks.size();
}
int previous(const Communicator& ranks) {
  return (ranks.rank() + ranks.size() - 1) % ranks.size();
}

/// Values that differ by rank, message and position.
std::vector<std::int32_t> numbers(int rank, int message, std::size_t count) {
  std::vector<std::int32_t> made(count);
  std::iota(made.begin(), made.end(), 1'000'000 * rank + 1000 * message);
  return made;
}

/// As for_each_group, without a job of one rank.
void for_each_group_of_several(const std::vector<int>& sizes, const std::function<void(Communicator&)>& body) {
  for_each_group(sizes, [&](Communicator& ranks) {
    if (ranks.size() > 1) body(ranks);
  });
}

/// The communicator still works.
void expect_usable(Communicator& ranks) {
  std::vector<std::int32_t> one{1};
  ranks.allreduce(one, ReduceOp::kSum);
  EXPECT_EQ(one[0], ranks.size());
  std::vector<std::int32_t> sent{ranks.rank()}, received{-1};
  ranks.send(sent, next(ranks), 999);
  ranks.recv(received, previous(ranks), 999);
  EXPECT_EQ(received[0], previous(ranks));
}

TEST(PointToPoint, MovesEveryTypeAndCountAroundARing) {
  for_each_group({1, 2, 3, 4}, [](Communicator& ranks) {
    for (int type = 0; type < kDTypeCount; ++type) {
      const auto dtype = static_cast<DType>(type);
      const std::size_t limit = kShortBytes / size_in_bytes(dtype);
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, limit - 1, limit, limit + 1}) {
        const Buffer sent = values(ranks.rank(), 0, count, dtype, ReduceOp::kSum);
        Buffer received(count, dtype);
        Work send = ranks.send_async(sent.view(), next(ranks), type);
        EXPECT_EQ(ranks.recv(received.view(), previous(ranks), type), previous(ranks));
        send.wait();
        EXPECT_EQ(first_difference(received.view(),
                                   [&](std::size_t i) { return value(previous(ranks), i, dtype, ReduceOp::kSum); }),
                  "")
            << name(dtype) << ", " << count;
      }
    }
  });
}

/// Ranks take turns, because a long send blocks until its receiver has the values.
void pass_around(Communicator& ranks, BufferView sent, BufferView received) {
  if (ranks.rank() == 0) ranks.send(sent, next(ranks));
  EXPECT_EQ(ranks.recv(received, previous(ranks)), previous(ranks));
  if (ranks.rank() != 0) ranks.send(sent, next(ranks));
}

TEST(PointToPoint, BlockingCallsMoveLongMessagesAroundARing) {
  for_each_group_of_several({2, 3}, [](Communicator& ranks) {
    for (const std::size_t count : {std::size_t{1} << 18, 10 * (std::size_t{1} << 20) + 1}) {
      auto sent = numbers(ranks.rank(), 1, count);
      std::vector<std::int32_t> received(count);
      pass_around(ranks, sent, received);
      EXPECT_EQ(received, numbers(previous(ranks), 1, count));
    }
  });
}

TEST(PointToPoint, MovesWindows) {
  for_each_group_of_several({2, 3}, [](Communicator& ranks) {
    constexpr std::size_t kCount = 700'000;
    Buffer sent = ranks.allocate(kCount, DType::kI32), received = ranks.allocate(kCount, DType::kI32);
    const auto own = numbers(ranks.rank(), 2, kCount);
    std::copy(own.begin(), own.end(), sent.as<std::int32_t>());
    pass_around(ranks, sent.view(), received.view());
    const auto expected = numbers(previous(ranks), 2, kCount);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), received.as<std::int32_t>()));
  });
}

TEST(PointToPoint, TagsSelectMessagesInAnyOrder) {
  for_each_group({1, 2, 3}, [](Communicator& ranks) {
    constexpr int kTags = 6;
    // Every other message is long.
    const auto count = [](int tag) { return tag % 2 == 0 ? std::size_t{10} : std::size_t{5000}; };
    std::vector<std::vector<std::int32_t>> sent;
    std::vector<Work> sends;
    for (int tag = 0; tag < kTags; ++tag) sent.push_back(numbers(ranks.rank(), tag, count(tag)));
    for (int tag = 0; tag < kTags; ++tag) {
      sends.push_back(ranks.send_async(sent[static_cast<std::size_t>(tag)], next(ranks), tag));
    }
    for (int tag = kTags - 1; tag >= 0; --tag) {
      std::vector<std::int32_t> received(count(tag));
      ranks.recv(received, previous(ranks), tag);
      EXPECT_EQ(received, numbers(previous(ranks), tag, count(tag))) << tag;
    }
  });
}

TEST(PointToPoint, MessagesOfOneTagArriveInOrder) {
  for_each_group({1, 2}, [](Communicator& ranks) {
    constexpr int kMessages = 40;
    std::vector<std::vector<std::int32_t>> sent;
    std::vector<Work> sends;
    for (int k = 0; k < kMessages; ++k) sent.push_back(numbers(ranks.rank(), k, k % 3 == 0 ? 4000 : 4));
    for (auto& message : sent) sends.push_back(ranks.send_async(message, next(ranks), 5));
    for (int k = 0; k < kMessages; ++k) {
      std::vector<std::int32_t> received(k % 3 == 0 ? 4000 : 4);
      ranks.recv(received, previous(ranks), 5);
      ASSERT_EQ(received, numbers(previous(ranks), k, received.size())) << k;
    }
  });
}

TEST(PointToPoint, AnySourceTakesAMessageOfEachPeer) {
  for_each_group({2, 3, 4, 8}, [](Communicator& ranks) {
    for (const int tag : {4, 5}) {
      const std::size_t count = tag == 4 ? 3 : 30'000;
      if (ranks.rank() != 0) {
        ranks.send(numbers(ranks.rank(), 0, count), 0, tag);
        continue;
      }
      std::vector<bool> has_come(static_cast<std::size_t>(ranks.size()));
      for (int k = 1; k < ranks.size(); ++k) {
        std::vector<std::int32_t> received(count);
        Work work = ranks.recv_async(received, Communicator::kAnySource, tag);
        work.wait();
        EXPECT_EQ(received, numbers(work.source(), 0, count));
        EXPECT_FALSE(has_come[static_cast<std::size_t>(work.source())]);
        has_come[static_cast<std::size_t>(work.source())] = true;
      }
    }
  });
}

TEST(PointToPoint, ThousandMessagesMayBePendingBothWays) {
  for_each_group({1, 2, 3}, [](Communicator& ranks) {
    constexpr int kMessages = 1000;
    const auto count = [](int k) { return k % 10 == 0 ? std::size_t{3000} : std::size_t{20}; };
    std::vector<std::vector<std::int32_t>> sent, received;
    std::vector<Work> works;
    for (int k = 0; k < kMessages; ++k) {
      sent.push_back(numbers(ranks.rank(), k, count(k)));
      received.emplace_back(count(k));
    }
    for (std::size_t k = 0; k < kMessages; ++k) {
      works.push_back(ranks.send_async(sent[k], next(ranks), static_cast<int>(k) % 7));
    }
    for (std::size_t k = 0; k < kMessages; ++k) {
      works.push_back(ranks.recv_async(received[k], previous(ranks), static_cast<int>(k) % 7));
    }
    for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
    for (int k = 0; k < kMessages; ++k) {
      ASSERT_EQ(received[static_cast<std::size_t>(k)], numbers(previous(ranks), k, count(k))) << k;
    }
  });
}

TEST(PointToPoint, ARankSendsToItself) {
  for_each_group({1, 2}, [](Communicator& ranks) {
    std::vector<std::int32_t> received(8), long_received(50'000);
    ranks.send(numbers(ranks.rank(), 3, 8), ranks.rank());
    EXPECT_EQ(ranks.recv(received, Communicator::kAnySource), ranks.rank());
    EXPECT_EQ(received, numbers(ranks.rank(), 3, 8));
    const auto sent = numbers(ranks.rank(), 4, long_received.size());
    Work send = ranks.send_async(sent, ranks.rank());
    ranks.recv(long_received, ranks.rank());
    send.wait();
    EXPECT_EQ(long_received, sent);
  });
}

TEST(PointToPoint, TestCompletesMessages) {
  for_each_group({1, 2}, [](Communicator& ranks) {
    const auto sent = numbers(ranks.rank(), 5, 20'000);
    std::vector<std::int32_t> received(sent.size());
    Work send = ranks.send_async(sent, next(ranks));
    Work receive = ranks.recv_async(received, previous(ranks));
    while (!receive.test()) std::this_thread::yield();
    while (!send.test()) std::this_thread::yield();
    EXPECT_EQ(receive.source(), previous(ranks));
    EXPECT_EQ(received, numbers(previous(ranks), 5, sent.size()));
    EXPECT_THAT(message_of<InvalidArgument>([&] { (void)send.source(); }), HasSubstr("a receive that is complete"));
    EXPECT_THAT(message_of<InvalidArgument>([&] { receive.wait_on({}); }), HasSubstr("use wait()"));
  });
}

TEST(PointToPoint, MessagesRunBesideCollectives) {
  for_each_group({2, 3, 4}, [](Communicator& ranks) {
    std::vector<std::int32_t> sums(200'000, 1);
    Work sum = ranks.allreduce_async(sums, ReduceOp::kSum);
    const auto sent = numbers(ranks.rank(), 6, 9000);
    std::vector<std::int32_t> received(sent.size());
    Work send = ranks.send_async(sent, next(ranks));
    ranks.barrier();
    ranks.recv(received, previous(ranks));
    EXPECT_EQ(received, numbers(previous(ranks), 6, sent.size()));
    sum.wait();
    EXPECT_EQ(sums.back(), ranks.size());
  });
}

TEST(PointToPoint, CommunicatorsHaveMessagesOfTheirOwn) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    Communicator copy = ranks.duplicate();
    Communicator reversed = ranks.split(0, -ranks.rank());
    ranks.send(numbers(0, 1, 4), next(ranks));
    copy.send(numbers(0, 2, 4), next(copy));
    reversed.send(numbers(0, 3, 4), next(reversed));
    std::vector<std::int32_t> first(4), second(4), third(4);
    EXPECT_EQ(reversed.recv(third, Communicator::kAnySource), previous(reversed));
    copy.recv(second, Communicator::kAnySource);
    ranks.recv(first, Communicator::kAnySource);
    EXPECT_EQ(first, numbers(0, 1, 4));
    EXPECT_EQ(second, numbers(0, 2, 4));
    EXPECT_EQ(third, numbers(0, 3, 4));
  });
}

TEST(PointToPoint, ThreadsSendAndReceiveAtTheSameTime) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    if (!internals(ranks).endpoint().progress().usable_from_any_thread()) return;
    constexpr int kThreads = 3;
    std::vector<std::thread> threads;
    for (int tag = 0; tag < kThreads; ++tag) {
      threads.emplace_back([&ranks, tag] {
        for (int k = 0; k < 50; ++k) {
          const std::size_t count = k % 5 == 0 ? 6000 : 6;
          const auto sent = numbers(ranks.rank(), k, count);
          std::vector<std::int32_t> received(count);
          Work send = ranks.send_async(sent, next(ranks), tag);
          ranks.recv(received, previous(ranks), tag);
          EXPECT_EQ(received, numbers(previous(ranks), k, count));
        }
      });
    }
    for (int k = 0; k < 20; ++k) ranks.barrier();
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(PointToPoint, OtherCountsAndTypesAreMismatches) {
  for_each_group_of_several({2, 3}, [](Communicator& ranks) {
    std::vector<std::int32_t> received(7, -1);
    if (ranks.rank() == 0) {
      ranks.send(numbers(0, 0, 6), 1, 8);
      ranks.send(std::vector<float>(7), 1, 8);
      const auto sent = numbers(0, 0, 60'000);
      EXPECT_THAT(message_of<Mismatch>([&] { ranks.send(sent, 1, 8); }),
                  AllOf(HasSubstr("sends a message of 60000 i32 with tag 8"), HasSubstr("rank 1"),
                        HasSubstr("receives 7 i32; nothing was received")));
    } else if (ranks.rank() == 1) {
      for (const char* const sent : {"sends 6 i32", "sends 7 f32", "sends 60000 i32"}) {
        EXPECT_THAT(message_of<Mismatch>([&] { ranks.recv(received, 0, 8); }),
                    AllOf(HasSubstr("receives 7 i32 with tag 8"), HasSubstr("rank 0"), HasSubstr(sent)));
        EXPECT_EQ(received, std::vector<std::int32_t>(7, -1));
      }
    }
    expect_usable(ranks);
  });
}

TEST(PointToPoint, RefusesInvalidArguments) {
  for_each_group({1, 3}, [](Communicator& ranks) {
    std::vector<float> data(3);
    for (const int rank : {-2, -1, ranks.size()}) {
      EXPECT_THAT(message_of<InvalidArgument>([&] { ranks.send(data, rank); }),
                  HasSubstr(fmt::format("send: rank {} is not one of 0 … {}", rank, ranks.size() - 1)));
    }
    EXPECT_THAT(message_of<InvalidArgument>([&] { ranks.recv(data, -2); }), HasSubstr("recv: rank -2"));
    EXPECT_THAT(message_of<InvalidArgument>([&] { ranks.recv(data, 0, -1); }), HasSubstr("tag -1 is negative"));
    EXPECT_THAT(message_of<InvalidArgument>([&] { ranks.send(ConstBufferView(nullptr, 3, DType::kF32), 0); }),
                HasSubstr("the address is null, but there are 3 elements"));
    const BufferView on_device(data.data(), 3, DType::kF32, {MemoryKind::kCuda, 0});
    EXPECT_THROW(ranks.send(on_device, 0), InvalidArgument);  // here is no device
    EXPECT_THROW((void)ranks.recv_async(on_device, 0), InvalidArgument);
    EXPECT_THROW(ranks.send(data, 0, 0, StreamView(nullptr, on_device.space)), InvalidArgument);
    expect_usable(ranks);
  });
}

/// All ranks send to all ranks, themselves included, before they receive.
TEST(PointToPoint, AListOfMessagesIsCompleteAtItsEnd) {
  for_each_group({1, 3, 4}, [](Communicator& ranks) {
    for (const std::size_t count : {1UL, 5UL, 60'000UL}) {
      std::vector<std::vector<std::int32_t>> sent, received(static_cast<std::size_t>(ranks.size()));
      std::vector<PeerMessage> messages;
      for (int rank = 0; rank < ranks.size(); ++rank) sent.push_back(numbers(ranks.rank(), rank, count));
      for (int rank = 0; rank < ranks.size(); ++rank) {
        const auto index = static_cast<std::size_t>(rank);
        received[index].resize(count);
        messages.push_back(PeerMessage::send(sent[index], rank, 4));
        messages.push_back(PeerMessage::recv(received[index], rank, 4));
      }
      ranks.exchange(messages);
      for (int rank = 0; rank < ranks.size(); ++rank) {
        ASSERT_EQ(received[static_cast<std::size_t>(rank)], numbers(rank, ranks.rank(), count));
      }
    }
    ranks.exchange({});
    expect_usable(ranks);
  });
}

TEST(PointToPoint, AListRaisesItsFirstErrorOnceAllMessagesHaveEnded) {
  for_each_group({1, 2, 3}, [](Communicator& ranks) {
    const int target = next(ranks), source = previous(ranks);
    const std::vector<std::int32_t> first = numbers(ranks.rank(), 1, 60'000), second = numbers(ranks.rank(), 2, 60'000);
    std::vector<std::int32_t> shorter(59'999), received(60'000);
    const auto all = [&] {
      ranks.exchange({{PeerMessage::send(first, target, 1), PeerMessage::recv(shorter, source, 1),
                       PeerMessage::send(second, target, 2), PeerMessage::recv(received, source, 2)}});
    };
    EXPECT_THAT(message_of<Mismatch>(all), HasSubstr("sends a message of 60000 i32 with tag 1"));
    EXPECT_EQ(received, numbers(source, 2, 60'000));
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  ranks.exchange({{PeerMessage::send(first, target), PeerMessage::recv(received, ranks.size())}});
                }),
                HasSubstr(fmt::format("exchange: rank {}", ranks.size())));
    expect_usable(ranks);
  });
}

TEST(PointToPoint, BufferedMessagesOutliveTheSendersCommunicator) {
  for_each_group_of_several({2, 3}, [](Communicator& ranks) {
    Communicator copy = ranks.duplicate();
    copy.send(numbers(ranks.rank(), 9, 100), next(ranks));
    if (ranks.rank() == 0) copy = {};
    ranks.barrier();
    if (ranks.rank() == 1) {
      std::vector<std::int32_t> received(100);
      copy.recv(received, 0);
      EXPECT_EQ(received, numbers(0, 9, 100));
    }
  });
}

TEST(PointToPoint, ALaterCommunicatorGetsNoOldMessage) {
  for_each_group({2, 3}, [](Communicator& ranks) {
    for (int generation = 0; generation < 3; ++generation) {
      Communicator copy = ranks.duplicate();
      copy.send(numbers(0, generation, 4), next(ranks));
      if (generation == 2) {
        std::vector<std::int32_t> received(4);
        copy.recv(received, previous(ranks));
        EXPECT_EQ(received, numbers(0, 2, 4));
      }
    }
    expect_usable(ranks);
  });
}

TEST(PointToPoint, ALongMessageToADestroyedCommunicatorIsAMismatch) {
  for_each_group_of_several({2}, [](Communicator& ranks) {
    Communicator copy = ranks.duplicate();
    if (ranks.rank() == 1) copy = {};
    ranks.barrier();
    if (ranks.rank() == 0) {
      const auto sent = numbers(0, 0, 60'000);
      Work send = copy.send_async(sent, 1);
      ranks.send(std::vector<std::int32_t>(1), 1);
      EXPECT_THAT(message_of<Mismatch>([&] { send.wait(); }), HasSubstr("has destroyed its communicator"));
      ranks.send(std::vector<std::int32_t>(1), 1);
    } else if (ranks.rank() == 1) {
      std::vector<std::int32_t> received(1);
      for (int k = 0; k < 2; ++k) ranks.recv(received, 0);
    }
    expect_usable(ranks);
  });
}

TEST(OfMembers, MakesACommunicatorWithoutTheOtherRanks) {
  for_each_group({1, 2, 3, 4, 8}, [](Communicator& ranks) {
    std::vector<int> even;
    for (int rank = (ranks.size() - 1) / 2 * 2; rank >= 0; rank -= 2) even.push_back(rank);
    if (ranks.rank() % 2 == 0) {
      Communicator members = Communicator::of_members(ranks, even, {.name = "even"});
      ASSERT_EQ(members.size(), static_cast<int>(even.size()));
      EXPECT_EQ(even[static_cast<std::size_t>(members.rank())], ranks.rank());
      std::vector<std::int32_t> all(even.size());
      const std::vector<std::int32_t> own{ranks.rank()};
      members.allgather(own, all);
      EXPECT_EQ(all, std::vector<std::int32_t>(even.begin(), even.end()));
      expect_usable(members);
    }
    expect_usable(ranks);
  });
}

TEST(OfMembers, OverlappingCommunicatorsLiveSideBySide) {
  for_each_group({2, 3, 4}, [](Communicator& ranks) {
    std::vector<Communicator> pairs;
    for (int low = 0; low + 1 < ranks.size(); ++low) {
      const std::array pair{low, low + 1};
      const bool is_member = ranks.rank() == low || ranks.rank() == low + 1;
      if (is_member) pairs.push_back(Communicator::of_members(ranks, pair));
    }
    Communicator copy = ranks.duplicate();
    for (int round = 0; round < 3; ++round) {
      for (Communicator& pair : pairs) expect_usable(pair);
      expect_usable(copy);
    }
  });
}

TEST(OfMembers, RefusesInvalidLists) {
  for_each_group({1, 2, 3}, [](Communicator& ranks) {
    const auto text_for = [&](const std::vector<int>& members) {
      return message_of<InvalidArgument>([&] { (void)Communicator::of_members(ranks, members); });
    };
    EXPECT_THAT(text_for({}), HasSubstr("is empty"));
    EXPECT_THAT(text_for({ranks.rank(), ranks.rank()}), HasSubstr("twice"));
    EXPECT_THAT(text_for({ranks.rank(), ranks.size()}), HasSubstr("is not one of"));
    EXPECT_THAT(text_for({-1}), HasSubstr("rank -1 is not one of"));
    if (ranks.size() > 1) {
      EXPECT_THAT(text_for({next(ranks)}), HasSubstr("is not in the list"));
    }
    expect_usable(ranks);
  });
}

TEST(OfMembers, DifferentListsAndOptionsAreMismatches) {
  for_each_group_of_several({2, 3}, [](Communicator& ranks) {
    if (ranks.rank() < 2) {
      const std::vector<int> mine = ranks.rank() == 0 ? std::vector{0, 1} : std::vector{1, 0};
      EXPECT_THAT(message_of<Mismatch>([&] { (void)Communicator::of_members(ranks, mine); }),
                  HasSubstr("rank 0 and rank 1 pass different lists of ranks"));
      const std::array both{0, 1};
      EXPECT_THAT(
          message_of<Mismatch>([&] { (void)Communicator::of_members(ranks, both, {.compare = ranks.rank() == 0}); }),
          HasSubstr("rank 0 and rank 1 pass different values of `compare`"));
    }
    expect_usable(ranks);
  });
}

}  // namespace
}  // namespace farandole::test
