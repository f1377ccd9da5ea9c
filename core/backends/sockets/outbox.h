// SPDX-License-Identifier: Apache-2.0
// Messages on their way into a socket.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "sockets/frame.h"

namespace farandole::sockets {

/// A message on its way out.
struct PostedSend {
  Key key = 0;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t framed_bytes = 0;  ///< bytes that are in frames already
  bool is_done = false;          ///< the socket has all of it
  std::vector<std::byte> kept;   ///< what `data` shows, where the link owns it
};

/// Cuts messages into frames and says which bytes the socket should have next. Keys take turns, a frame each, so that a
/// short message does not wait for a long one of another key. Touches no socket. Not thread-safe.
class Outbox {
 public:
  /// @param frame_bytes  the most payload of a frame, up to kFrameBytes
  explicit Outbox(std::size_t frame_bytes = kFrameBytes) : frame_bytes_(frame_bytes) {}

  bool is_empty() const { return frames_.empty() && queues_.empty(); }
  void add(const std::shared_ptr<PostedSend>& message);
  /// The message's data are not read any more: the frame that the socket has a part of is completed from a copy. If the
  /// peer knows of the message, a frame says that no more of it comes.
  /// @throws std::bad_alloc  and the message has not been withdrawn
  void withdraw(const std::shared_ptr<PostedSend>& message);

  /// What the socket should have next; about a frame's length at most. The bytes are valid until another call.
  std::span<iovec> gather();
  /// The socket has taken the first `bytes` of what was gathered.
  void advance(std::size_t bytes);

 private:
  struct Frame {
    FrameHeader header;
    const std::byte* payload = nullptr;
    std::size_t written = 0;  ///< bytes of header and payload that the socket has
    std::shared_ptr<PostedSend> message;

    std::size_t bytes() const { return sizeof header + header.payload_bytes; }
  };
  /// Messages of one key of which a part is in no frame yet.
  struct KeyQueue {
    Key key = 0;
    std::list<std::shared_ptr<PostedSend>> messages;
  };

  void add_frame();

  std::size_t frame_bytes_;
  std::deque<Frame> frames_;    ///< made, and not all written; the socket can have a part of the first
  std::list<KeyQueue> queues_;  ///< in the order of their turns
  std::size_t unwritten_ = 0;   ///< bytes of `frames_` that the socket does not have
  std::vector<iovec> segments_;
};

}  // namespace farandole::sockets
