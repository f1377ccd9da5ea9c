// SPDX-License-Identifier: Apache-2.0
// Send side of a link: cuts messages into frames and interleaves them.
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

/// A posted send.
struct PostedSend {
  Key key = 0;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t framed_bytes = 0;  ///< number of bytes that have been put into frames
  bool is_done = false;          ///< the socket has accepted the whole message
  std::vector<std::byte> kept;   ///< memory behind `data` if the link owns a copy
};

/// Queues messages per key, and serves the keys round-robin, one frame each. A short message therefore waits for at
/// most one frame per other key, not for a whole long message. The owner writes `gather()` to the socket and reports
/// progress to `advance()`. Not thread-safe.
class Outbox {
 public:
  /// @param frame_bytes  maximum payload of a frame, up to kFrameBytes
  explicit Outbox(std::size_t frame_bytes = kFrameBytes) : frame_bytes_(frame_bytes) {}

  bool is_empty() const { return frames_.empty() && queues_.empty(); }
  void add(const std::shared_ptr<PostedSend>& message);
  /// Cancels a send; `data` is no longer read. A frame that the socket has accepted in part is completed from a copy.
  /// If frames of the message were sent before, a frame without payload tells the peer that no more frames follow.
  /// @throws std::bad_alloc  the message has not been withdrawn
  void withdraw(const std::shared_ptr<PostedSend>& message);

  /// Returns the bytes to write next, in total about one frame. Valid until the next call of any member.
  std::span<iovec> gather();
  /// Reports that the socket has accepted the first `bytes` of the gathered bytes.
  void advance(std::size_t bytes);

 private:
  struct Frame {
    FrameHeader header;
    const std::byte* payload = nullptr;
    std::size_t written = 0;  ///< bytes of header and payload that the socket has accepted
    std::shared_ptr<PostedSend> message;

    std::size_t bytes() const { return sizeof header + header.payload_bytes; }
  };
  /// Messages of one key that are not completely framed.
  struct KeyQueue {
    Key key = 0;
    std::list<std::shared_ptr<PostedSend>> messages;
  };

  void add_frame();

  std::size_t frame_bytes_;
  std::deque<Frame> frames_;    ///< frames that are not completely written; only the first can be partly written
  std::list<KeyQueue> queues_;  ///< in round-robin order
  std::size_t unwritten_ = 0;   ///< bytes of `frames_` that the socket has not accepted
  std::vector<iovec> segments_;
};

}  // namespace farandole::sockets
