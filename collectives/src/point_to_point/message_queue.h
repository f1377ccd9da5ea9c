// SPDX-License-Identifier: Apache-2.0
// The point-to-point messages of one communicator.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "farandole/core/buffer.h"
#include "farandole/internal/stall_monitor.h"
#include "operation/group.h"
#include "operation/work_state.h"
#include "point_to_point/message.h"
#include "point_to_point/message_hub.h"

namespace farandole {

/// Sends and receives the messages of host memory of one communicator through the rank's MessageHub, and waits for
/// them. A communicator makes its queue for its first message. Thread-safe.
class MessageQueue final : public WorkOwner, public std::enable_shared_from_this<MessageQueue> {
 public:
  /// @throws Error  the fault of the job
  explicit MessageQueue(const Group& group);

  /// Sends a message and blocks until `values` may be changed: a short message is copied.
  /// @throws InvalidArgument  nothing was sent   @throws Error  the send has failed
  void send(const ConstBufferView& values, int target, int tag, MessageSpace space = MessageSpace::kProgram);
  /// Starts a send. @throws InvalidArgument  nothing was sent   @throws Error  the fault of the job
  std::shared_ptr<Work::State> start_send(const ConstBufferView& values, int target, int tag);
  /// Receives a message, and returns the rank of its sender. @throws  as `send`
  int recv(const BufferView& values, int source, int tag, MessageSpace space = MessageSpace::kProgram);
  /// Starts a receive. @throws  as `start_send`
  std::shared_ptr<Work::State> start_recv(const BufferView& values, int source, int tag);

  /// @throws InvalidArgument  `message`, in host memory, can be neither sent nor received   @param call  for the error
  void check(std::string_view call, const PeerMessage& message) const;

  void wait(const Work::State& state) override;
  void wait_on(const Work::State& state, StreamView stream) override;
  void poll() override;
  void give_up() override;
  bool has_pending() const { return hub_->last_pending(*this) != nullptr; }
  /// Blocks until nothing is pending. Short messages that have not left this process stay with the hub.
  void close();

 private:
  std::shared_ptr<Message> submit(const MessageSpec& spec, const void* input, void* output);
  /// Warns that a message makes no progress, or fails the job, if it is time to.
  void check_stall(StallMonitor& stall, const Message& message);

  const Group group_;  // a copy: a Work may live longer than the communicator
  const std::string label_ = group_.describe();
  const std::shared_ptr<MessageHub> hub_;
  std::atomic<Clock::time_point> next_health_check_{Clock::time_point()};  // used by poll()
};

}  // namespace farandole
