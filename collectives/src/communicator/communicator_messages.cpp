// SPDX-License-Identifier: Apache-2.0
// Communicator: point-to-point messages.
#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "communicator/communicator_state.h"
#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/internal/first_error.h"

namespace farandole {
namespace {

/// @throws InvalidArgument  a message of host memory has a stream
void refuse_stream(std::string_view call, StreamView stream) {
  if (!stream.valid()) return;
  throw InvalidArgument(
      fmt::format("{}: the values are in host memory, and a stream is passed, which only messages of "
                  "device memory have",
                  call));
}

/// True if messages are in device memory. @throws InvalidArgument  some are, and others are in host memory
bool are_on_device(std::span<const PeerMessage> messages) {
  const auto is_on_device = [](const PeerMessage& message) { return !message.values.space.is_host(); };
  const auto count = std::count_if(messages.begin(), messages.end(), is_on_device);
  if (count == 0 || static_cast<std::size_t>(count) == messages.size()) return count != 0;
  throw InvalidArgument(
      fmt::format("exchange: {} of {} messages are in device memory; expected all or none: make two lists of them",
                  count, messages.size()));
}

}  // namespace

void Communicator::send(ConstBufferView values, int target, int tag, StreamView stream) {
  if (!values.space.is_host()) {
    return state().device_messages().run(PeerMessage::send(values, target, tag), stream);
  }
  refuse_stream("send", stream);
  state().messages().send(values, target, tag);
}
Work Communicator::send_async(AsyncInput values, int target, int tag, StreamView stream) {
  const ConstBufferView view = values;
  if (!view.space.is_host()) return state().device_messages().start(PeerMessage::send(view, target, tag), stream);
  refuse_stream("send_async", stream);
  return Work(state().messages().start_send(view, target, tag));
}

int Communicator::recv(BufferView values, int source, int tag, StreamView stream) {
  if (!values.space.is_host()) {
    state().device_messages().run(PeerMessage::recv(values, source, tag), stream);
    return source;
  }
  refuse_stream("recv", stream);
  return state().messages().recv(values, source, tag);
}
Work Communicator::recv_async(BufferView values, int source, int tag, StreamView stream) {
  if (!values.space.is_host()) return state().device_messages().start(PeerMessage::recv(values, source, tag), stream);
  refuse_stream("recv_async", stream);
  return Work(state().messages().start_recv(values, source, tag));
}

void Communicator::exchange(std::span<const PeerMessage> messages, StreamView stream) {
  if (are_on_device(messages)) return state().device_messages().exchange(messages, stream);
  MessageQueue& queue = state().messages();
  if (messages.empty()) return;  // of a rank without peers, with or without a stream
  refuse_stream("exchange", stream);
  for (const PeerMessage& message : messages) queue.check("exchange", message);
  std::vector<Work> works;
  for (const PeerMessage& message : messages) {
    const auto& [direction, values, peer, tag] = message;
    works.push_back(Work(direction == PeerMessage::Direction::kSend ? queue.start_send(values, peer, tag)
                                                                    : queue.start_recv(values, peer, tag)));
  }
  FirstError error;
  for (Work& work : works) error.run([&] { work.wait(); });
  error.check();
}

}  // namespace farandole
