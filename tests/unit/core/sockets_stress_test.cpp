// SPDX-License-Identifier: Apache-2.0
// Messages of any length and key, in both directions at once, between two threads, over sockets with tiny buffers.
// Senders cancel some messages, receivers cancel others. All other messages arrive complete, once, and in order.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/core/reduce.h"
#include "farandole/internal/deadline.h"
#include "socket_pair.h"
#include "sockets/link.h"

namespace farandole::sockets {
namespace {

constexpr std::uint32_t kMessages = 40;  // of each key and direction
constexpr std::size_t kMaxElements = 100'000;
constexpr std::uint32_t kOperand = 5;
constexpr auto kStandstill = std::chrono::seconds(20);

/// Fate of all messages of a key.
enum class Fate { kReceived, kReduced, kWithdrawnBySender, kWithdrawnByReceiver };
constexpr Key kKeys = 8;
Fate fate_of(Key key) {
  return static_cast<Fate>(key % 4);
}

std::uint32_t mixed(std::uint32_t seed, Key key, std::uint32_t serial) {
  std::seed_seq sequence{seed, static_cast<std::uint32_t>(key), serial};
  std::uint32_t value = 0;
  sequence.generate(&value, &value + 1);
  return value;
}

/// The n-th message of a key, which both ends know: its number, and what follows from it. Most are short.
std::vector<std::uint32_t> message_of(std::uint32_t seed, Key key, std::uint32_t serial) {
  const std::uint32_t random = mixed(seed, key, serial);
  constexpr std::size_t kShort = 64;
  const std::size_t most = random % 8 == 0 ? kMaxElements : kShort;
  std::vector<std::uint32_t> values(1 + (random / 8) % most, serial);
  for (std::size_t i = 1; i < values.size(); ++i) values[i] = random + static_cast<std::uint32_t>(i);
  return values;
}

/// The messages that one end sends under a key.
class Sender {
 public:
  Sender(Link& link, std::uint32_t seed, Key key) : link_(link), seed_(seed), key_(key) {}
  bool is_done() const { return next_ == kMessages && under_way_.empty(); }
  /// Returns how many messages have gone. The last message stays, so that the receiver knows when it has all.
  std::uint64_t step(std::mt19937& random) {
    constexpr std::size_t kMaxUnderWay = 3;
    if (next_ < kMessages && under_way_.size() < kMaxUnderWay) {
      auto data = std::make_unique<std::vector<std::uint32_t>>(message_of(seed_, key_, next_++));
      Sending sending = link_.send(key_, data->data(), data->size() * sizeof(std::uint32_t));
      under_way_.push_back({std::move(data), std::move(sending)});
    }
    const bool withdraws = fate_of(key_) == Fate::kWithdrawnBySender && random() % 4 == 0;
    std::uint64_t gone = 0;
    for (; !under_way_.empty() && under_way_.front().sending.test(); ++gone) under_way_.pop_front();
    if (withdraws && !under_way_.empty() && next_ < kMessages) under_way_.pop_back();
    return gone;
  }
  std::string describe() const { return fmt::format("key {}: {} sent, {} under way", key_, next_, under_way_.size()); }

 private:
  struct UnderWay {
    std::unique_ptr<std::vector<std::uint32_t>> data;
    Sending sending;  // withdrawn before its data goes
  };
  Link& link_;
  const std::uint32_t seed_;
  const Key key_;
  std::uint32_t next_ = 0;
  std::deque<UnderWay> under_way_;
};

/// The messages that one end gets under a key.
class Receiver {
 public:
  Receiver(Link& link, std::uint32_t seed, Key key) : link_(link), seed_(seed), key_(key) {}
  bool is_done() const { return next_ == kMessages; }
  /// Returns how many messages have come.
  std::uint64_t step(std::mt19937& random) {
    if (is_done()) return 0;
    if (fate_of(key_) == Fate::kWithdrawnBySender) return take();
    if (!receiving_) begin(random);
    if (!receiving_->test()) {
      // A receive that is withdrawn takes one message with it, or none. The last one must not go that way.
      if (fate_of(key_) == Fate::kWithdrawnByReceiver && random() % 4 == 0 && next_ + skipped_ + 1 < kMessages) {
        receiving_.reset();
        ++skipped_;
      }
      return 0;
    }
    values_.resize(receiving_->bytes() / sizeof(std::uint32_t));
    receiving_.reset();
    if (fate_of(key_) == Fate::kReduced) {
      for (std::uint32_t& each : values_) each -= kOperand;
    }
    check();
    return 1;
  }
  std::string describe() const { return fmt::format("key {}: waits for message {}", key_, next_); }

