// SPDX-License-Identifier: Apache-2.0
#include "local/link.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::local {
namespace {

// About what a message that is kept, and a key that a peer has made up, cost beside the data.
constexpr std::size_t kMessageOverhead = 64;
constexpr std::size_t kKeyOverhead = 1536;

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS;
}

}  // namespace

// The link's mutex guards both kinds of messages.
struct Sending::Message {
  Key key = 0;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t sent = 0;
  bool is_done = false;         // the socket has all of it
  std::vector<std::byte> kept;  // what `data` shows, where nobody else keeps it
};

struct Receiving::Message {
  std::byte* data = nullptr;  // null: withdrawn
  std::size_t expected = 0;
  Length length = Length::kExact;
  std::size_t came = 0;
  bool is_done = false;

  bool fits(std::size_t message) const {
    return message == expected || (length == Length::kAtMost && message < expected);
  }
};

Sending::~Sending() {
  if (!message_) return;
  const std::lock_guard lock(link_.mutex_);
  std::erase(link_.outgoing_, message_);
}

bool Sending::test() {
  if (!message_) return true;
  const std::lock_guard lock(link_.mutex_);
  if (!message_->is_done) link_.move();
  if (!message_->is_done) return false;
  message_.reset();
  return true;
}

Receiving::~Receiving() {
  if (!message_) return;
  const std::lock_guard lock(link_.mutex_);
  message_->data = nullptr;
  for (auto& [key, inbox] : link_.inboxes_) std::erase(inbox.wanted, message_);
}

bool Receiving::test() {
  if (!message_) return true;
  const std::lock_guard lock(link_.mutex_);
  if (!message_->is_done) link_.move();
  if (!message_->is_done) return false;
  bytes_ = message_->came;
  message_.reset();
  return true;
}

Link::Link(UniqueDescriptor socket, std::string peer, KeptBytes& kept)
    : socket_(std::move(socket)), peer_(std::move(peer)), kept_(kept), packet_(sizeof(PacketHeader) + kPacketBytes) {}

Sending Link::send(Key key, const void* data, std::size_t bytes) {
  auto message = std::make_shared<Sending::Message>();
  message->key = key;
  message->data = static_cast<const std::byte*>(data);
  message->bytes = bytes;
  const std::lock_guard lock(mutex_);
  enqueue(message);
  return {*this, std::move(message)};
}

void Link::post(Key key, const void* data, std::size_t bytes) {
  auto message = std::make_shared<Sending::Message>();
  const auto* begin = static_cast<const std::byte*>(data);
  message->key = key;
  message->kept.assign(begin, begin + bytes);
  message->data = message->kept.data();
  message->bytes = bytes;
  const std::lock_guard lock(mutex_);
  enqueue(message);
}

/// Forgets the message if it can not be sent: its owner is notified, and its data may go.
void Link::enqueue(const std::shared_ptr<Sending::Message>& message) {
  outgoing_.push_back(message);
  try {
    flush();
  } catch (...) {
    std::erase(outgoing_, message);
    throw;
  }
}

Receiving Link::recv(Key key, void* data, std::size_t bytes, Length length) {
  auto message = std::make_shared<Receiving::Message>();
  message->data = static_cast<std::byte*>(data);
  message->expected = bytes;
  message->length = length;
  const std::lock_guard lock(mutex_);
  Inbox& inbox = inboxes_[key];
  inbox.wanted.push_back(message);
  match(inbox);
  return {*this, std::move(message)};
}

std::optional<std::vector<std::byte>> Link::take(Key key) {
  const std::lock_guard lock(mutex_);
  move();
  const auto inbox = inboxes_.find(key);
  if (inbox == inboxes_.end() || inbox->second.arrived.empty()) return std::nullopt;
  Arrival& first = inbox->second.arrived.front();
  if (first.into || first.came < first.bytes) return std::nullopt;
  auto taken = std::move(first.kept);
  let_go(kMessageOverhead + taken.size());
  inbox->second.arrived.pop_front();
  return taken;
}

bool Link::has_arrived(Key key, Key mask) {
  const std::lock_guard lock(mutex_);
  move();
  return std::any_of(inboxes_.begin(), inboxes_.end(), [&](const auto& entry) {
    const auto& arrived = entry.second.arrived;
    return (entry.first & mask) == (key & mask) && !arrived.empty() && !arrived.back().into;
  });
}

bool Link::is_flushed() {
  const std::lock_guard lock(mutex_);
  flush();
  if (violation_.empty()) drain();
  return is_closed_ || outgoing_.empty();
}

bool Link::is_closed() {
  const std::lock_guard lock(mutex_);
  move();
  return is_closed_;
}

void Link::move() {
  flush();
  drain();
}

