// SPDX-License-Identifier: Apache-2.0
// Messages of device memory between two ranks, and lists of them (Communicator::exchange), in both device orders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "direct_communicator.h"
#include "double_calls.h"
#include "farandole/core/error.h"
#include "graph_capture.h"
#include "groups.h"
#include "message_of.h"
#include "on_device.h"

namespace farandole::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int next(const Communicator& ranks) {
  return (ranks.rank() + 1) % ranks.size();
}
int previous(const Communicator& ranks) {
  return (ranks.rank() + ranks.size() - 1) % ranks.size();
}

/// Values that differ by rank, message and position.
std::vector<std::int32_t> numbers(int rank, int message, std::size_t count) {
  std::vector<std::int32_t> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = 1'000'000 * rank + 10'000 * message + static_cast<int>(i % 9973);
  return made;
}
std::vector<std::int32_t> read(Communicator& ranks, const Buffer& buffer) {
  Buffer host = to_host(ranks, buffer.view());
  return {host.as<std::int32_t>(), host.as<std::int32_t>() + host.count()};
}
Buffer zeros(Communicator& ranks, std::size_t count, DType dtype = DType::kI32) {
  return ranks.allocate(count, dtype, ranks.device());
}

/// Runs `body` on communicators of two ranks.
void for_each_pair(const std::function<void(Communicator&)>& body) {
  for_each_device_group({2}, [&](Communicator& ranks) {
    Communicator pair = ranks.split(ranks.rank() < 2 ? 0 : -1);
    if (pair.valid()) body(pair);
  });
}

/// Runs `body` with a communicator in each device order, and with a stream of it.
void in_both_orders(Communicator& ranks, const std::function<void(Communicator&, StreamView)>& body) {
  const StreamView stream = device_of(ranks).make_stream();
  Communicator agreed = ranks.duplicate({.name = "agreed"});
  body(agreed, stream);
  Communicator caller = direct(ranks);
  body(caller, stream);
}

TEST(DeviceMessages, GoFromRankToRank) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    in_both_orders(ranks, [&](Communicator& by, StreamView stream) {
      for (const std::size_t count : {0UL, 1UL, 1000UL, 140'009UL}) {
        for (const StreamView in : {stream, StreamView()}) {
          Buffer values = ranks.rank() == 0 ? to_device(ranks, numbers(7, 1, count)) : zeros(ranks, count);
          if (ranks.rank() > 0) {
            ASSERT_EQ(by.recv(values.view(), ranks.rank() - 1, 0, in), ranks.rank() - 1);
          }
          if (ranks.rank() + 1 < ranks.size()) by.send(values.view(), ranks.rank() + 1, 0, in);
          device_of(ranks).synchronize(stream);
          ASSERT_EQ(read(ranks, values), numbers(7, 1, count)) << count;
        }
      }
    });
  });
}

TEST(DeviceMessages, OfEveryTypeArriveInOrder) {
  for_each_pair([](Communicator& ranks) {
    in_both_orders(ranks, [&](Communicator& by, StreamView stream) {
      std::vector<Buffer> values;
      for (int type = 0; type < kDTypeCount; ++type) {
        const std::size_t count = 100 + 10 * static_cast<std::size_t>(type);
        Buffer host(count, static_cast<DType>(type));
        std::memset(host.view().data, type + 1, host.view().size_in_bytes());
        values.push_back(ranks.rank() == 0 ? to_device(ranks, host.view()) : zeros(ranks, count, host.dtype()));
      }
      for (Buffer& each : values) {
        ranks.rank() == 0 ? by.send(each.view(), 1, 0, stream) : (void)by.recv(each.view(), 0, 0, stream);
      }
      device_of(ranks).synchronize(stream);
      for (int type = 0; type < kDTypeCount; ++type) {
        const Buffer host = to_host(ranks, values[static_cast<std::size_t>(type)].view());
        ASSERT_EQ(static_cast<const char*>(host.view().data)[host.view().size_in_bytes() - 1], type + 1);
      }
    });
  });
}

/// A message waits for earlier work of its stream, and later work of the stream waits for the message.
TEST(DeviceMessages, AreOrderedInTheCallersStream) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    in_both_orders(ranks, [&](Communicator& by, StreamView stream) {
      constexpr std::size_t kLength = 50'000;
      Device& device = device_of(ranks);
      Buffer values = zeros(ranks, kLength), received = zeros(ranks, kLength), copy = zeros(ranks, kLength);
      for (int message = 0; message < 10; ++message) {
        const Buffer source = to_device(ranks, numbers(ranks.rank(), message, kLength));
        device.copy(values.view().data, source.view().data, values.view().size_in_bytes(), stream);
        if (ranks.rank() == 0) {
          by.send(values.view(), 1, 0, stream);
        } else if (ranks.rank() == 1) {
          by.recv(received.view(), 0, 0, stream);
          device.copy(copy.view().data, received.view().data, copy.view().size_in_bytes(), stream);
        }
        by.allreduce(values.view(), ReduceOp::kMax, {.stream = stream});
        device.synchronize(stream);
        if (ranks.rank() == 1) {
          ASSERT_EQ(read(ranks, copy), numbers(0, message, kLength));
        }
      }
    });
  });
}

