// SPDX-License-Identifier: Apache-2.0
#include "sockets/outbox.h"

#include <algorithm>

namespace farandole::sockets {
namespace {

// Of one system call.
constexpr std::size_t kMaxFrames = 32;

/// The kernel only reads from it.
iovec part(const void* data, std::size_t bytes) {
  return {const_cast<void*>(data), bytes};
}

}  // namespace

void Outbox::add(const std::shared_ptr<Outgoing>& message) {
  auto chain =
      std::find_if(chains_.begin(), chains_.end(), [&](const Chain& each) { return each.key == message->key; });
  if (chain == chains_.end()) chain = chains_.insert(chain, {message->key, {}});
  chain->messages.push_back(message);
}

void Outbox::withdraw(const std::shared_ptr<Outgoing>& message) {
  if (!frames_.empty() && frames_.front().message == message && frames_.front().written > 0) {
    Frame& begun = frames_.front();
    std::vector<std::byte> rest(begun.payload, begun.payload + begun.header.payload_bytes);
    message->kept = std::move(rest);
    begun.payload = message->kept.data();
  }
  std::erase_if(frames_, [&](const Frame& frame) {
    if (frame.message != message || frame.written > 0) return false;
    unwritten_ -= frame.bytes();
    message->framed -= frame.header.payload_bytes;
    return true;
  });
  for (Chain& chain : chains_) chain.messages.remove(message);
  std::erase_if(chains_, [](const Chain& chain) { return chain.messages.empty(); });
  if (message->framed > 0 && message->framed < message->bytes) {
    frames_.push_back({{message->key, message->bytes, message->framed, 0}, nullptr, 0, message});
    unwritten_ += sizeof(FrameHeader);
  }
}

std::span<iovec> Outbox::gather() {
  while (!chains_.empty() && unwritten_ < frame_bytes_ && frames_.size() < kMaxFrames) add_frame();
  parts_.clear();
  for (const Frame& frame : frames_) {
    const std::size_t of_header = std::min(frame.written, sizeof frame.header);
    const std::size_t of_payload = frame.written - of_header;
    if (of_header < sizeof frame.header) {
      parts_.push_back(
          part(reinterpret_cast<const std::byte*>(&frame.header) + of_header, sizeof frame.header - of_header));
    }
    if (of_payload < frame.header.payload_bytes) {
      parts_.push_back(part(frame.payload + of_payload, frame.header.payload_bytes - of_payload));
    }
  }
  return parts_;
}

/// Of the key whose turn it is.
void Outbox::add_frame() {
  Chain& chain = chains_.front();
  const std::shared_ptr<Outgoing>& message = chain.messages.front();
  const std::size_t bytes = std::min(frame_bytes_, message->bytes - message->framed);
  frames_.push_back({{chain.key, message->bytes, message->framed, bytes}, message->data + message->framed, 0, message});
  unwritten_ += frames_.back().bytes();
  message->framed += bytes;
  if (message->framed == message->bytes) chain.messages.pop_front();
  if (chain.messages.empty()) {
    chains_.pop_front();
  } else {
    chains_.splice(chains_.end(), chains_, chains_.begin());
  }
}

void Outbox::advance(std::size_t bytes) {
  unwritten_ -= bytes;
  while (bytes > 0) {
    Frame& frame = frames_.front();
    const std::size_t more = std::min(bytes, frame.bytes() - frame.written);
    frame.written += more;
    bytes -= more;
    if (frame.written < frame.bytes()) return;
    frame.message->is_done = frame.header.offset + frame.header.payload_bytes == frame.header.message_bytes;
    frames_.pop_front();
  }
}

}  // namespace farandole::sockets
