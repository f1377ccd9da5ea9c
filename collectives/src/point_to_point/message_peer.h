// SPDX-License-Identifier: Apache-2.0
// Paths of point-to-point messages between this rank and one peer.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "farandole/internal/deadline.h"
#include "farandole/internal/endpoint.h"
#include "farandole/sdk/transport.h"
#include "point_to_point/message.h"
#include "point_to_point/message_header.h"

namespace farandole {

/// A payload in flight in the payload lane.
struct Payload {
  std::unique_ptr<Transfer> transfer;
  std::shared_ptr<Message> message;
};

/// The paths between this rank and one peer of the job: a header lane and a payload lane in each direction. All
/// communicators share them. The receive of the next header stays posted once it is posted, because a transport may
/// drop the message of a receive that is withdrawn. Guarded by the hub's mutex.
class MessagePeer {
 public:
  /// @param endpoint  outlives this object   @param peer  rank of the job; may be this rank
  MessagePeer(Endpoint& endpoint, int peer);
  MessagePeer(const MessagePeer&) = delete;
  MessagePeer& operator=(const MessagePeer&) = delete;

  int rank() const { return rank_; }
  int process() const { return process_; }
  bool is_in_this_process() const { return is_in_this_process_; }

  /// Sends a header, and the payload of a short message. Copies both. @throws TransportError
  void send(const MessageHeader& header, const void* payload = nullptr, std::size_t bytes = 0);
  struct Received {
    MessageHeader header;
    std::span<const std::byte> payload;  ///< valid until the next call of `receive`
  };
  /// The next header that has arrived. Non-blocking. @throws TransportError
  std::optional<Received> receive();
  /// Posts the receive of a payload, for which the peer then gets kReady. @throws TransportError
  void receive_payload(std::shared_ptr<Message> message);
  /// Sends a payload to a peer that is ready. @throws TransportError
  void send_payload(std::shared_ptr<Message> message);
  /// Frees the memory of headers that have been sent. Returns true if there were any.
  bool free_sent();
  /// Removes and returns a payload that has arrived or been sent; null if there is none. @throws TransportError
  std::shared_ptr<Message> take_completed_payload();
  bool has_payloads() const { return !incoming_payloads_.empty() || !outgoing_payloads_.empty(); }
  /// True if headers wait until the transport has accepted them. Headers for this process need no progress by this
  /// rank, because the receiver copies them.
  bool has_unsent() const { return !unsent_.empty() && !is_in_this_process_; }

  /// Withdraws payloads and unsent headers after a fault. Calls `failed(message, hazard)` for each payload.
  template <class Failed>
  void withdraw_sends(const Failed& failed) {
    for (auto* const lane : {&incoming_payloads_, &outgoing_payloads_}) {
      for (Payload& payload : *lane) failed(*payload.message, give_up(std::move(payload.transfer)));
      lane->clear();
    }
    drop_unsent();
  }
  void drop_unsent();
  /// Withdraws everything, because the World ends.
  void close();

  int awaited = 0;             ///< number of pending messages for which headers of this peer are read
  Clock::time_point active{};  ///< when the peer last sent something, or this rank began to wait for it

 private:
  static constexpr std::uint8_t kHeaderLane = 0, kPayloadLane = 1;
  struct Unsent {
    std::unique_ptr<Transfer> transfer;
    std::unique_ptr<std::byte[]> copy;
  };
  /// Withdraws a transfer, and keeps it until exit if the transport still uses its memory.
  static BufferHazard give_up(std::unique_ptr<Transfer> transfer);
  Channel channel_to(std::uint8_t lane) const;
  Channel channel_from(std::uint8_t lane) const;

  const int self_, rank_, process_;
  const bool is_in_this_process_;
  Transport& route_;
  std::unique_ptr<std::byte[]> buffer_;                        // of the posted header; null before the first
  std::unique_ptr<Transfer> incoming_;                         // null: no receive is posted
  std::deque<Unsent> unsent_;                                  // oldest first
  std::deque<Payload> incoming_payloads_, outgoing_payloads_;  // oldest first
};

}  // namespace farandole
