// SPDX-License-Identifier: Apache-2.0
#include "sockets/link.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "farandole/core/error.h"

namespace farandole::sockets {
namespace {

// Size of the read-ahead buffer. Short messages pass through the buffer; so does the beginning of a long message.
constexpr std::size_t kReadAheadBytes = 16 * 1024;
// Limits of the bytes that one call reads and sends, so that a call returns even if the peer is as fast as this
// process. With a limit of 1 MiB for sends, 64 MiB in each direction took 6 % longer.
constexpr std::size_t kMaxReadPerCall = std::size_t{1} << 20;
constexpr std::size_t kMaxSentPerCall = std::size_t{8} << 20;
// Limit of the bytes that TCP accepts before sending them; a short message waits behind these bytes.
constexpr int kUnsentBytes = 256 * 1024;

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS;
}

/// True if the error ends the connection; false if this process used the socket wrongly.
bool is_end_of_connection(int error) {
  return error == EPIPE || error == ECONNRESET || error == ECONNABORTED || error == ETIMEDOUT ||
         error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN;
}

std::string error_text(int error) {
  return std::generic_category().message(error);
}

}  // namespace

Sending::~Sending() {
  if (!message_) return;
  const std::lock_guard lock(link_.mutex_);
  link_.withdraw(message_);
}

bool Sending::test() {
  if (!message_) return true;
  const std::lock_guard lock(link_.mutex_);
  if (!message_->is_done) link_.make_progress();
  if (!message_->is_done) return false;
  message_.reset();
  return true;
}

Receiving::~Receiving() {
  if (!message_) return;
  const std::lock_guard lock(link_.mutex_);
  link_.inbox_.withdraw(message_);
}

bool Receiving::test() {
  if (!message_) return true;
  const std::lock_guard lock(link_.mutex_);
  if (!message_->is_done) link_.make_progress(Link::ReadMode::kPosted);
  if (!message_->is_done) return false;
  bytes_ = message_->message_bytes;
  message_.reset();
  return true;
}

Link::Link(UniqueDescriptor socket, std::string peer, KeptBytes& kept, std::size_t frame_bytes)
    : socket_(std::move(socket)),
      peer_(std::move(peer)),
      outbox_(frame_bytes),
      inbox_(kept),
      read_ahead_(kReadAheadBytes) {
  set_socket_options();
}

void Link::set_socket_options() {
  // Best effort: Unix sockets have neither option, and need neither.
  const int yes = 1;
  (void)setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  (void)setsockopt(socket_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes, sizeof kUnsentBytes);
}

void Link::attach(UniqueDescriptor socket) {
  const std::lock_guard lock(mutex_);
  socket_ = std::move(socket);
  set_socket_options();
  // Send now: the rank that posted these messages may be waiting for another peer and never call `test` on this link
  // again.
  flush();
}

Sending Link::send(Key key, const void* data, std::size_t bytes) {
  auto message = std::make_shared<PostedSend>();
  message->key = key;
  message->data = static_cast<const std::byte*>(data);
  message->bytes = bytes;
  const std::lock_guard lock(mutex_);
  enqueue(message);
  return {*this, std::move(message)};
}

void Link::post(Key key, const void* data, std::size_t bytes) {
  auto message = std::make_shared<PostedSend>();
  const auto* begin = static_cast<const std::byte*>(data);
  message->key = key;
  message->kept.assign(begin, begin + bytes);
  message->data = message->kept.data();
  message->bytes = bytes;
  const std::lock_guard lock(mutex_);
  enqueue(message);
}

/// Queues the message and sends. If sending throws, the message is withdrawn: the caller sees the exception, and may
/// free the data.
void Link::enqueue(const std::shared_ptr<PostedSend>& message) {
  outbox_.add(message);
  try {
    flush();
  } catch (...) {
    withdraw(message);
    throw;
  }
}

/// Withdraws a send. Completing a partly sent frame needs a copy of its rest; if there is no memory for the copy, shuts
/// the connection down, because the peer could not parse what follows.
void Link::withdraw(const std::shared_ptr<PostedSend>& message) noexcept {
  try {
    outbox_.withdraw(message);
  } catch (const std::bad_alloc&) {
    (void)shutdown(socket_.get(), SHUT_RDWR);
    outbox_ = Outbox();  // drops all messages; nothing more is sent
  }
}

Receiving Link::recv(Key key, void* data, std::size_t bytes, Length length) {
  auto message = std::make_shared<PostedReceive>();
  message->key = key;
  message->data = static_cast<std::byte*>(data);
  message->expected = bytes;
  message->length = length;
  return post_receive(std::move(message));
}

Receiving Link::recv_reduce(Key key, void* out, const void* operand, std::size_t count, DType dtype, ReduceOp op) {
  auto message = std::make_shared<PostedReceive>();
  message->key = key;
  message->data = static_cast<std::byte*>(out);
  message->expected = count * size_in_bytes(dtype);
  message->reduction = Reduction{static_cast<const std::byte*>(operand), dtype, op, {}};
  return post_receive(std::move(message));
}

Receiving Link::post_receive(std::shared_ptr<PostedReceive> message) {
  const std::lock_guard lock(mutex_);
  inbox_.post_receive(message);
  return {*this, std::move(message)};
}

std::optional<std::vector<std::byte>> Link::take(Key key) {
  const std::lock_guard lock(mutex_);
  make_progress();
  return inbox_.take(key);
}

