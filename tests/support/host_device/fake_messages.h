// SPDX-License-Identifier: Apache-2.0
// Messages between ranks, by which one item of a stream runs an NCCL group. All messages of a group proceed
// concurrently; messages between the same two ranks proceed one after another.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fake_options.h"
#include "fake_segment.h"

namespace farandole::fake {

/// A send or a receive of this rank.
struct Message {
  enum class Direction : std::uint8_t { kSend, kReceive };
  Direction direction = Direction::kSend;
  MessageClass kind = MessageClass::kPointToPoint;
  int peer = 0;
  std::byte* data = nullptr;  ///< address for streams; a send only reads the memory
  std::size_t bytes = 0;
  CollectiveCall call;
  bool is_alone = false;  ///< in no group
};

/// The progress of a message. Used by one thread.
class Transfer {
 public:
  /// @param number  of the message in its channel, from 0
  Transfer(const Message& message, Channel& channel, Channel& reverse, std::uint64_t number);
  /// Makes all possible progress. Returns true if there was any.
  bool advance(Random& random);
  bool is_complete() const { return is_complete_; }
  /// Describes the disagreement between the two ranks; empty if there is none.
  const std::string& problem() const { return problem_; }
  /// Describes what the message waits for: "the receive of message 3 by rank 1"
  std::string awaited() const;

 private:
  bool advance_send(Random& random);
  bool announce(Random& random);
  bool advance_receive(Random& random);
  void compare_with_header();
  bool produce(Random& random);
  bool consume(Random& random);

  Message message_;
  Channel& channel_;
  Channel& reverse_;  ///< from the receiver to the sender
  std::uint64_t number_;
  std::size_t done_bytes_ = 0;
  bool is_begun_ = false;  ///< a send: it is announced; a receive: it has begun
  bool is_compared_ = false;
  bool waits_for_receive_ = true;  ///< decided when the message is announced
  bool is_complete_ = false;
  std::string problem_;
  std::string mismatch_;  ///< why this message waits for ever; empty if it does not
};

/// How a group ended.
enum class GroupEnd : std::uint8_t {
  kComplete,
  kStopped,  ///< `must_stop` returned true
  kBroken,   ///< a rank has found a misuse: see Segment::why_broken
};

/// The messages of one group on one communicator.
class MessageGroup {
 public:
  MessageGroup(Segment& segment, int rank) : segment_(segment), rank_(rank) {}
  /// @param number  of the message in its channel
  void add(const Message& message, std::uint64_t number);
  /// Calls `begin` before the first message.
  void add_begin(std::function<void(Random&)> begin) { begins_.push_back(std::move(begin)); }
  /// Calls `finish` once all messages are complete, in the order in which they were added.
  void add_finish(std::function<void(Random&)> finish) { finishes_.push_back(std::move(finish)); }
  /// Runs until all messages are complete. @param must_stop  called often; true ends the run   @param idle_polls  grows
  /// while no message can make progress
  GroupEnd run(Random& random, const std::function<bool()>& must_stop, std::atomic<std::uint64_t>& idle_polls);

 private:
  bool advance_all(Random& random);
  std::string first_problem() const;
  void describe_stall() const;

  Segment& segment_;
  const int rank_;
  /// By direction, class and peer. Only the first message of each queue proceeds.
  std::map<std::tuple<Message::Direction, MessageClass, int>, std::deque<Transfer>> queues_;
  std::vector<std::function<void(Random&)>> begins_, finishes_;
};

}  // namespace farandole::fake
