// SPDX-License-Identifier: Apache-2.0
#include "sockets/outbox.h"

#include <algorithm>

namespace farandole::sockets {
namespace {

// Maximum number of frames that one system call writes.
constexpr std::size_t kMaxFramesPerCall = 32;

/// The kernel only reads the data, so the const_cast is safe.
iovec make_iovec(const void* data, std::size_t bytes) {
  return {const_cast<void*>(data), bytes};
}

}  // namespace

void Outbox::add(const std::shared_ptr<PostedSend>& message) {
  auto queue =
      std::find_if(queues_.begin(), queues_.end(), [&](const KeyQueue& each) { return each.key == message->key; });
  if (queue == queues_.end()) queue = queues_.insert(queue, {message->key, {}});
  queue->messages.push_back(message);
}

void Outbox::withdraw(const std::shared_ptr<PostedSend>& message) {
  if (!frames_.empty() && frames_.front().message == message && frames_.front().written > 0) {
    Frame& partly_written = frames_.front();
    std::vector<std::byte> rest(partly_written.payload, partly_written.payload + partly_written.header.payload_bytes);
    message->kept = std::move(rest);
    partly_written.payload = message->kept.data();
  }
  std::erase_if(frames_, [&](const Frame& frame) {
    if (frame.message != message || frame.written > 0) return false;
    unwritten_ -= frame.bytes();
    message->framed_bytes -= frame.header.payload_bytes;
    return true;
  });
  for (KeyQueue& queue : queues_) queue.messages.remove(message);
  std::erase_if(queues_, [](const KeyQueue& queue) { return queue.messages.empty(); });
  if (message->framed_bytes > 0 && message->framed_bytes < message->bytes) {
    frames_.push_back({{message->key, message->bytes, message->framed_bytes, 0}, nullptr, 0, message});
    unwritten_ += sizeof(FrameHeader);
  }
}

std::span<iovec> Outbox::gather() {
  while (!queues_.empty() && unwritten_ < frame_bytes_ && frames_.size() < kMaxFramesPerCall) add_frame();
  segments_.clear();
  for (const Frame& frame : frames_) {
    const std::size_t header_done = std::min(frame.written, sizeof frame.header);
    const std::size_t payload_done = frame.written - header_done;
    if (header_done < sizeof frame.header) {
      segments_.push_back(make_iovec(reinterpret_cast<const std::byte*>(&frame.header) + header_done,
                                     sizeof frame.header - header_done));
    }
    if (payload_done < frame.header.payload_bytes) {
      segments_.push_back(make_iovec(frame.payload + payload_done, frame.header.payload_bytes - payload_done));
    }
  }
  return segments_;
}

/// Cuts the next frame from the first message of the first key, and moves this key to the end of the round.
void Outbox::add_frame() {
  KeyQueue& queue = queues_.front();
  const std::shared_ptr<PostedSend>& message = queue.messages.front();
  const std::size_t bytes = std::min(frame_bytes_, message->bytes - message->framed_bytes);
  frames_.push_back(
      {{queue.key, message->bytes, message->framed_bytes, bytes}, message->data + message->framed_bytes, 0, message});
  unwritten_ += frames_.back().bytes();
  message->framed_bytes += bytes;
  if (message->framed_bytes == message->bytes) queue.messages.pop_front();
  if (queue.messages.empty()) {
    queues_.pop_front();
  } else {
    queues_.splice(queues_.end(), queues_, queues_.begin());
  }
}

void Outbox::advance(std::size_t bytes) {
  unwritten_ -= bytes;
  while (bytes > 0) {
    Frame& frame = frames_.front();
    const std::size_t taken = std::min(bytes, frame.bytes() - frame.written);
    frame.written += taken;
    bytes -= taken;
    if (frame.written < frame.bytes()) return;
    frame.message->is_done = frame.header.offset + frame.header.payload_bytes == frame.header.message_bytes;
    frames_.pop_front();
  }
}

}  // namespace farandole::sockets