bool Link::has_arrived(Key key, Key mask) {
  const std::lock_guard lock(mutex_);
  make_progress();
  return inbox_.has_arrived(key, mask);
}

bool Link::is_flushed() {
  const std::lock_guard lock(mutex_);
  flush();
  if (violation_.empty()) drain(ReadMode::kAll);
  return is_closed_ || outbox_.is_empty();
}

bool Link::is_closed() {
  const std::lock_guard lock(mutex_);
  make_progress();
  return is_closed_;
}

bool Link::has_timed_out() {
  const std::lock_guard lock(mutex_);
  return is_closed_ && has_timed_out_;
}

std::string Link::end_reason() {
  const std::lock_guard lock(mutex_);
  return is_closed_ ? end_reason_ : std::string();
}

void Link::make_progress(ReadMode mode) {
  flush();
  drain(mode);
}

void Link::send_waiting() {
  if (!has_unsent_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  flush();
}

void Link::flush() {
  if (!socket_) return;
  write_messages();
  has_unsent_.store(!outbox_.is_empty() && end_reason_.empty(), std::memory_order_relaxed);
}

void Link::write_messages() {
  for (std::size_t written = 0; !outbox_.is_empty() && written < kMaxSentPerCall;) {
    const auto parts = outbox_.gather();
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (would_block(errno)) return;
      // Messages that have arrived are still read. The liveness checks find out which process died.
      if (is_end_of_connection(errno)) return record_end(errno);
      throw TransportError(fmt::format("sending to {} failed: {}", peer_, error_text(errno)));
    }
    outbox_.advance(static_cast<std::size_t>(sent));
    written += static_cast<std::size_t>(sent);
  }
}

void Link::drain(ReadMode mode) {
  if (!violation_.empty()) throw TransportError(violation_);
  bool has_more = static_cast<bool>(socket_);
  for (std::size_t read = 0; has_more && !is_closed_ && read < kMaxReadPerCall;) {
    if (mode == ReadMode::kPosted && !inbox_.has_posted_receives()) return;
    read += receive(has_more);
  }
}

/// Reads once: payload of the current frame into the memory of its receive, and the bytes that follow into the
/// read-ahead buffer. @param has_more  set to false if the socket had fewer bytes than requested
std::size_t Link::receive(bool& has_more) {
  const std::span<std::byte> target =
      inbox_.frame_left() > 0 ? inbox_.target(inbox_.frame_left()) : std::span<std::byte>();
  const std::span<std::byte> ahead = std::span(read_ahead_).subspan(header_bytes_);
  std::array<iovec, 2> parts{iovec{target.data(), target.size()}, iovec{ahead.data(), ahead.size()}};
  const bool is_rest_of_frame = target.size() == inbox_.frame_left();
  const std::size_t asked = target.size() + (is_rest_of_frame ? ahead.size() : 0);
  const ssize_t got = readv(socket_.get(), parts.data(), is_rest_of_frame ? 2 : 1);
  // The kernel reports an error only once, and on some sockets before data that was sent earlier: record the end of the
  // connection, and continue to read.
  if (got < 0 && is_end_of_connection(errno)) return record_end(errno), 0;
  if (got < 0) {
    has_more = false;
    if (would_block(errno)) return 0;
    throw TransportError(fmt::format("receiving from {} failed: {}", peer_, error_text(errno)));
  }
  const auto bytes = static_cast<std::size_t>(got);
  has_more = bytes == asked;
  if (bytes == 0) return record_end(0), 0;
  const std::size_t target_bytes = std::min(bytes, target.size());
  try {
    if (target_bytes > 0) inbox_.filled(target_bytes);
    parse_frames(std::span(read_ahead_).first(header_bytes_ + bytes - target_bytes));
  } catch (const TransportError& error) {
    violation_ = fmt::format("{} has sent what no process of this job sends: {}", peer_, error.message());
    end_reason_ = violation_;
    is_closed_ = true;
    throw TransportError(violation_);
  }
  return bytes;
}

/// Processes frames at the beginning of the read-ahead buffer; the last frame may be incomplete.
void Link::parse_frames(std::span<const std::byte> bytes) {
  for (;;) {
    const auto payload = bytes.first(std::min(bytes.size(), inbox_.frame_left()));
    inbox_.put(payload);
    bytes = bytes.subspan(payload.size());
    if (bytes.size() < sizeof(FrameHeader)) break;
    inbox_.begin_frame(parse_frame_header(bytes.first<sizeof(FrameHeader)>()));
    bytes = bytes.subspan(sizeof(FrameHeader));
  }
  header_bytes_ = bytes.size();
  std::memmove(read_ahead_.data(), bytes.data(), bytes.size());
}

/// Records how the connection ended. @param error  reported by the socket; 0: end of the stream
void Link::record_end(int error) {
  if (error == 0) is_closed_ = true;
  if (!end_reason_.empty()) return;
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH) {
    has_timed_out_ = true;
    end_reason_ = fmt::format("it acknowledged nothing for too long ({})", error_text(error));
  } else if (error != 0 && error != EPIPE) {
    end_reason_ = fmt::format("it broke the connection off ({})", error_text(error));
  } else {
    const bool is_partial = header_bytes_ > 0 || inbox_.has_partial_message();
    end_reason_ = is_partial ? "it closed the connection in the middle of a message" : "it closed the connection";
  }
}

}  // namespace farandole::sockets
