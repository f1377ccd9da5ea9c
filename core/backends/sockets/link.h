// SPDX-License-Identifier: Apache-2.0
// Messages to and from one other process, over a socket.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/dtype.h"
#include "sockets/descriptor.h"
#include "sockets/frame.h"
#include "sockets/inbox.h"
#include "sockets/kept_bytes.h"
#include "sockets/outbox.h"

namespace farandole::sockets {

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
  Sending(Link& link, std::shared_ptr<PostedSend> message) : link_(link), message_(std::move(message)) {}
  Link& link_;
  std::shared_ptr<PostedSend> message_;  // null: done, or moved from
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
  Receiving(Link& link, std::shared_ptr<PostedReceive> message) : link_(link), message_(std::move(message)) {}
  Link& link_;
  std::shared_ptr<PostedReceive> message_;  // null: done, or moved from
  std::size_t bytes_ = 0;
};

/// A connection of two processes, on a stream socket (AF_UNIX or TCP) that does not block. Messages are cut into
/// frames, so that a short one does not wait for a long one of another key, and one that is withdrawn half-way does no
/// harm to the rest. What arrives before it is asked for is kept, as far as `KeptBytes` allows. Nothing blocks, and the
/// link has no thread: each call moves what the socket takes and has. Thread-safe.
///
/// A peer that sends what no link sends, or more than may be kept, ends the connection: whichever call asks the link
/// for anything but sending raises a TransportError from then on that names the peer and what was wrong.
class Link {
 public:
  /// @param peer  for messages: "process 3"
  /// @param socket  none: messages wait until `attach` brings one
  /// @param frame_bytes  the most payload of a frame that this end sends, up to kFrameBytes
  explicit Link(UniqueDescriptor socket, std::string peer = "another process",
                KeptBytes& kept = KeptBytes::of_this_process(), std::size_t frame_bytes = kFrameBytes);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Gives a link that was made without a socket its own, and sends what has waited for it. Once.
  void attach(UniqueDescriptor socket);
  /// `data` stays unchanged until the message is done or withdrawn. @throws TransportError  nothing was taken over
  Sending send(Key key, const void* data, std::size_t bytes);
  /// Sends a copy of the data, and forgets it. @throws TransportError  nothing was taken over
  void post(Key key, const void* data, std::size_t bytes);
  Receiving recv(Key key, void* data, std::size_t bytes, Length length = Length::kExact);
  /// Reduces what arrives while it arrives: out[i] = operand[i] op incoming[i], for `count` elements. `out` may be
  /// `operand`; a message that is withdrawn leaves `out` partly written.
  Receiving recv_reduce(Key key, void* out, const void* operand, std::size_t count, DType dtype, ReduceOp op);
  /// A whole message that has not been asked for, if there is one.
  std::optional<std::vector<std::byte>> take(Key key);

  /// True if a message that has not been asked for has arrived, under a key that equals `key` in the bits of `mask`.
  bool has_arrived(Key key, Key mask);
  /// True if everything has been handed to the socket, or can not be any more.
  bool is_flushed();
  /// Hands to the socket what it takes of the messages that wait for it; costs nothing where none waits. For owners of
  /// links whose ranks may be waiting for something else. @throws TransportError
  void send_waiting();
  /// True if the connection has ended and all that came before has been read.
  bool is_closed();
  /// How the connection ended, for messages: "it closed the connection", "it acknowledged nothing for too long". Empty
  /// until `is_closed`.
  std::string end_reason();
  /// True if it ended because the peer's host acknowledged nothing, which does not say that the peer has ended.
  bool has_timed_out();
  int descriptor() const { return socket_.get(); }
  /// In a forked child: lets go of the socket, and of it only. The link is of no use any more.
  void drop_socket() { const UniqueDescriptor dropped(std::move(socket_)); }

 private:
  friend class Sending;
  friend class Receiving;

  void set_socket_options();
  void enqueue(const std::shared_ptr<PostedSend>& message);
  void withdraw(const std::shared_ptr<PostedSend>& message) noexcept;
  Receiving post_receive(std::shared_ptr<PostedReceive> message);
  /// A rank that receives leaves what comes after all that is asked for in the socket: there it takes no memory of this
  /// process, and is copied once, when it is asked for. A rank that is kept from sending, or that looks for what has
  /// arrived, reads all.
  enum class ReadMode { kAll, kPosted };
  void make_progress(ReadMode mode = ReadMode::kAll);  ///< what the socket takes and has
  void flush();
  void write_messages();
  void drain(ReadMode mode);
  std::size_t receive(bool& has_more);
  void parse_frames(std::span<const std::byte> bytes);
  void record_end(int error);

  UniqueDescriptor socket_;
  const std::string peer_;
  std::atomic<bool> has_unsent_{false};  ///< messages for a socket that was full
  std::mutex mutex_;                     // guards what follows
  Outbox outbox_;
  Inbox inbox_;
  std::vector<std::byte> read_ahead_;  ///< frames that are read before it is known whose they are
  std::size_t header_bytes_ = 0;       ///< at its beginning: of a header that has not all come
  bool is_closed_ = false;
  std::string end_reason_;
  bool has_timed_out_ = false;  ///< that is why
  std::string violation_;       ///< how the peer broke the protocol, for messages; empty: it has not
};

}  // namespace farandole::sockets
