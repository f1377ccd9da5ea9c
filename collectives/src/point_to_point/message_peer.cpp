// SPDX-License-Identifier: Apache-2.0
#include "point_to_point/message_peer.h"

#include <fmt/core.h>

#include <cstring>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/forked_children.h"

namespace farandole {
namespace {

constexpr std::size_t kMaxHeaderBytes = sizeof(MessageHeader) + kMaxShortBytes;

Traffic traffic_of(bool is_payload) {
  return is_payload ? Traffic::kLong : Traffic::kShort;
}

/// @throws TransportError  no rank of this job sends such a header
void check_header(const MessageHeader& header, std::size_t payload_bytes) {
  const bool is_known = header.kind <= MessageHeader::Kind::kClosed && header.space <= MessageSpace::kCreation &&
                        static_cast<int>(header.dtype) < kDTypeCount && header.communicator < kMessageChannels;
  const bool is_short = header.kind == MessageHeader::Kind::kShort;
  const bool fits = is_known && (is_short ? header.count <= kMaxShortBytes &&
                                                header.count * size_in_bytes(header.dtype) == payload_bytes
                                          : payload_bytes == 0);
  if (!fits) throw TransportError("a point-to-point message has a header that no rank of this job sends");
}

}  // namespace

MessagePeer::MessagePeer(Endpoint& endpoint, int peer)
    : self_(endpoint.rank()),
      rank_(peer),
      process_(endpoint.topology().rank(peer).process),
      is_in_this_process_(process_ == endpoint.topology().rank(self_).process),
      route_(endpoint.route(peer)) {}

Channel MessagePeer::channel_to(std::uint8_t lane) const {
  return {kMessageChannels, lane, self_, rank_, traffic_of(lane == kPayloadLane)};
}
Channel MessagePeer::channel_from(std::uint8_t lane) const {
  return {kMessageChannels, lane, rank_, self_, traffic_of(lane == kPayloadLane)};
}

void MessagePeer::send(const MessageHeader& header, const void* payload, std::size_t bytes) {
  (void)free_sent();
  auto copy = std::make_unique_for_overwrite<std::byte[]>(sizeof header + bytes);
  std::memcpy(copy.get(), &header, sizeof header);
  if (bytes > 0) std::memcpy(copy.get() + sizeof header, payload, bytes);
  auto transfer = route_.send(channel_to(kHeaderLane), copy.get(), sizeof header + bytes);
  if (!transfer->test()) unsent_.push_back({std::move(transfer), std::move(copy)});
}

std::optional<MessagePeer::Received> MessagePeer::receive() {
  if (!incoming_) {
    if (!buffer_) buffer_ = std::make_unique_for_overwrite<std::byte[]>(kMaxHeaderBytes);
    incoming_ = route_.recv_up_to(channel_from(kHeaderLane), buffer_.get(), kMaxHeaderBytes);
  }
  if (!incoming_->test()) return std::nullopt;
  const std::size_t bytes = incoming_->received_bytes();
  incoming_.reset();
  if (bytes < sizeof(MessageHeader)) {
    throw TransportError(fmt::format("a point-to-point message from rank {} has only {} bytes", rank_, bytes));
  }
  Received received;
  std::memcpy(&received.header, buffer_.get(), sizeof received.header);
  received.payload = {buffer_.get() + sizeof received.header, bytes - sizeof received.header};
  check_header(received.header, received.payload.size());
  active = Clock::now();
  return received;
}

void MessagePeer::receive_payload(std::shared_ptr<Message> message) {
  auto transfer = route_.recv(channel_from(kPayloadLane), message->output, message->spec.bytes());
  incoming_payloads_.push_back({std::move(transfer), std::move(message)});
}

void MessagePeer::send_payload(std::shared_ptr<Message> message) {
  auto transfer = route_.send(channel_to(kPayloadLane), message->input, message->spec.bytes());
  outgoing_payloads_.push_back({std::move(transfer), std::move(message)});
}

bool MessagePeer::free_sent() {
  bool has_freed = false;
  for (; !unsent_.empty() && unsent_.front().transfer->test(); has_freed = true) unsent_.pop_front();
  return has_freed;
}

std::shared_ptr<Message> MessagePeer::take_completed_payload() {
  for (auto* const lane : {&incoming_payloads_, &outgoing_payloads_}) {
    if (lane->empty() || !lane->front().transfer->test()) continue;
    std::shared_ptr<Message> message = std::move(lane->front().message);
    lane->pop_front();
    active = Clock::now();
    return message;
  }
  return nullptr;
}

BufferHazard MessagePeer::give_up(std::unique_ptr<Transfer> transfer) {
  const BufferHazard hazard = transfer->withdraw();
  if (hazard != BufferHazard::kNone) keep_until_the_end(std::move(transfer));
  return hazard;
}

void MessagePeer::drop_unsent() {
  for (Unsent& unsent : unsent_) {
    if (give_up(std::move(unsent.transfer)) != BufferHazard::kNone) keep_until_the_end(std::move(unsent.copy));
  }
  unsent_.clear();
}

void MessagePeer::close() {
  drop_unsent();
  if (incoming_ && give_up(std::move(incoming_)) != BufferHazard::kNone) keep_until_the_end(std::move(buffer_));
}

}  // namespace farandole
