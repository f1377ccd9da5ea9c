// SPDX-License-Identifier: Apache-2.0
// Receive side of a link: matches incoming frames with posted receives.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "farandole/core/dtype.h"
#include "farandole/internal/limits.h"
#include "sockets/frame.h"

namespace farandole::sockets {

/// Budget for unexpected messages, i.e. messages that arrive before a receive is posted, which the process must buffer.
/// A link whose peer exceeds the budget fails, so a faulty peer cannot exhaust this process's memory. Thread-safe.
class KeptBytes {
 public:
  explicit KeptBytes(std::size_t max_bytes) : max_bytes_(max_bytes) {}
  KeptBytes(const KeptBytes&) = delete;
  KeptBytes& operator=(const KeptBytes&) = delete;

  /// Process-wide budget, shared by all links: half of the memory that the process may use.
  static KeptBytes& of_this_process() {
    static KeptBytes all(static_cast<std::size_t>(process_limits().memory_bytes / 2));
    return all;
  }

  std::size_t max_bytes() const { return max_bytes_; }
  /// Charges `bytes`. Returns false, and charges nothing, if the total would exceed `max_bytes`.
  bool take(std::size_t bytes) {
    if (bytes <= max_bytes_ && bytes_.fetch_add(bytes, std::memory_order_relaxed) <= max_bytes_ - bytes) return true;
    if (bytes <= max_bytes_) give_back(bytes);
    return false;
  }
  void give_back(std::size_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  const std::size_t max_bytes_;
  std::atomic<std::size_t> bytes_{0};
};

/// Length that a receive accepts: exactly the posted length, or any length up to the posted length.
enum class Length { kExact, kAtMost };

/// Reduction of an arriving message: out[i] = operand[i] op incoming[i].
struct Reduction {
  const std::byte* operand = nullptr;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  std::array<std::byte, 8> partial_element{};  ///< first bytes of an element whose other bytes have not arrived
};

/// A posted receive.
struct PostedReceive {
  Key key = 0;
  std::byte* data = nullptr;
  std::size_t expected = 0;
  Length length = Length::kExact;
  std::optional<Reduction> reduction;
  std::size_t message_bytes = 0;  ///< length of the matched message; 0 until the message begins to arrive
  bool is_done = false;
  bool is_withdrawn = false;  ///< the receiver has cancelled the receive, and `data` may be freed: payload is discarded

  bool fits(std::size_t bytes) const { return bytes == expected || (length == Length::kAtMost && bytes < expected); }
};

/// Matches messages with posted receives, in order per key, and writes the payload straight into the memory of the
/// receive. Unexpected messages are buffered within the `KeptBytes` budget, and copied when a receive is posted.
///
/// The owner reads the socket. For each frame, the owner calls `begin_frame(header)`. Until `frame_left()` is 0, the
/// owner then either reads payload into `target()` and calls `filled()`, or passes payload that was read elsewhere to
/// `put()`. Not thread-safe.
class Inbox {
 public:
  explicit Inbox(KeptBytes& kept) : kept_(kept) {}
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;
  ~Inbox() { kept_.give_back(charged_bytes_); }

  /// Posts a receive. Messages of a key match receives of the same key in order.
  void post_receive(const std::shared_ptr<PostedReceive>& receive);
  /// Cancels a receive: `data` is no longer written. If the matching message has begun to arrive, the message is
  /// discarded.
  void withdraw(const std::shared_ptr<PostedReceive>& receive);
  /// Removes and returns the first complete message of `key` for which no receive was posted; empty if there is none.
  std::optional<std::vector<std::byte>> take(Key key);
  /// True if a message without a posted receive has begun to arrive, with a key that equals `key` in the bits of
  /// `mask`.
  bool has_arrived(Key key, Key mask) const;

  /// True if a posted receive is incomplete and not withdrawn.
  bool has_posted_receives() const { return incomplete_receives_ > 0; }
  /// True if a message has arrived in part.
  bool has_partial_message() const;

  /// Begins the next frame. The previous frame must be complete.
  /// @throws TransportError  no link sends such a header, or the message exceeds the budget
  void begin_frame(const FrameHeader& header);
  /// Number of payload bytes of the current frame that have not arrived.
  std::size_t frame_left() const { return frame_left_; }
  /// Returns the memory for the next payload bytes, 1 to `max_bytes` bytes long. @param max_bytes  1 … frame_left()
  std::span<std::byte> target(std::size_t max_bytes);
  /// Reports that the first `bytes` of the target have been filled.
  void filled(std::size_t bytes);
  /// Copies payload that was read elsewhere; at most frame_left() bytes.
  void put(std::span<const std::byte> payload);

 private:
  /// A message that has arrived, completely or in part.
  struct Arrival {
    std::size_t bytes = 0;
    std::size_t received = 0;
    std::size_t charged_bytes = 0;  ///< payload bytes charged to the budget
    std::vector<std::byte> kept;  ///< payload received before a receive was posted, followed by room for the next read
    std::shared_ptr<PostedReceive> receive;  ///< the matching receive; null while there is none
  };
  /// Messages and receives of one key, in order. Only the last element of `arrived` can be incomplete, and only the
  /// first can have a receive.
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
  std::size_t incomplete_receives_ = 0;  ///< posted receives that are incomplete and not withdrawn
  std::unordered_map<Key, KeyQueue> queues_;
  KeyQueue* frame_queue_ = nullptr;  ///< queue of the current frame, whose message is the last of `arrived`
  std::size_t frame_left_ = 0;
  std::vector<std::byte> scratch_;  ///< payload to reduce or to discard (withdrawn receive, wrong length)
};

}  // namespace farandole::sockets
