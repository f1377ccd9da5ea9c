// SPDX-License-Identifier: Apache-2.0
// Messages of device memory between two ranks, and lists of them (Communicator::exchange), in both device orders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
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
#include "farandole/internal/communicator_ids.h"
#include "farandole/internal/endpoint.h"
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

/// False if the vendor of the job's messages allows one thread only.
bool may_use_threads(Communicator& ranks) {
  return internals(ranks).endpoint().progress().usable_from_any_thread();
}

/// Two threads of each rank, each with a peer or communicator of its own. Neighbours begin in opposite orders, so that
/// each rank's first thread waits for a thread of its peer that begins later.
TEST(DeviceMessages, FirstMessagesOfThreadsDoNotWaitForEachOther) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    if (!may_use_threads(ranks) || ranks.size() < 2 || ranks.size() > 3) return;
    // Two ranks: a thread for each communicator. Three: a thread that sends to the next rank, and one that receives.
    std::array<Communicator, 2> by{ranks.duplicate(), direct(ranks)};
    if (ranks.size() == 3) by[0] = by[1];
    const auto message = [&](int which) {
      const bool is_sender = ranks.size() == 3 ? which == 0 : ranks.rank() == 0;
      const StreamView stream = device_of(ranks).make_stream();
      Communicator& communicator = by[static_cast<std::size_t>(which)];
      Buffer values = is_sender ? to_device(ranks, numbers(ranks.rank(), which, 1000)) : zeros(ranks, 1000);
      is_sender ? communicator.send(values.view(), next(ranks), 0, stream)
                : (void)communicator.recv(values.view(), previous(ranks), 0, stream);
      device_of(ranks).synchronize(stream);
      if (!is_sender) {
        EXPECT_EQ(read(ranks, values), numbers(previous(ranks), ranks.size() == 3 ? 0 : which, 1000));
      }
    };
    CommunicatorIds& ids = internals(ranks).endpoint().communicator_ids();
    const std::vector<std::uint8_t> before = ids.used();
    const int first = ranks.size() == 3 ? 0 : ranks.rank();
    std::thread begins([&] { message(first); });
    while (ids.used() == before) std::this_thread::yield();
    message(1 - first);
    begins.join();
    ranks.barrier();
  });
}

/// While a list of one thread waits for an earlier message of its lane, lists of another thread go on.
TEST(DeviceMessages, ListsOfThreadsOverOtherPeersAreIndependent) {
  for_each_device_group({3}, [](Communicator& ranks) {
    if (!may_use_threads(ranks) || ranks.size() != 3) return;
    Communicator caller = direct(ranks);
    Device& device = device_of(ranks);
    const StreamView stream = device.make_stream();
    const Buffer sent = to_device(ranks, numbers(ranks.rank(), 1, 1000));
    Buffer early = zeros(ranks, 1000), late = zeros(ranks, 1000), other = zeros(ranks, 1000);
    caller.exchange({{PeerMessage::send(sent.view(), next(ranks)), PeerMessage::recv(early.view(), previous(ranks))}},
                    stream);
    device.synchronize(stream);
    std::int32_t go = 0;
    if (ranks.rank() == 0) {
      Work earlier = caller.recv_async(early.view(), 1);  // rank 1 sends after `go`
      std::thread waits([&] {
        const StreamView own = device.make_stream();
        caller.exchange({{PeerMessage::recv(late.view(), 1)}}, own);
        device.synchronize(own);
      });
      // The other thread should wait by now. If it does not, the test passes without having tested anything.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      caller.exchange({{PeerMessage::recv(other.view(), 2)}}, stream);
      device.synchronize(stream);
      EXPECT_EQ(read(ranks, other), numbers(2, 1, 1000));
      caller.send({&go, 1, DType::kI32}, 1);
      waits.join();
      earlier.wait();
      EXPECT_EQ(read(ranks, late), numbers(1, 1, 1000));
    } else if (ranks.rank() == 1) {
      caller.recv({&go, 1, DType::kI32}, 0);
      caller.send_async(sent.view(), 0).wait();
      caller.send(sent.view(), 0, 0, stream);
    } else {
      caller.send(sent.view(), 0, 0, stream);
    }
    device.synchronize(stream);
    ranks.barrier();
  });
}

