// SPDX-License-Identifier: Apache-2.0
// Connection to one peer process: point-to-point messages over a stream socket.
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
#include "sockets/outbox.h"

namespace farandole::sockets {

class Link;

/// Handle of a posted send. Destroying the handle before the send is done withdraws the message: its data is no longer
/// read.
class Sending {
 public:
  Sending(Sending&&) noexcept = default;
  Sending& operator=(Sending&&) = delete;
  ~Sending();
  /// True once the socket has accepted the whole message. Non-blocking. @throws TransportError
  bool test();

 private:
  friend class Link;
  Sending(Link& link, std::shared_ptr<PostedSend> message) : link_(link), message_(std::move(message)) {}
  Link& link_;
  std::shared_ptr<PostedSend> message_;  // null: done, or moved from
};

/// Handle of a posted receive. Destroying the handle before the receive is done withdraws the receive: its memory is no
/// longer written.
class Receiving {
 public:
  Receiving(Receiving&&) noexcept = default;
  Receiving& operator=(Receiving&&) = delete;
  ~Receiving();
  /// True once the message has arrived. Non-blocking. @throws TransportError
  bool test();
  /// Length of the message, in bytes. If the message does not fit the receive, nothing was written.
  std::size_t bytes() const { return bytes_; }

 private:
  friend class Link;
  Receiving(Link& link, std::shared_ptr<PostedReceive> message) : link_(link), message_(std::move(message)) {}
  Link& link_;
  std::shared_ptr<PostedReceive> message_;  // null: done, or moved from
  std::size_t bytes_ = 0;
};

/// Connection to one peer process over a non-blocking stream socket (AF_UNIX or TCP). Messages are matched by key, in
/// order per key.
///
/// - Framing: messages are cut into frames (FrameHeader), and keys take turns. A short message does not wait for a long
///   message of another key, and a message that is withdrawn half-way does not affect other messages.
/// - Flow control: `Receiving::test` reads only until all posted receives are complete. Further data stays in the
///   socket, whose full buffer slows down a sender that is ahead. Messages that are read before a receive is posted are
///   buffered, within the `KeptBytes` budget.
/// - Progress: the link has no thread. Each call sends and reads as much as the socket allows, up to a limit per call.
/// - Errors: if the peer breaks the protocol, or exceeds the budget, the connection ends. From then on every call that
///   reads the socket (`test`, `take`, `has_arrived`, `is_closed`) throws a TransportError that names the peer and the
///   violation.
///
/// Non-blocking and thread-safe.
class Link {
 public:
  /// @param socket  empty: messages wait until `attach` provides a socket
  /// @param peer  for messages: "process 3"
  /// @param frame_bytes  maximum payload of a frame that this end sends, up to kFrameBytes
  explicit Link(UniqueDescriptor socket, std::string peer = "another process",
                KeptBytes& kept = KeptBytes::of_this_process(), std::size_t frame_bytes = kFrameBytes);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Provides the socket of a link that was made without a socket, and sends the waiting messages. Call once.
  void attach(UniqueDescriptor socket);
  /// Posts a send. `data` must stay unchanged until the message is done or withdrawn.
  /// @throws TransportError  the message was not queued
  Sending send(Key key, const void* data, std::size_t bytes);
  /// Sends a copy of the data; there is no handle to wait for. @throws TransportError  the message was not queued
  void post(Key key, const void* data, std::size_t bytes);
  /// Posts a receive.
  Receiving recv(Key key, void* data, std::size_t bytes, Length length = Length::kExact);
  /// Posts a receive that reduces the message while it arrives: out[i] = operand[i] op incoming[i], for `count`
  /// elements. `out` may be `operand`. If the receive or the message is withdrawn, `out` may be partly written.
  Receiving recv_reduce(Key key, void* out, const void* operand, std::size_t count, DType dtype, ReduceOp op);
  /// Removes and returns the first complete message of `key` for which no receive was posted; empty if there is none.
  std::optional<std::vector<std::byte>> take(Key key);

  /// True if a message without a posted receive has begun to arrive, with a key that equals `key` in the bits of
  /// `mask`.
  bool has_arrived(Key key, Key mask);
  /// True if the socket has accepted all messages, or if the connection has ended.
  bool is_flushed();
  /// Sends waiting messages as far as the socket allows; cheap if none is waiting. The owner of several links calls
  /// this for all of them, because a rank tests only transfers of the peers that it waits for. @throws TransportError
  void send_waiting();
  /// True if the connection has ended and everything that arrived before its end has been read.
  bool is_closed();
  /// Returns how the connection ended, for messages: "it closed the connection", "it acknowledged nothing for too
  /// long". Empty until `is_closed`.
  std::string end_reason();
  /// True if the connection ended because the peer's host acknowledged nothing. The peer itself may still run.
  bool has_timed_out();
  int descriptor() const { return socket_.get(); }
  /// Closes the socket in a forked child, and changes nothing else. The link cannot be used afterwards.
  void drop_socket() { const UniqueDescriptor dropped(std::move(socket_)); }

 private:
  friend class Sending;
  friend class Receiving;

  void set_socket_options();
  void enqueue(const std::shared_ptr<PostedSend>& message);
  void withdraw(const std::shared_ptr<PostedSend>& message) noexcept;
  Receiving post_receive(std::shared_ptr<PostedReceive> message);
  /// kPosted reads only while posted receives are incomplete. Later messages stay in the socket, where they take no
  /// memory of this process, and are copied once, when a receive is posted. kAll reads everything. A rank whose send is
  /// stuck uses kAll, because the peer's sends may be stuck in the same way; so does a rank that looks for unexpected
  /// messages.
  enum class ReadMode { kAll, kPosted };
  void make_progress(ReadMode mode = ReadMode::kAll);  ///< sends and reads as much as the socket allows
  void flush();
  void write_messages();
  void drain(ReadMode mode);
  std::size_t receive(bool& has_more);
  void parse_frames(std::span<const std::byte> bytes);
  void record_end(int error);

  UniqueDescriptor socket_;
  const std::string peer_;
  std::atomic<bool> has_unsent_{false};  ///< messages wait for space in the socket's buffer
  std::mutex mutex_;                     // guards the members below
  Outbox outbox_;
  Inbox inbox_;
  std::vector<std::byte> read_ahead_;  ///< bytes that follow the current frame
  std::size_t header_bytes_ = 0;       ///< bytes of an incomplete header at the beginning of `read_ahead_`
  bool is_closed_ = false;
  std::string end_reason_;
  bool has_timed_out_ = false;  ///< the reason is a timeout
  std::string violation_;       ///< how the peer broke the protocol, for messages; empty if it has not
};

}  // namespace farandole::sockets
