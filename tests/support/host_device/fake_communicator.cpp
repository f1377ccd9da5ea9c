// SPDX-License-Identifier: Apache-2.0
#include "fake_communicator.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <utility>

#include "fake_faults.h"
#include "fake_graphs.h"
#include "fake_options.h"
#include "fake_waiting.h"

namespace farandole::fake {

using cuda::ncclResult_t;

namespace {

struct LastError {
  std::mutex mutex;
  std::string text;
};

LastError& last_error_of_process() {
  static auto* const error = new LastError;  // streams use it until the process ends
  return *error;
}

}  // namespace

void set_last_error(const std::string& text) {
  const std::lock_guard guard(last_error_of_process().mutex);
  last_error_of_process().text = text;
}

std::string last_error() {
  const std::lock_guard guard(last_error_of_process().mutex);
  return last_error_of_process().text;
}

ncclResult_t Communicator::join(const cuda::ncclUniqueId& id) {
  segment_ = open_segment(id);
  if (segment_ == nullptr) {
    fail(cuda::ncclSystemError, "this is no id of a communicator, or the process that made it has ended");
    return cuda::ncclSystemError;
  }
  std::uint32_t agreed = 0;
  if (!segment_->size.compare_exchange_strong(agreed, static_cast<std::uint32_t>(size)) &&
      agreed != static_cast<std::uint32_t>(size)) {
    misuse("rank {} joins a communicator of {} ranks as one of {}", rank, agreed, size);
    return cuda::ncclInvalidArgument;
  }
  RankSlot& slot = segment_->ranks[static_cast<std::size_t>(rank)];
  RankState absent = RankState::kAbsent;
  if (!slot.state.compare_exchange_strong(absent, RankState::kJoining)) {
    misuse("rank {} joins the same communicator twice", rank);
    return cuda::ncclInvalidUsage;
  }
  slot.pid = getpid();
  const char* const host = std::getenv("NCCL_HOSTID");
  slot.host = std::hash<std::string_view>()(host == nullptr ? "" : host);
  slot.device = device.physical;
  slot.state.store(RankState::kHere, std::memory_order_release);
  segment_->here.fetch_add(1);
  return cuda::ncclSuccess;
}

ncclResult_t Communicator::wait_for_ranks(const cuda::ncclUniqueId& id) {
  for (Backoff backoff; segment_->here.load() != static_cast<std::uint32_t>(size);) backoff.pause();
  forget_id(id);
  if (const ncclResult_t result = compare_devices(); result != cuda::ncclSuccess) return result;
  for (int peer = 0; peer < size; ++peer) {
    watches_.push_back(watch_process(segment_->ranks[static_cast<std::size_t>(peer)].pid));
  }
  return cuda::ncclSuccess;
}

ncclResult_t Communicator::compare_devices() {
  if (option(Option::kSharedDevice) != 0) return cuda::ncclSuccess;
  for (int one = 0; one < size; ++one) {
    for (int other = one + 1; other < size; ++other) {
      const RankSlot &mine = segment_->ranks[static_cast<std::size_t>(one)],
                     &theirs = segment_->ranks[static_cast<std::size_t>(other)];
      if (mine.host != theirs.host || mine.device != theirs.device) continue;
      fail(cuda::ncclInvalidUsage,
           fmt::format("Duplicate GPU detected : rank {} and rank {} both on device {}", one, other, mine.device));
      return cuda::ncclInvalidUsage;
    }
  }
  return cuda::ncclSuccess;
}

std::atomic<std::uint32_t>& Communicator::own_flag(const Message& message) {
  return message.direction == Message::Direction::kSend
             ? segment_->channel(message.kind, rank, message.peer).sender_connected
             : segment_->channel(message.kind, message.peer, rank).receiver_connected;
}

std::atomic<std::uint32_t>& Communicator::flag_of_peer(const Message& message) {
  return message.direction == Message::Direction::kSend
             ? segment_->channel(message.kind, rank, message.peer).receiver_connected
             : segment_->channel(message.kind, message.peer, rank).sender_connected;
}

void Communicator::offer_connections(const std::vector<Message>& messages) {
  for (const Message& message : messages) own_flag(message).store(1, std::memory_order_relaxed);
}

ncclResult_t Communicator::wait_for_connections(const std::vector<Message>& messages) {
  for (const Message& message : messages) {
    if (!connected_.insert({message.direction, message.kind, message.peer}).second) continue;
    for (Backoff backoff; flag_of_peer(message).load(std::memory_order_relaxed) == 0;) {
      if (must_stop()) return cuda::ncclInternalError;
      if (const ncclResult_t result = error(); result != cuda::ncclSuccess) return result;
      idle_polls_.fetch_add(1, std::memory_order_relaxed);
      backoff.pause();
    }
  }
  idle_polls_.store(0, std::memory_order_relaxed);
  return cuda::ncclSuccess;
}

void Communicator::capture(Capture& graph, Group group) {
  captured_groups_.fetch_add(1, std::memory_order_relaxed);
  Stream& stream = *group.stream;
  graph.add(
      stream,
      [this, captured = std::make_shared<const Group>(std::move(group))](Stream& target) {
        enqueue_again(*captured, target);
      },
      [this] { captured_groups_.fetch_sub(1, std::memory_order_relaxed); });
}

// The launch refers to the graph's group and does not share ownership, because a shared count of owners would order
// threads for the thread sanitizer.
void Communicator::enqueue_again(const Group& captured, Stream& stream) {
  if (!is(Kind::kCommunicator)) {
    misuse("cuGraphLaunch of a graph with calls of rank {} of a communicator that was destroyed or aborted", rank);
    return;
  }
  const CommunicatorCall guard(*this, "cuGraphLaunch");
  Group again{.stream = &stream, .messages = captured.messages, .begins = {}, .finishes = {}, .uses = captured.uses};
  for (const auto& begin : captured.begins) again.begins.emplace_back(std::cref(begin));
  for (const auto& finish : captured.finishes) again.finishes.emplace_back(std::cref(finish));
  enqueue(std::move(again));
}

void Communicator::enqueue(Group group) {
  if (Capture* const found = group.stream->capture()) return capture(*found, std::move(group));
  auto messages = std::make_shared<MessageGroup>(*segment_, rank);
  for (const Message& message : group.messages) {
    messages->add(message, next_numbers_[{message.direction, message.kind, message.peer}]++);
  }
  for (auto& begin : group.begins) messages->add_begin(std::move(begin));
  for (auto& finish : group.finishes) messages->add_finish(std::move(finish));
  pending_.fetch_add(1, std::memory_order_relaxed);
  Item item{.call = "ncclGroupEnd", .uses = std::move(group.uses)};
  // Only the stream owns the messages, so no shared count of owners orders it with another thread.
  item.work = [this, turn = next_turn_++, held = std::move(messages)](Random& random) { run(turn, *held, random); };
  item.skipped = [this] { skip(); };
  device.enqueue(*group.stream, std::move(item));
}

void Communicator::run(std::uint32_t turn, MessageGroup& group, Random& random) {
  running_.fetch_add(1);
  if (wait_for_turn(turn)) {
    const GroupEnd end = group.run(
        random, [this] { return must_stop(); }, idle_polls_);
    if (end == GroupEnd::kBroken) report_broken();
    if (end == GroupEnd::kStopped) fail(cuda::ncclInternalError, "a group was on its way when it was aborted");
    idle_polls_.store(0, std::memory_order_relaxed);
  }
  finished_turns_.store(turn + 1, std::memory_order_release);
  running_.fetch_sub(1);
  pending_.fetch_sub(1, std::memory_order_release);
}

void Communicator::skip() {
  running_.fetch_add(1);
  if (!is_aborted_.load()) {
    if (is_device_lost()) {
      is_ended_.store(true, std::memory_order_relaxed);
      fail(cuda::ncclUnhandledCudaError, "the device is lost");
    } else {
      segment_->break_with(fmt::format("rank {}: memory of a group was freed before the group ran", rank));
      report_broken();
    }
  }
  running_.fetch_sub(1);
  pending_.fetch_sub(1, std::memory_order_release);
}

bool Communicator::wait_for_turn(std::uint32_t turn) {
  for (Backoff backoff; finished_turns_.load(std::memory_order_relaxed) != turn;) {
    if (must_stop()) return false;
    backoff.pause();
  }
  (void)finished_turns_.load(std::memory_order_acquire);
  return !must_stop();
}

bool Communicator::must_stop() {
  if (is_aborted_.load() || is_ended_.load(std::memory_order_relaxed) || is_device_lost()) return true;
  look_at_peers();
  return false;
}

// Items that wait for a dead rank keep waiting, as NCCL's kernels do, until the communicator is aborted.
void Communicator::look_at_peers() {
  if (option(Option::kNoticesDeath) == 0 || error_.load(std::memory_order_relaxed) != cuda::ncclSuccess) return;
  for (std::size_t peer = 0; peer < watches_.size(); ++peer) {
    if (has_ended(watches_[peer])) fail(cuda::ncclRemoteError, fmt::format("the process of rank {} has ended", peer));
  }
}

ncclResult_t Communicator::error() {
  const std::lock_guard guard(close_mutex_);
  if (segment_ != nullptr && !is_aborted_.load()) {
    look_at_peers();
    if (!segment_->why_broken().empty()) report_broken();
  }
  return error_.load(std::memory_order_relaxed);
}

void Communicator::report_broken() {
  if (is_ended_.exchange(true, std::memory_order_relaxed)) return;
  const std::string why = segment_->why_broken();
  misuse("seen by rank {} of {}: {}", rank, size, why);
  fail(cuda::ncclInternalError, why);  // after the report, so that a test that sees the error finds the report
}

void Communicator::fail(ncclResult_t error, const std::string& text) {
  const std::lock_guard guard(text_mutex_);
  if (error_.load(std::memory_order_relaxed) != cuda::ncclSuccess) return;
  error_text_ = text;
  set_last_error(text);
  error_.store(error, std::memory_order_relaxed);
}

std::string Communicator::error_text() const {
  const std::lock_guard guard(text_mutex_);
  return error_text_;
}

bool Communicator::drain() const {
  for (Backoff backoff; pending_.load(std::memory_order_acquire) != 0;) {
    if (is_aborted_.load()) return false;
    backoff.pause();
  }
  return true;
}

void Communicator::abort() {
  is_aborted_.store(true);
  for (Backoff backoff; running_.load() != 0 || calling_thread.load() != 0;) backoff.pause();
}

void Communicator::close() {
  const std::lock_guard guard(close_mutex_);
  if (segment_ == nullptr) return;
  close_segment(std::exchange(segment_, nullptr));
  for (const int watch : watches_) {
    if (watch >= 0) ::close(watch);
  }
}

CommunicatorCall::CommunicatorCall(Communicator& communicator, const char* call) : communicator_(communicator) {
  const std::uint32_t self = this_thread_number();
  std::uint32_t none = 0;
  is_first_ = communicator.calling_thread.compare_exchange_strong(none, self, std::memory_order_relaxed);
  if (!is_first_ && none != self) {
    misuse("{} on rank {} of {} while another thread is in a call on this communicator", call, communicator.rank,
           communicator.size);
  }
}

CommunicatorCall::~CommunicatorCall() {
  if (is_first_) communicator_.calling_thread.store(0, std::memory_order_release);
}

}  // namespace farandole::fake
