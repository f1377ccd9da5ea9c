// SPDX-License-Identifier: Apache-2.0
// A transport for tests of several ranks on one thread: messages arrive when and in the order that the test chooses.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/core/reduce.h"
#include "farandole/sdk/transport.h"

namespace farandole::test {

/// The network of all ranks of a test. Unbuffered: a message is copied out of the sender's memory at its delivery. Not
/// thread-safe.
class ScriptedNetwork final : public Transport {
 public:
  explicit ScriptedNetwork(bool fuses = false) : fuses_(fuses) {}
  std::string_view name() const override { return "scripted"; }
  bool fuses_reduction() const override { return fuses_; }
  bool has_arrived(std::uint16_t /*communicator*/, std::uint8_t /*lane*/, int /*target*/) override { return false; }

  std::unique_ptr<Transfer> send(const Channel& channel, const void* data, std::size_t bytes) override {
    return post(sends_, channel, bytes, [data](const void*, std::size_t) { return data; });
  }
  std::unique_ptr<Transfer> recv(const Channel& channel, void* data, std::size_t bytes) override {
    return post(receives_, channel, bytes, [data](const void* from, std::size_t came) {
      std::memcpy(data, from, came);
      return nullptr;
    });
  }
  std::unique_ptr<Transfer> recv_up_to(const Channel& channel, void* data, std::size_t most) override {
    return post(
        receives_, channel, most,
        [data](const void* from, std::size_t bytes) {
          std::memcpy(data, from, bytes);
          return nullptr;
        },
        /*exact=*/false);
  }
  std::unique_ptr<Transfer> recv_reduce(const Channel& channel, void* out, const void* operand, std::size_t count,
                                        DType dtype, ReduceOp op) override {
    return post(receives_, channel, count * size_in_bytes(dtype), [=](const void* from, std::size_t) {
      reduce(out, operand, from, count, dtype, op);
      return nullptr;
    });
  }

  /// Number of channels whose next message both ends have posted.
  std::size_t deliverable() const { return ready_channels().size(); }
  /// Delivers the next message of one of these channels.
  void deliver(std::size_t index) { deliver_on(ready_channels().at(index)); }
  /// Delivers the next message from one rank of the job to another. Both ends must have posted the message.
  void deliver_between(int source, int target) {
    for (const Key& channel : ready_channels()) {
      if (std::get<2>(channel) == source && std::get<3>(channel) == target) return deliver_on(channel);
    }
    ADD_FAILURE() << "rank " << target << " waits for no message of rank " << source << ", or there is none";
  }
  /// Delivers the next message of every channel of a lane. Returns true if there was any.
  bool deliver_all_of(std::uint8_t lane) {
    bool any = false;
    for (const Key& channel : ready_channels()) {
      if (std::get<1>(channel) != lane) continue;
      deliver_on(channel);
      any = true;
    }
    return any;
  }
  /// From now on a message leaves its sender's memory only when the sender tests the transfer, as with a socket whose
  /// buffer was full at the send.
  void be_full() { is_full_ = true; }
  /// Withdrawn sends keep using their memory: `withdraw` returns BufferHazard::kRead.
  void keep_withdrawn_sends() { hazard_of_sends_ = BufferHazard::kRead; }
  /// Loses every message that has not been delivered, and all later messages.
  void fail(const std::string& text) { failure_ = text; }
  /// Loses only the messages from and to one rank of the job.
  void lose(int rank, const std::string& text) { lost_ = rank, failure_ = text; }

  std::size_t delivered() const { return delivered_; }
  std::size_t withdrawn() const { return withdrawn_; }
  /// Number of transfers that have not been released: sends, or receives.
  std::size_t held_sends() const { return held_[0]; }
  std::size_t held_receives() const { return held_[1]; }
  /// Ranks of the job that have sent a message.
  std::set<int> senders() const {
    std::set<int> ranks;
    for (const auto& [channel, messages] : sends_) ranks.insert(std::get<2>(channel));
    return ranks;
  }
  /// True if a message of that kind of traffic has been sent.
  bool has_sent(Traffic traffic) const {
    return std::any_of(sends_.begin(), sends_.end(),
                       [&](const auto& sent) { return std::get<4>(sent.first) == traffic; });
  }
  /// Number of receives that a rank of the job has posted and that have not been delivered.
  std::size_t receives_of(int rank) const {
    std::size_t count = 0;
    for (const auto& [channel, messages] : receives_) count += std::get<3>(channel) == rank ? messages.size() : 0;
    return count;
  }