/// Both ranks send first: directions do not wait for each other if their streams do not.
TEST(DeviceMessages, DirectionsAreIndependent) {
  for_each_pair([](Communicator& ranks) {
    in_both_orders(ranks, [&](Communicator& by, StreamView stream) {
      constexpr std::size_t kLength = 300'000;
      const StreamView other_stream = device_of(ranks).make_stream();
      const Buffer sent = to_device(ranks, numbers(ranks.rank(), 3, kLength));
      Buffer received = zeros(ranks, kLength);
      const int peer = 1 - ranks.rank();
      for (int repetition = 0; repetition < 5; ++repetition) {
        Work send = by.send_async(sent.view(), peer, 0, stream);
        Work receive = by.recv_async(received.view(), peer, 0, other_stream);
        receive.wait();
        EXPECT_EQ(receive.source(), peer);
        send.wait();
        EXPECT_THAT(message_of<InvalidArgument>([&] { (void)send.source(); }), HasSubstr("not refer to a receive"));
        ASSERT_EQ(read(ranks, received), numbers(peer, 3, kLength));
      }
      if (!internals(by).enqueues_directly()) return;
      received = zeros(ranks, kLength);
      by.send(sent.view(), peer, 0, stream);
      by.recv(received.view(), peer, 0, other_stream);
      device_of(ranks).synchronize(other_stream);
      device_of(ranks).synchronize(stream);
      ASSERT_EQ(read(ranks, received), numbers(peer, 3, kLength));
    });
  });
}

TEST(DeviceMessages, MayBeMadeInAnotherOrderThanCollectives) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    Communicator agreed = ranks.duplicate();
    for (int repetition = 0; repetition < 5; ++repetition) {
      Buffer values = to_device(ranks, numbers(ranks.rank(), 1, 1000)),
             sum = to_device(ranks, std::vector<float>(1000, 1));
      // Connects the ranks: a first message blocks.
      if (ranks.rank() == 0) agreed.send(values.view(), 1);
      if (ranks.rank() == 1) (void)agreed.recv(values.view(), 0);
      Work message, reduction;
      const auto start = [&](bool is_message) {
        if (!is_message) {
          reduction = agreed.allreduce_async(sum.view(), ReduceOp::kSum);
        } else if (ranks.rank() < 2) {
          message = ranks.rank() == 0 ? agreed.send_async(values.view(), 1) : agreed.recv_async(values.view(), 0);
        }
      };
      start(ranks.rank() == 1);
      start(ranks.rank() != 1);
      if (message.valid()) message.wait();
      reduction.wait();
      ASSERT_EQ(to_vector(ranks, sum)[999], static_cast<float>(ranks.size()));
      if (ranks.rank() < 2) {
        ASSERT_EQ(read(ranks, values), numbers(0, 1, 1000));
      }
    }
  });
}

/// A ring, where every rank sends before it receives, and two messages on the same way.
TEST(DeviceMessages, OfAListProceedAtTheSameTime) {
  for_each_device_group({1, 2, 3, 4}, [](Communicator& ranks) {
    in_both_orders(ranks, [&](Communicator& by, StreamView stream) {
      constexpr std::size_t kLength = 100'000;
      Device& device = device_of(ranks);
      for (const StreamView in : {stream, StreamView(), stream}) {
        const Buffer first = to_device(ranks, numbers(ranks.rank(), 1, kLength)),
                     second = to_device(ranks, numbers(ranks.rank(), 2, 10));
        Buffer values = zeros(ranks, kLength), got_first = zeros(ranks, kLength), got_second = zeros(ranks, 10),
               copy = zeros(ranks, kLength);
        device.synchronize(stream);
        device.copy(values.view().data, first.view().data, values.view().size_in_bytes(), stream);
        if (!in.valid()) device.synchronize(stream);
        by.exchange({{PeerMessage::send(values.view(), next(ranks)), PeerMessage::send(second.view(), next(ranks)),
                      PeerMessage::recv(got_first.view(), previous(ranks)),
                      PeerMessage::recv(got_second.view(), previous(ranks))}},
                    in);
        if (in.valid()) device.fill_zero(values.view().data, values.view().size_in_bytes(), stream);
        device.copy(copy.view().data, got_first.view().data, copy.view().size_in_bytes(), stream);
        device.synchronize(stream);
        ASSERT_EQ(read(ranks, copy), numbers(previous(ranks), 1, kLength)) << ranks.size();
        ASSERT_EQ(read(ranks, got_second), numbers(previous(ranks), 2, 10)) << ranks.size();
      }
    });
  });
}

