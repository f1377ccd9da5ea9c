// SPDX-License-Identifier: Apache-2.0
// Messages between ranks: what one item of a stream does for a group of NCCL's. All messages of a group proceed
// together; those between two ranks one after another.
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

/// A message of this rank's, in one direction.
struct Message {
  enum class Direction : std::uint8_t { kSend, kReceive };
  Direction direction = Direction::kSend;
  MessageClass kind = MessageClass::kPointToPoint;
  int peer = 0;
  std::byte* data = nullptr;  ///< as streams know it; read only by a send
  std::size_t bytes = 0;
  CollectiveCall call;
  bool is_alone = false;  ///< in no group
};

/// How far a message has come. Used by one thread.
class Transfer {
 public:
  /// @param number  of the message in its channel, from 0
  Transfer(const Message& message, Channel& channel, Channel& reverse, std::uint64_t number);
  /// Makes all possible progress. Returns true if there was any.
  bool advance(Random& random);
  bool is_complete() const { return is_complete_; }
  /// Describes the disagreement between the two ranks; empty if there is none.
  const std::string& problem() const { return problem_; }
  /// "the receive of message 3 by rank 1"
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
  bool is_begun_ = false;  ///< announced by the sender, begun by the receiver
  bool is_compared_ = false;
  bool waits_for_receive_ = true;  ///< decided when the message is announced
  bool is_complete_ = false;
  std::string problem_;
  std::string mismatch_;  ///< why it waits for ever
};

/// How a group ended.
enum class GroupEnd : std::uint8_t {
  kComplete,
  kStopped,  ///< `must_stop` said so
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
  /// Runs until all is complete. @param must_stop  is asked often  @param idle_polls  grows while nothing can be done
  GroupEnd run(Random& random, const std::function<bool()>& must_stop, std::atomic<std::uint64_t>& idle_polls);

 private:
  bool advance_all(Random& random);
  std::string first_problem() const;
  void describe_stall() const;

  Segment& segment_;
  const int rank_;
  /// By direction, class and peer: only the first of each queue proceeds.
  std::map<std::tuple<Message::Direction, MessageClass, int>, std::deque<Transfer>> queues_;
  std::vector<std::function<void(Random&)>> begins_, finishes_;
};

}  // namespace farandole::fake
