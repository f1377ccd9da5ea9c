// SPDX-License-Identifier: Apache-2.0
// Messages to and from one other process of this host, over a socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "local/descriptor.h"
#include "local/kept_bytes.h"
#include "local/packet.h"

namespace farandole::local {

class Link;

/// A message on its way out. Destroying it before it is done withdraws it: its data is not read any more.
class Sending {
 public:
  Sending(Sending&&) noexcept = default;
  Sending& operator=(Sending&&) = delete;
  ~Sending();
  /// True once the socket has all of it. Never blocks. @throws TransportError
  bool test();

 private:
  friend class Link;
  struct Message;
  Sending(Link& link, std::shared_ptr<Message> message) : link_(link), message_(std::move(message)) {}
  Link& link_;
  std::shared_ptr<Message> message_;  // null: done, or moved from
};

/// A message that is waited for. Destroying it before it is done withdraws it: its memory is not written any more.
class Receiving {
 public:
  Receiving(Receiving&&) noexcept = default;
  Receiving& operator=(Receiving&&) = delete;
  ~Receiving();
  /// True once it has arrived. Never blocks. @throws TransportError
  bool test();
  /// Bytes of the message that came; where they do not fit nothing was written.
  std::size_t bytes() const { return bytes_; }

 private:
  friend class Link;
  struct Message;
  Receiving(Link& link, std::shared_ptr<Message> message) : link_(link), message_(std::move(message)) {}
  Link& link_;
  std::shared_ptr<Message> message_;  // null: done, or moved from
  std::size_t bytes_ = 0;
};

/// How long a message may be that is received into some memory.
enum class Length { kExact, kAtMost };

/// A connection of two processes, on a socket that keeps packets whole (SOCK_SEQPACKET). A long message is cut into
/// packets, each of which says to which message it belongs, so that one that is withdrawn half-way does no harm to
/// others. What arrives before it is asked for is kept, as far as `KeptBytes` allows. Nothing blocks. Thread-safe.
///
/// A peer that sends what no link sends, or more than may be kept, ends the connection: what asks the link for anything
/// but sending raises a TransportError from then on that names the peer and what was wrong.
class Link {
 public:
  /// @param peer  for messages: "process 3"
  explicit Link(UniqueDescriptor socket, std::string peer = "another process",
                KeptBytes& kept = KeptBytes::of_this_process());
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { kept_.give_back(kept_here_); }

  /// `data` stays unchanged until the message is done or withdrawn. @throws TransportError  nothing was taken over
  Sending send(Key key, const void* data, std::size_t bytes);
  /// Sends a copy of the data, and forgets it.
  void post(Key key, const void* data, std::size_t bytes);
  Receiving recv(Key key, void* data, std::size_t bytes, Length length = Length::kExact);
  /// A whole message that has not been asked for, if there is one.
  std::optional<std::vector<std::byte>> take(Key key);

  /// True if a message that has not been asked for has arrived, under a key that equals `key` in the bits of `mask`.
  bool has_arrived(Key key, Key mask);
  /// True if everything has been handed to the socket, or can not be any more.
  bool is_flushed();
  /// True if the other end has closed the connection and all that it sent before has been read.
  bool is_closed();
  int descriptor() const { return socket_.get(); }
  /// In a forked child: lets go of the socket, and of it only. The link is of no use any more.
  void drop_socket() { const UniqueDescriptor dropped(std::move(socket_)); }

 private:
  friend class Sending;
  friend class Receiving;
  /// A message that has arrived, or its beginning has.
  struct Arrival {
    std::size_t bytes = 0;
    std::size_t came = 0;
    std::vector<std::byte> kept;               // until it is asked for
    std::shared_ptr<Receiving::Message> into;  // the transfer that asked for it
  };
  /// The messages of one key. Only the last of `arrived` can be incomplete, and only the first can have been asked for.
  struct Inbox {
    std::deque<Arrival> arrived;
    std::deque<std::shared_ptr<Receiving::Message>> wanted;
  };

  void enqueue(const std::shared_ptr<Sending::Message>& message);
  void move();  ///< what the socket takes and has
  void flush();
  void drain();
  bool send_packets(Sending::Message& message);
  void accept(const Packet& packet);
  void match(Inbox& inbox);
  void put(Arrival& arrival, std::size_t offset, std::span<const std::byte> payload);
  void keep(std::size_t bytes);
  void let_go(std::size_t bytes);

  UniqueDescriptor socket_;
  const std::string peer_;
  KeptBytes& kept_;
  std::mutex mutex_;  // guards what follows
  std::deque<std::shared_ptr<Sending::Message>> outgoing_;
  std::unordered_map<Key, Inbox> inboxes_;
  std::vector<std::byte> packet_;
  std::size_t kept_here_ = 0;
  bool is_closed_ = false;
  std::string violation_;  // how the peer broke the protocol, for messages; empty: it has not
};

}  // namespace farandole::local