 private:
  struct State {
    bool is_done = false;
    std::size_t came = 0;
    bool is_looked_after = false;
  };
  using Move = std::function<const void*(const void*, std::size_t)>;
  using Key = std::tuple<std::uint16_t, std::uint8_t, int, int, Traffic>;
  struct Message {
    std::size_t bytes;
    bool exact;
    Move move;
    std::shared_ptr<State> state;
  };
  class ScriptedTransfer final : public Transfer {
   public:
    ScriptedTransfer(ScriptedNetwork& network, const Key& channel, std::shared_ptr<State> state, bool is_send)
        : network_(network), channel_(channel), state_(std::move(state)), is_send_(is_send) {
      ++network_.held_[is_send_ ? 0 : 1];
    }
    ScriptedTransfer(const ScriptedTransfer&) = delete;
    ScriptedTransfer& operator=(const ScriptedTransfer&) = delete;
    ~ScriptedTransfer() override { --network_.held_[is_send_ ? 0 : 1]; }
    bool test() override {
      state_->is_looked_after = true;
      if (state_->is_done) return true;
      if (network_.is_lost(channel_)) throw TransportError(network_.failure_);
      return false;
    }
    std::size_t received_bytes() const override { return state_->came; }
    BufferHazard withdraw() override {
      ++network_.withdrawn_;
      return is_send_ ? network_.hazard_of_sends_ : BufferHazard::kNone;
    }

   private:
    ScriptedNetwork& network_;
    const Key channel_;
    const std::shared_ptr<State> state_;
    const bool is_send_;
  };

  using Messages = std::map<Key, std::deque<Message>>;
  bool is_lost(const Key& channel) const {
    return !failure_.empty() && (lost_ < 0 || std::get<2>(channel) == lost_ || std::get<3>(channel) == lost_);
  }
  static Key key(const Channel& channel) {
    return {channel.communicator, channel.lane, channel.source, channel.target, channel.traffic};
  }
  std::unique_ptr<Transfer> post(Messages& messages, const Channel& channel, std::size_t bytes, Move move,
                                 bool exact = true) {
    auto& queue = messages[key(channel)];
    queue.push_back({bytes, exact, std::move(move), std::make_shared<State>()});
    return std::make_unique<ScriptedTransfer>(*this, key(channel), queue.back().state, &messages == &sends_);
  }
  static Message take(std::deque<Message>& queue) {
    Message first = std::move(queue.front());
    queue.pop_front();
    return first;
  }
  void deliver_on(const Key& channel) {
    Message from = take(sends_[channel]), to = take(receives_[channel]);
    ASSERT_TRUE(to.exact ? from.bytes == to.bytes : from.bytes <= to.bytes) << from.bytes << " and " << to.bytes;
    (void)to.move(from.move(nullptr, 0), from.bytes);
    *from.state = *to.state = {true, from.bytes, true};
    ++delivered_;
  }
  std::vector<Key> ready_channels() const {
    std::vector<Key> ready;
    for (const auto& [channel, messages] : sends_) {
      const auto receives = receives_.find(channel);
      if (is_full_ && !messages.empty() && !messages.front().state->is_looked_after) continue;
      if (!messages.empty() && receives != receives_.end() && !receives->second.empty()) ready.push_back(channel);
    }
    return ready;
  }

  const bool fuses_;
  Messages sends_, receives_;
  std::string failure_;  // empty: nothing is lost
  int lost_ = -1;        // messages of this rank only; -1: all
  bool is_full_ = false;
  BufferHazard hazard_of_sends_ = BufferHazard::kNone;
  std::array<std::size_t, 2> held_{};  // sends and receives
  std::size_t delivered_ = 0, withdrawn_ = 0;
};

}  // namespace farandole::test