/// Every rank with every other and itself, in an order of its own; one rank makes single calls.
TEST(DeviceMessages, OfAListMayBeInAnyOrder) {
  for_each_device_group({3, 4}, [](Communicator& ranks) {
    in_both_orders(ranks, [&](Communicator& by, StreamView stream) {
      const auto size = static_cast<std::size_t>(ranks.size());
      for (int repetition = 0; repetition < 5; ++repetition) {
        std::vector<Buffer> sent, received;
        for (std::size_t rank = 0; rank < size; ++rank) {
          sent.push_back(to_device(ranks, numbers(ranks.rank(), static_cast<int>(rank), 1000 + 10 * rank)));
          received.push_back(zeros(ranks, 1000 + 10 * static_cast<std::size_t>(ranks.rank())));
        }
        std::vector<PeerMessage> messages;
        for (std::size_t i = 0; i < size; ++i) {
          const std::size_t rank = (i * static_cast<std::size_t>(ranks.rank() + 1) + i) % size;
          messages.insert(messages.begin(), PeerMessage::send(sent[i].view(), static_cast<int>(i)));
          messages.push_back(PeerMessage::recv(received[i].view(), static_cast<int>(i)));
          std::swap(messages[rank], messages.back());
        }
        by.exchange(messages, stream);
        device_of(ranks).synchronize(stream);
        for (std::size_t rank = 0; rank < size; ++rank) {
          ASSERT_EQ(read(ranks, received[rank]), numbers(static_cast<int>(rank), ranks.rank(), received[rank].count()));
        }
      }
    });
  });
}

TEST(DeviceMessages, OfAnotherCountAreAMismatchBeforeDataIsTouched) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    Communicator agreed = ranks.duplicate({.name = "agreed"});
    const StreamView stream = device_of(ranks).make_stream();
    if (ranks.rank() < 2) {
      Buffer values = to_device(ranks, numbers(ranks.rank(), 1, ranks.rank() == 0 ? 1000 : 900));
      const auto message = [&] {
        ranks.rank() == 0 ? agreed.send(values.view(), 1, 0, stream) : (void)agreed.recv(values.view(), 0, 0, stream);
      };
      EXPECT_THAT(message_of<Mismatch>(message),
                  AllOf(HasSubstr("in the messages of device memory from rank 0 to rank 1 of communicator 'agreed'"),
                        HasSubstr(") sends 1000 i32 elements"), HasSubstr(") receives 900 i32 elements")));
      EXPECT_EQ(read(ranks, values), numbers(ranks.rank(), 1, values.count()));
      Buffer same = to_device(ranks, numbers(ranks.rank(), 2, 10));
      const PeerMessage ours = PeerMessage::send(same.view(), 1), theirs = PeerMessage::recv(same.view(), 0);
      const PeerMessage short_one = PeerMessage::send(values.view(), 1), long_one = PeerMessage::recv(values.view(), 0);
      EXPECT_THAT(message_of<Mismatch>([&] {
                    ranks.rank() == 0 ? agreed.exchange({{short_one, ours}}) : agreed.exchange({{long_one, theirs}});
                  }),
                  HasSubstr("no data was touched"));
      EXPECT_EQ(read(ranks, same), numbers(0, 2, 10)) << "the list's other message did not arrive";
    }
    ranks.barrier();
    Buffer sum = to_device(ranks, std::vector<float>(10, 1));
    agreed.allreduce(sum.view(), ReduceOp::kSum);
    EXPECT_EQ(to_vector(ranks, sum)[0], static_cast<float>(ranks.size()));
  });
}