/// Half of the messages are started by actions. Some actions run inside of a call that starts a message on the same
/// lane, which therefore must not be locked.
TEST(DeviceMessages, ActionsOfOnDoneMayStartMessages) {
  for_each_pair([](Communicator& ranks) {
    Communicator agreed = ranks.duplicate({.progress = CommunicatorOptions::Progress::kInCalls});
    Buffer values = zeros(ranks, 10);
    constexpr std::size_t kMessages = 300;
    std::vector<Work> works(kMessages);
    std::vector<std::atomic<bool>> are_started(kMessages);
    std::atomic<std::size_t> next{0};
    std::atomic<int> pending_actions{0}, actions_inside{0};
    static thread_local int calls = 0;  // of this thread that start messages
    const std::function<void()> start = [&] {
      const std::size_t number = next++;
      if (number >= kMessages) return;
      ++calls;
      works[number] = ranks.rank() == 0 ? agreed.send_async(values.view(), 1) : agreed.recv_async(values.view(), 0);
      --calls;
      if (number % 2 == 0) {
        ++pending_actions;
        works[number].on_done([&](const Error* error) {
          EXPECT_EQ(error, nullptr);
          if (calls > 0) ++actions_inside;
          start();
          --pending_actions;
        });
      }
      are_started[number] = true;
    };
    while (next < kMessages) {
      start();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    for (std::size_t i = 0; i < kMessages; ++i) {
      while (!are_started[i]) std::this_thread::yield();
      works[i].wait();
    }
    while (pending_actions > 0) std::this_thread::yield();
    EXPECT_GT(actions_inside, 0);
    ranks.barrier();
  });
}

/// The action runs inside of the call that connects the ranks, which would wait for itself; or on the progress thread,
/// whose message waits until the ranks are connected.
TEST(DeviceMessages, AnActionThatWaitsForItsOwnThreadIsRefused) {
  for_each_pair([](Communicator& ranks) {
    Communicator by = ranks.duplicate({.progress = CommunicatorOptions::Progress::kInCalls});
    Buffer values = zeros(ranks, 10);
    std::int32_t number = 0, was_sent = 0;
    const BufferView host(&number, 1, DType::kI32), answer(&was_sent, 1, DType::kI32);
    if (ranks.rank() == 0) {
      // The peer should connect by now. If it does not, the action runs on its own.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      by.send(host, 1);
      by.recv(values.view(), 1);
      by.recv(answer, 1);
      if (was_sent != 0) by.recv(values.view(), 1);
    } else {
      Work sent;
      std::atomic<bool> has_run{false};
      Work received = by.recv_async(host, 0);
      received.on_done([&](const Error*) {
        try {
          sent = by.send_async(values.view(), 0);
        } catch (const InvalidArgument& error) {
          EXPECT_THAT(error.what(), HasSubstr("exchange a first message before"));
        }
        has_run = true;
      });
      by.send(values.view(), 0);
      received.wait();
      while (!has_run) std::this_thread::yield();
      was_sent = sent.valid() ? 1 : 0;
      by.send(answer, 0);
      if (sent.valid()) sent.wait();
    }
    ranks.barrier();
  });
}

TEST(DeviceMessages, SingleOnesMayMeetLists) {
  for_each_device_group({2, 3, 4}, [](Communicator& ranks) {
    in_both_orders(ranks, [&](Communicator& by, StreamView stream) {
      const auto others = static_cast<std::size_t>(ranks.size() - 1);
      for (int repetition = 0; repetition < 3; ++repetition) {
        for (const StreamView in : {stream, StreamView()}) {
          if (ranks.rank() > 0) {
            Buffer values = to_device(ranks, numbers(ranks.rank(), 1, 1000));
            Buffer received = zeros(ranks, 1000);
            by.recv(received.view(), 0, 0, in);
            by.send(values.view(), 0, 0, in);
            device_of(ranks).synchronize(stream);
            ASSERT_EQ(read(ranks, received), numbers(0, ranks.rank(), 1000));
            continue;
          }
          std::vector<Buffer> sent, received;
          std::vector<PeerMessage> messages;
          for (std::size_t i = 0; i < others; ++i) {
            const int peer = static_cast<int>(i) + 1;
            sent.push_back(to_device(ranks, numbers(0, peer, 1000)));
            received.push_back(zeros(ranks, 1000));
            messages.push_back(PeerMessage::recv(received[i].view(), peer));
            messages.push_back(PeerMessage::send(sent[i].view(), peer));
          }
          by.exchange(messages, in);
          device_of(ranks).synchronize(stream);
          for (std::size_t i = 0; i < others; ++i) {
            ASSERT_EQ(read(ranks, received[i]), numbers(static_cast<int>(i) + 1, 1, 1000));
          }
        }
      }
    });
  });
}

/// The destructor waits for the message.
TEST(DeviceMessages, ACommunicatorMayEndWithAMessageInFlight) {
  for_each_pair([](Communicator& ranks) {
    in_both_orders(ranks, [&](Communicator& by, StreamView stream) {
      for (const bool is_connected : {false, true}) {
        Buffer values = to_device(ranks, numbers(ranks.rank(), is_connected ? 1 : 2, 1000));
        Buffer other = zeros(ranks, 1);
        Communicator ending = internals(by).enqueues_directly() ? direct(ranks) : ranks.duplicate();
        if (is_connected) {
          ranks.rank() == 0 ? ending.send(other.view(), 1, 0, stream) : (void)ending.recv(other.view(), 0, 0, stream);
        }
        Work work = ranks.rank() == 0 ? ending.send_async(values.view(), 1) : ending.recv_async(values.view(), 0);
        ending = Communicator();
        EXPECT_EQ(read(ranks, values), numbers(0, is_connected ? 1 : 2, 1000)) << "the message has ended";
        work.wait();
        device_of(ranks).synchronize(stream);
      }
    });
  });
}

/// On the double, which counts calls.
TEST(DeviceMessages, StreamsEndWithTheCommunicator) {
  for_each_pair([](Communicator& ranks) {
    const StreamView stream = device_of(ranks).make_stream();
    Buffer values = zeros(ranks, 1000);
    const auto streams = [] { return calls_of("cuStreamCreate") - calls_of("cuStreamDestroy"); };
    ranks.barrier();
    const unsigned long before = streams(), made = calls_of("cuStreamCreate");
    ranks.barrier();
    for (int repetition = 0; repetition < 3; ++repetition) {
      Communicator caller = direct(ranks);
      const PeerMessage message =
          ranks.rank() == 0 ? PeerMessage::send(values.view(), 1) : PeerMessage::recv(values.view(), 0);
      caller.exchange({{message}}, stream);
    }
    device_of(ranks).synchronize(stream);
    if (made > 0) {
      EXPECT_GE(calls_of("cuStreamCreate"), made + 3 * 2);
    }
    // The device's thread destroys streams.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (streams() > before && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(streams(), before);
    ranks.barrier();
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
