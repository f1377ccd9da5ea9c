// SPDX-License-Identifier: Apache-2.0
// The point-to-point messages of one rank, over all its communicators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "farandole/internal/communicator_ids.h"
#include "farandole/internal/endpoint.h"
#include "farandole/internal/error_classes.h"
#include "farandole/internal/progress.h"
#include "point_to_point/mailbox.h"
#include "point_to_point/message.h"
#include "point_to_point/message_peer.h"

namespace farandole {

/// Sends and receives the point-to-point messages of a rank. The rank's first message makes the hub, which lives until
/// the World ends; so a short message that its sender has buffered arrives even after the sender has destroyed the
/// communicator.
///
/// All messages between two ranks use the same two lanes, whatever their communicator. A header names the communicator
/// by id and generation: messages for a communicator that this rank has not made yet are kept, and messages for a
/// communicator that this rank has destroyed are dropped.
///
/// - A short message travels with its header. The sender copies it.
/// - A long message is announced. Once a receive matches, a receiver that shares memory with the sender's process
///   copies the payload from the sender's memory and answers kTaken. Otherwise the receiver posts the receive of the
///   payload and answers kReady, and the sender sends the payload. Both ends use the payload lane in the order of the
///   answers.
///
/// Headers of a peer are read only while a message is pending that waits for this peer. Thread-safe: any thread may
/// advance the hub, one thread at a time.
class MessageHub final : public Progressable {
 public:
  /// The hub of a rank; made by the first call. @throws Error  the fault of the job
  static std::shared_ptr<MessageHub> of(Endpoint& endpoint);
  /// The hub of a rank, or null if the rank has not used messages.
  static std::shared_ptr<MessageHub> find(Endpoint& endpoint);
  /// @param endpoint  outlives this object
  explicit MessageHub(Endpoint& endpoint) : endpoint_(endpoint) {}

  /// Sends a copy of a short message. Returns true if the hub must be advanced for the message to leave this process.
  /// @throws Error  the fault of the job
  bool send_short(const Group& group, const MessageSpec& spec, const void* data);
  /// Starts a long send, or a receive. @throws Error  the fault of the job
  void submit(const std::shared_ptr<Message>& message);
  Progressable::State advance() override;
  void poll_health() override;
  void close() override;
  /// Fails the job because of a pending message. No-op if the message is done. @param number  of the message
  void fail(std::uint64_t number, const Failure& failure);
  /// The newest pending message of an owner; null if none is pending.
  std::shared_ptr<Message> last_pending(const WorkOwner& owner);
  /// Drops the messages that have arrived for a communicator that this rank has released.
  void forget(const CommunicatorKey& key);
  /// See Mailbox::describe_others.
  std::string describe_others(const Message& receive);

 private:
  using MailboxKey = std::pair<std::uint64_t, std::uint64_t>;  // communicator's id and generation
  /// A payload that this rank copies from the sender's memory, in pieces.
  struct DirectCopy {
    std::shared_ptr<Message> message;
    MessagePeer* sender = nullptr;
    MessageHeader header;
    std::size_t copied_bytes = 0;
  };
  static MailboxKey key_of(const CommunicatorKey& key) { return {key.id, key.generation}; }

  MessagePeer& peer(int rank);
  static MessageHeader header_of(MessageHeader::Kind kind, const Group& group, const MessageSpec& spec);
  /// @param expected  for kRefused: the receive that does not fit
  static void answer(MessagePeer& to, MessageHeader::Kind kind, const MessageHeader& announcement,
                     const MessageSpec* expected = nullptr);
  void await_headers(Message& message);
  void stop_awaiting(Message& message);
  template <class Change>
  void change_awaited(const Message& message, const Change& change);
  bool is_busy() const;
  void note_busy();
  /// Returns the result of `action`. If it throws, poisons the job, ends all messages, and returns true.
  template <class Action>
  bool run_or_fail(const Action& action) {
    try {
      return action();
    } catch (const std::exception& error) {
      fail_job(kind_of(error), message_of(error));
      return true;
    }
  }
  bool advance_locked();
  bool read_headers();
  void handle(MessagePeer& from, const MessagePeer::Received& received);
  void handle_answer(MessagePeer& from, const MessageHeader& answer);
  void handle_arrival(MessagePeer& from, const MessagePeer::Received& received);
  void deliver(const std::shared_ptr<Message>& receive, MessagePeer& from, const MessageHeader& header,
               const std::byte* payload);
  void begin_payload(const std::shared_ptr<Message>& receive, MessagePeer& from, const MessageHeader& header);
  bool reads_memory_of(const MessagePeer& sender, const MessageHeader& header) const;
  bool copy_piece(DirectCopy& copy);
  bool advance_copies();
  bool advance_sends();
  void end(Message& message, std::optional<Failure> failure);
  void fail_all(const Failure& failure);
  void fail_job(ErrorKind kind, const std::string& text);
  void check_peers(Clock::time_point now);
  bool waits_only_for_left_ranks(const Message& message) const;
  bool flush_once(bool reads_all);
  void drop_all();

  Endpoint& endpoint_;
  std::mutex mutex_;                  // guards everything below
  std::map<int, MessagePeer> peers_;  // by job rank; made on first use
  std::map<MailboxKey, Mailbox> mailboxes_;
  std::map<std::uint64_t, std::shared_ptr<Message>> pending_;  // by number, so oldest first
  std::deque<DirectCopy> copies_;                              // oldest first
  std::uint64_t next_number_ = 1;
  DoneActions done_actions_;  // has its own mutex
  bool is_busy_ = false;      // the progress thread may have to advance this hub, see ProgressGate
  Clock::time_point next_question_{};
};

}  // namespace farandole