 private:
  void begin(std::mt19937& random) {
    const std::size_t count = message_of(seed_, key_, next_).size();
    if (fate_of(key_) == Fate::kWithdrawnByReceiver) {
      values_.assign(kMaxElements, 0);
      receiving_.emplace(link_.recv(key_, values_.data(), values_.size() * sizeof(std::uint32_t), Length::kAtMost));
    } else if (fate_of(key_) == Fate::kReduced) {
      values_.assign(count, kOperand);
      receiving_.emplace(link_.recv_reduce(key_, values_.data(), values_.data(), count, DType::kI32, ReduceOp::kSum));
    } else {
      values_.assign(count, static_cast<std::uint32_t>(random()));
      receiving_.emplace(link_.recv(key_, values_.data(), count * sizeof(std::uint32_t)));
    }
  }
  std::uint64_t take() {
    const auto taken = link_.take(key_);
    if (!taken) return 0;
    values_.resize(taken->size() / sizeof(std::uint32_t));
    std::memcpy(values_.data(), taken->data(), taken->size());
    check();
    return 1;
  }
  /// Checks that the received bytes are a complete message: the next message, or a later one if the sender withdraws
  /// some.
  void check() {
    ASSERT_FALSE(values_.empty());
    const std::uint32_t serial = values_.front();
    const bool may_skip = fate_of(key_) == Fate::kWithdrawnBySender;
    ASSERT_TRUE(serial >= next_ && (may_skip || serial <= next_ + skipped_)) << describe() << ", gets " << serial;
    ASSERT_EQ(values_, message_of(seed_, key_, serial)) << describe();
    next_ = serial + 1;
    skipped_ = 0;
  }

  Link& link_;
  const std::uint32_t seed_;
  const Key key_;
  std::uint32_t next_ = 0;
  std::uint32_t skipped_ = 0;  // messages that withdrawn receives may have taken, since the last that came
  std::vector<std::uint32_t> values_;
  std::optional<Receiving> receiving_;  // withdrawn before its memory goes
};

/// One end, which one thread drives.
class End {
 public:
  End(UniqueDescriptor socket, std::string peer, std::uint32_t sent_seed, std::uint32_t came_seed)
      : random_(sent_seed),
        link_(std::move(socket), std::move(peer), KeptBytes::of_this_process(), 1 + random_() % kFrameBytes) {
    for (Key key = 0; key < kKeys; ++key) {
      senders_.push_back(std::make_unique<Sender>(link_, sent_seed, key));
      receivers_.push_back(std::make_unique<Receiver>(link_, came_seed, key));
    }
  }
  /// Until all has come and gone, or neither end has moved for long.
  void run(std::atomic<std::uint64_t>& moves) {
    std::uint64_t seen = 0;
    Deadline standstill = Deadline::after(kStandstill);
    while (!is_done() && !testing::Test::HasFatalFailure()) {
      moves += senders_[random_() % kKeys]->step(random_);
      moves += receivers_[random_() % kKeys]->step(random_);
      if (std::exchange(seen, moves.load()) != seen) standstill = Deadline::after(kStandstill);
      if (standstill.passed()) return;
      if (random_() % 16 == 0) std::this_thread::yield();
    }
    is_over_ = is_done();
  }
  bool is_over() const { return is_over_; }
  std::string describe() const {
    std::string text;
    for (const auto& each : senders_) text += each->is_done() ? "" : "  " + each->describe() + '\n';
    for (const auto& each : receivers_) text += each->is_done() ? "" : "  " + each->describe() + '\n';
    return text;
  }

 private:
  bool is_done() {
    const auto done = [](const auto& each) { return each->is_done(); };
    return std::all_of(senders_.begin(), senders_.end(), done) &&
           std::all_of(receivers_.begin(), receivers_.end(), done) && link_.is_flushed();
  }

  std::mt19937 random_;
  Link link_;
  std::vector<std::unique_ptr<Sender>> senders_;
  std::vector<std::unique_ptr<Receiver>> receivers_;
  bool is_over_ = false;
};

class SocketsStress : public testing::TestWithParam<test::SocketPair (*)()> {};

TEST_P(SocketsStress, EveryMessageThatIsNotWithdrawnArrives) {
  const char* const given = std::getenv("FARANDOLE_SEED");
  const std::uint32_t seed =
      given != nullptr ? static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10)) : std::random_device()();
  SCOPED_TRACE(fmt::format("FARANDOLE_SEED={}", seed));
  fmt::print("FARANDOLE_SEED={}\n", seed);
  test::SocketPair sockets = GetParam()();
  for (const UniqueDescriptor& each : sockets) {
    // A frame does not fit. TCP's window stays as it is: its timers, not the link, would take the time.
    const int bytes = 32 * 1024;
    test::checked(setsockopt(each.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), "SO_SNDBUF");
  }
  End one(std::move(sockets[0]), "the other end", seed, seed + 1);
  End other(std::move(sockets[1]), "the one end", seed + 1, seed);
  std::atomic<std::uint64_t> moves{0};
  std::thread thread([&] { other.run(moves); });
  one.run(moves);
  thread.join();
  EXPECT_TRUE(one.is_over()) << "the one end waits:\n" << one.describe();
  EXPECT_TRUE(other.is_over()) << "the other end waits:\n" << other.describe();
}

INSTANTIATE_TEST_SUITE_P(Over, SocketsStress, testing::Values(&test::unix_socket_pair, &test::tcp_socket_pair),
                         [](const auto& one) { return one.index == 0 ? "Unix" : "Tcp"; });

}  // namespace
}  // namespace farandole::sockets