TEST(DeviceMessages, RefuseWhatDevicesCannotDo) {
  for_each_device_group({1, 2}, [](Communicator& ranks) {
    in_both_orders(ranks, [&](Communicator& by, StreamView stream) {
      Buffer values = zeros(ranks, 10);
      std::vector<float> host(10);
      const int peer = next(ranks);
      EXPECT_THAT(message_of<Unsupported>([&] { by.send(values.view(), peer, 3, stream); }), HasSubstr("have no tags"));
      EXPECT_THAT(message_of<Unsupported>([&] { by.recv(values.view(), Communicator::kAnySource); }),
                  HasSubstr("name the source"));
      EXPECT_THAT(message_of<InvalidArgument>([&] { by.send(values.view(), ranks.rank()); }), HasSubstr("`exchange`"));
      EXPECT_THAT(message_of<InvalidArgument>([&] { (void)by.recv_async(values.view(), ranks.size()); }),
                  HasSubstr("recv_async: rank "));
      EXPECT_THAT(message_of<InvalidArgument>([&] { by.send(host, peer, 0, stream); }), HasSubstr("host memory"));
      const BufferView elsewhere(values.view().data, 10, DType::kI32, {MemoryKind::kCuda, 99});
      EXPECT_THAT(message_of<InvalidArgument>([&] { by.exchange({{PeerMessage::send(elsewhere, peer)}}); }),
                  HasSubstr("the device of this rank, got memory of CUDA device 99"));
      const BufferView false_space(host.data(), 10, DType::kF32, ranks.device());
      EXPECT_THAT(
          message_of<InvalidArgument>([&] { by.recv(false_space, peer == ranks.rank() ? 0 : peer, 0, stream); }),
          ranks.size() == 1 ? HasSubstr("`exchange`") : HasSubstr("its address is in host memory"));
      EXPECT_THAT(message_of<InvalidArgument>([&] {
                    by.exchange({{PeerMessage::send(values.view(), peer), PeerMessage::recv(BufferView(host), peer)}});
                  }),
                  HasSubstr("1 of 2 messages are in device memory"));
      EXPECT_THAT(message_of<InvalidArgument>([&] { by.exchange({{PeerMessage::send(values.view(), ranks.rank())}}); }),
                  HasSubstr("one send has no counterpart"));
      Buffer five = zeros(ranks, 5);
      EXPECT_THAT(message_of<InvalidArgument>([&] {
                    by.exchange({{PeerMessage::recv(five.view(), ranks.rank()),
                                  PeerMessage::send(values.view(), ranks.rank())}});
                  }),
                  HasSubstr("sends 10 i32 to itself, and receives 5 i32"));
    });
  });
}