void Link::flush() {
  while (!outgoing_.empty() && send_packets(*outgoing_.front())) {
    outgoing_.front()->is_done = true;
    outgoing_.pop_front();
  }
}

/// True if the whole message has gone.
bool Link::send_packets(Sending::Message& message) {
  do {
    PacketHeader header{message.key, message.bytes, message.sent};
    const std::size_t bytes = std::min(kPacketBytes, message.bytes - message.sent);
    // The socket only reads from it.
    auto* payload = const_cast<std::byte*>(message.data) + message.sent;
    std::array<iovec, 2> parts{iovec{&header, sizeof header}, iovec{payload, bytes}};
    msghdr packet{};
    packet.msg_iov = parts.data();
    packet.msg_iovlen = bytes > 0 ? 2 : 1;
    if (sendmsg(socket_.get(), &packet, MSG_NOSIGNAL) < 0) {
      // That the other end is gone shows when it is read from; which process died is found out elsewhere.
      if (would_block(errno) || errno == EPIPE || errno == ECONNRESET) return false;
      throw TransportError(fmt::format("sending to {} failed: {}", peer_, std::generic_category().message(errno)));
    }
    message.sent += bytes;
  } while (message.sent < message.bytes);
  return true;
}

void Link::drain() {
  if (!violation_.empty()) throw TransportError(violation_);
  while (!is_closed_) {
    // The length of the packet, also where it is longer than the memory for it.
    const ssize_t got = ::recv(socket_.get(), packet_.data(), packet_.size(), MSG_TRUNC);
    // A reset is reported once, and before what was sent until then.
    if (got < 0 && errno == ECONNRESET) continue;
    if (got < 0 && would_block(errno)) return;
    if (got < 0) {
      throw TransportError(fmt::format("receiving from {} failed: {}", peer_, std::generic_category().message(errno)));
    }
    is_closed_ = got == 0;
    if (is_closed_) return;
    try {
      const auto bytes = static_cast<std::size_t>(got);
      if (bytes > packet_.size()) throw TransportError(fmt::format("a packet of {} bytes", bytes));
      accept(parse_packet({packet_.data(), bytes}));
    } catch (const TransportError& error) {
      violation_ = fmt::format("{} has sent what no process of this job sends: {}", peer_, error.what());
      is_closed_ = true;
      throw TransportError(violation_);
    }
  }
}

/// A message that begins while the last one of its key is incomplete is right: its sender has withdrawn the last one.
void Link::accept(const Packet& packet) {
  const auto& [key, bytes, offset] = packet.header;
  const auto [found, is_new] = inboxes_.try_emplace(key);
  if (is_new) keep(kKeyOverhead);
  Inbox& inbox = found->second;
  if (offset == 0) {
    keep(kMessageOverhead);
    inbox.arrived.push_back({bytes, 0, {}, nullptr});
  }
  if (inbox.arrived.empty() || inbox.arrived.back().bytes != bytes || inbox.arrived.back().came != offset) {
    throw TransportError(fmt::format("byte {} of a message of {} bytes that does not go on there", offset, bytes));
  }
  put(inbox.arrived.back(), offset, packet.payload);
  inbox.arrived.back().came += packet.payload.size();
  match(inbox);
}

void Link::put(Arrival& arrival, std::size_t offset, std::span<const std::byte> payload) {
  if (!arrival.into) {
    keep(payload.size());
    arrival.kept.insert(arrival.kept.end(), payload.begin(), payload.end());
  } else if (arrival.into->data != nullptr && arrival.into->fits(arrival.bytes) && !payload.empty()) {
    std::memcpy(arrival.into->data + offset, payload.data(), payload.size());
  }
}

/// Brings messages that have arrived and transfers that wait for them together, in order.
void Link::match(Inbox& inbox) {
  while (!inbox.arrived.empty()) {
    Arrival& first = inbox.arrived.front();
    if (!first.into) {
      if (inbox.wanted.empty()) return;
      first.into = std::move(inbox.wanted.front());
      inbox.wanted.pop_front();
      first.into->came = first.bytes;
      put(first, 0, first.kept);
      let_go(kMessageOverhead + first.kept.size());
      first.kept = {};
    }
    if (first.came < first.bytes) return;
    first.into->is_done = true;
    inbox.arrived.pop_front();
  }
}

void Link::keep(std::size_t bytes) {
  if (!kept_.take(bytes)) {
    throw TransportError(
        fmt::format("more than the {} bytes that this process keeps before it asks for them", kept_.most()));
  }
  kept_here_ += bytes;
}

void Link::let_go(std::size_t bytes) {
  kept_.give_back(bytes);
  kept_here_ -= bytes;
}

}  // namespace farandole::local
