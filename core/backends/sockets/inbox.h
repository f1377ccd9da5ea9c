// SPDX-License-Identifier: Apache-2.0
// Messages on their way out of a socket.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "farandole/core/dtype.h"
#include "sockets/frame.h"
#include "sockets/kept_bytes.h"

namespace farandole::sockets {

/// How long a message may be that is received into some memory.
enum class Length { kExact, kAtMost };

/// A reduction of what arrives: out[i] = operand[i] op incoming[i].
struct Reduction {
  const std::byte* operand = nullptr;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  std::array<std::byte, 8> partial_element{};  ///< the beginning of an element whose rest has not come
};

/// A message that is waited for.
struct PostedReceive {
  Key key = 0;
  std::byte* data = nullptr;
  std::size_t expected = 0;
  Length length = Length::kExact;
  std::optional<Reduction> reduction;
  std::size_t message_bytes = 0;  ///< once it has begun to arrive
  bool is_done = false;
  bool is_withdrawn = false;  ///< its memory may be gone

  bool fits(std::size_t bytes) const { return bytes == expected || (length == Length::kAtMost && bytes < expected); }
};

/// Puts the payload of frames where it is wanted, and keeps, as far as `KeptBytes` allows, what is not wanted yet.
/// Touches no socket. Not thread-safe.
class Inbox {
 public:
  explicit Inbox(KeptBytes& kept) : kept_(kept) {}
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;
  ~Inbox() { kept_.give_back(charged_bytes_); }

  void post_receive(const std::shared_ptr<PostedReceive>& message);
  /// The message's memory is not written any more.
  void withdraw(const std::shared_ptr<PostedReceive>& message);
  /// A whole message that is not wanted, if there is one.
  std::optional<std::vector<std::byte>> take(Key key);
  /// True if a message that is not wanted has begun to arrive, under a key that equals `key` in the bits of `mask`.
  bool has_arrived(Key key, Key mask) const;

  /// True if a transfer waits for a message that has not all come.
  bool has_posted_receives() const { return incomplete_receives_ > 0; }
  /// True if the beginning of a message has arrived, and not all of it.
  bool has_partial_message() const;

  /// A header has come; the last frame is complete.
  /// @throws TransportError  no link sends such a header, or what it announces cannot be kept
  void begin_frame(const FrameHeader& header);
  /// Bytes of the frame's payload that have not come.
  std::size_t frame_left() const { return frame_left_; }
  /// Where the next bytes of the payload may be read to: 1 … `most` bytes. @param most  1 … frame_left()
  std::span<std::byte> target(std::size_t max_bytes);
  /// The first `bytes` of the target have been filled.
  void filled(std::size_t bytes);
  /// Payload that was read to elsewhere, at most frame_left() bytes.
  void put(std::span<const std::byte> payload);

 private:
  /// A message that has arrived, or its beginning has.
  struct Arrival {
    std::size_t bytes = 0;
    std::size_t received = 0;
    std::size_t charged_bytes = 0;           ///< of its bytes, by KeptBytes
    std::vector<std::byte> kept;             ///< until it is wanted: what came, and room for what is being read
    std::shared_ptr<PostedReceive> receive;  ///< the transfer that wants it
  };
  /// The messages of one key. Only the last of `arrived` can be incomplete, and only the first can be wanted.
  struct KeyQueue {
    std::deque<Arrival> arrived;
    std::deque<std::shared_ptr<PostedReceive>> posted;
  };

  void drop_withdrawn(KeyQueue& queue);
  void match(KeyQueue& queue);
  void deliver_kept(Arrival& arrival);
  void charge(std::size_t bytes);
  void release(std::size_t bytes);
  std::byte* scratch();

  KeptBytes& kept_;
  std::size_t charged_bytes_ = 0;
  std::size_t incomplete_receives_ = 0;  ///< transfers that are not done
  std::unordered_map<Key, KeyQueue> queues_;
  KeyQueue* frame_queue_ = nullptr;  ///< of the frame; its last arrival is the frame's message
  std::size_t frame_left_ = 0;
  std::vector<std::byte> scratch_;  ///< payload on its way into a reduction, or that nobody wants any more
};

}  // namespace farandole::sockets