TEST(DeviceMessages, MayBeMadeByThreadsOfTheirOwn) {
  for_each_device_group({3}, [](Communicator& ranks) {
    if (ranks.size() != 3) GTEST_SKIP() << "needs three ranks";
    in_both_orders(ranks, [&](Communicator& by, StreamView) {
      Device& device = device_of(ranks);
      Buffer received[2] = {zeros(ranks, 1000), zeros(ranks, 1000)};
      // Connects the ranks: single first messages could wait for each other in a cycle.
      const Buffer nothing = zeros(ranks, 1);
      by.exchange({{PeerMessage::send(nothing.view(), next(ranks)),
                    PeerMessage::recv(received[0].view().part(0, 1), previous(ranks))}});
      std::vector<std::thread> threads;
      for (int distance = 1; distance < 3; ++distance) {
        threads.emplace_back([&, distance] {
          const int peer = (ranks.rank() + distance) % 3;
          const Buffer sent = to_device(ranks, numbers(ranks.rank(), distance, 1000));
          const StreamView stream = device.make_stream();
          by.send(sent.view(), peer, 0, stream);
          device.synchronize(stream);
        });
        threads.emplace_back([&, distance] {
          const StreamView stream = device.make_stream();
          Buffer& into = received[distance - 1];
          by.recv(into.view(), (ranks.rank() + 3 - distance) % 3, 0, stream);
          device.synchronize(stream);
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (int distance = 1; distance < 3; ++distance) {
        ASSERT_EQ(read(ranks, received[distance - 1]), numbers((ranks.rank() + 3 - distance) % 3, distance, 1000));
      }
    });
  });
}

/// The first message connects both directions.
TEST(DeviceMessages, OnlyTheFirstWaitsForThePeerInTheCallersOrder) {
  for_each_pair([](Communicator& ranks) {
    Communicator caller = direct(ranks);
    const StreamView stream = device_of(ranks).make_stream();
    Buffer values = to_device(ranks, numbers(ranks.rank(), 1, 100'000));
    ranks.rank() == 0 ? caller.send(values.view(), 1, 0, stream) : (void)caller.recv(values.view(), 0, 0, stream);
    if (ranks.rank() == 1) caller.send(values.view(), 0, 0, stream);
    ranks.barrier();
    Buffer received = zeros(ranks, values.count());
    if (ranks.rank() == 0) (void)caller.recv(received.view(), 1, 0, stream);
    device_of(ranks).synchronize(stream);
    if (ranks.rank() == 0) {
      EXPECT_EQ(read(ranks, received), numbers(0, 1, values.count()));
    }
  });
}

/// In the caller's order messages only enqueue, after the first.
TEST(DeviceMessages, WakeNobodyInTheCallersOrder) {
  for_each_pair([](Communicator& ranks) {
    Communicator caller = direct(ranks);
    const StreamView stream = device_of(ranks).make_stream();
    Buffer values = to_device(ranks, numbers(0, 1, 1000));
    const auto message = [&] {
      ranks.rank() == 0 ? caller.send(values.view(), 1, 0, stream) : (void)caller.recv(values.view(), 0, 0, stream);
    };
    message();
    device_of(ranks).synchronize(stream);
    ranks.barrier();
    const std::uint64_t sent = internals(caller).sent_bytes();
    const unsigned long allocations = calls_of("cuMemAlloc"), sends = calls_of("ncclSend");
    ranks.barrier();
    const std::uint64_t sent_by_barrier = internals(caller).sent_bytes() - sent;
    for (int i = 0; i < 30; ++i) message();
    EXPECT_LE(internals(caller).sent_bytes() - sent, 2 * sent_by_barrier);
    ranks.barrier();
    EXPECT_EQ(calls_of("cuMemAlloc"), allocations);
    if (sends > 0 && (ranks.rank() == 0 || !is_launched())) {
      EXPECT_EQ(calls_of("ncclSend") - sends, 30);
    }
    ranks.barrier();
    device_of(ranks).synchronize(stream);
  });
}

TEST(DeviceMessages, CanBeCapturedInTheCallersOrder) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    Communicator caller = direct(ranks), agreed = ranks.duplicate();
    Device& device = device_of(ranks);
    const StreamView stream = device.make_stream();
    Buffer values = to_device(ranks, numbers(ranks.rank(), 1, 1000)), received = zeros(ranks, 1000);
    const auto shift = [&](Communicator& by) {
      by.exchange(
          {{PeerMessage::send(values.view(), next(ranks)), PeerMessage::recv(received.view(), previous(ranks))}},
          stream);
      device.copy(values.view().data, received.view().data, values.view().size_in_bytes(), stream);
    };
    {
      StreamCapture capture(device, stream);
      EXPECT_THAT(message_of<InvalidArgument>([&] { shift(caller); }), HasSubstr("run the message once before"));
      EXPECT_THAT(message_of<InvalidArgument>([&] { shift(agreed); }), HasSubstr("caller's device order"));
      (void)capture.end();
    }
    shift(caller);
    {
      // Of another count: refused when the lane's stream has joined the capture, which can be ended all the same.
      StreamCapture capture(device, stream);
      Buffer other = zeros(ranks, 77);
      const PeerMessage first = PeerMessage::send(other.view(), next(ranks));
      const PeerMessage second = PeerMessage::recv(other.view(), previous(ranks));
      EXPECT_THAT(message_of<InvalidArgument>([&] {
                    caller.exchange({{first, second}}, stream);
                  }),
                  HasSubstr("captured"));
      (void)capture.end();
    }
    caller.exchange({}, stream);
    StreamCapture capture(device, stream);
    shift(caller);
    const auto graph = capture.end();
    for (int replay = 1; replay < 2 * ranks.size(); ++replay) graph->launch(stream);
    device.synchronize(stream);
    ASSERT_EQ(read(ranks, values), numbers(ranks.rank(), 1, 1000));
    graph->launch(stream);
    shift(caller);
    device.synchronize(stream);
    ASSERT_EQ(read(ranks, values), numbers((ranks.rank() + 2 * ranks.size() - 2) % ranks.size(), 1, 1000));
    ranks.barrier();
  });
}

TEST(DeviceMessages, ACommunicatorMayOutliveItsWorld) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  if (is_launched()) GTEST_SKIP() << "the job of the processes goes on";
  Communicator kept[2];
  for_each_device_group({2}, [&](Communicator& ranks) {
    Communicator caller = direct(ranks);
    Buffer values = zeros(ranks, 1000);
    const PeerMessage message =
        ranks.rank() == 0 ? PeerMessage::send(values.view(), 1) : PeerMessage::recv(values.view(), 0);
    caller.exchange({{message}}, StreamView(nullptr, ranks.device()));
    kept[ranks.rank()] = caller;
  });
  if (!kept[0].valid()) return;
  Buffer values(1, DType::kI32);
  const BufferView device(values.view().data, 1, DType::kI32, {MemoryKind::kCuda, 0});
  EXPECT_THROW(kept[0].send(device, 1), InvalidArgument);
}

}  // namespace
}  // namespace farandole::test
