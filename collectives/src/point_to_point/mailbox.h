// SPDX-License-Identifier: Apache-2.0
// Matches the messages that have arrived in a communicator with receives.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "point_to_point/message.h"
#include "point_to_point/message_header.h"

namespace farandole {

/// A message that has arrived: a short message, or the announcement of a long message.
struct ArrivedMessage {
  int source = 0;  ///< job rank of the sender
  MessageHeader header;
  std::vector<std::byte> payload;  ///< of a short message that no receive awaited
};

/// Receives of one communicator that no message has matched, and messages that no receive has matched, both in order.
/// A message matches a receive of the same space and tag, from its source or from any source. Not thread-safe.
class Mailbox {
 public:
  /// Removes and returns the oldest message that matches `receive`, or adds the receive and returns nothing.
  std::optional<ArrivedMessage> take_or_await(const std::shared_ptr<Message>& receive);
  /// Removes and returns the oldest receive that matches; null if there is none.
  std::shared_ptr<Message> take_receive(int source, const MessageHeader& header);
  /// Keeps a message that matches no receive.
  void keep(ArrivedMessage arrival) { arrivals_.push_back(std::move(arrival)); }
  const std::deque<ArrivedMessage>& arrivals() const { return arrivals_; }
  bool is_empty() const { return arrivals_.empty() && receives_.empty(); }
  void drop_receives() { receives_.clear(); }
  /// Lists messages that could be meant for `receive` but have another tag, up to 4: "10 f32 with tag 8 from rank 1".
  std::string describe_others(const Message& receive) const;

 private:
  std::deque<ArrivedMessage> arrivals_;            // oldest first
  std::deque<std::shared_ptr<Message>> receives_;  // oldest first
};

}  // namespace farandole
