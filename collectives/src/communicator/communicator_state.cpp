// SPDX-License-Identifier: Apache-2.0
#include "communicator/communicator_state.h"

#include <array>

#include "communicator/validate.h"
#include "device/device_operation.h"
#include "device/device_work.h"
#include "farandole/core/error.h"
#include "farandole/internal/forked_children.h"
#include "messages/exchange.h"
#include "messages/hierarchical_operation.h"
#include "messages/scheduled_collective.h"
#include "messages/vendor_allreduce.h"
#include "shared_memory/shm_operation.h"

namespace farandole {
namespace {

/// All methods, preferred methods first.
constexpr std::array<const Method*, 8> kMethods{
    &kShmMethod,      &kExchangeMethod,     &kHierarchicalMethod,       &kVendorMethod,
    &kScheduleMethod, &kDeviceVendorMethod, &kDeviceHierarchicalMethod, &kDeviceScheduleMethod};

}  // namespace

std::span<const Method* const> methods() {
  return kMethods;
}

Communicator::State::State(Group group)
    : group_(tuned(std::move(group))),
      queue_(std::make_shared<WorkQueue>(group_)),
      direct_(group_.direct ? std::make_unique<DirectCalls>(group_, *queue_) : nullptr) {
  group_.endpoint->communicator_ids().take(group_.key());
  if (group_.direct) {
    group_.endpoint->communicator_ids().take(*group_.direct);
    group_.endpoint->late_ranks().enter(group_.direct->id, 0);
  }
  group_.endpoint->late_ranks().enter(group_.id, 0);
  group_.endpoint->progress().attach(queue_);
}

Communicator::State::~State() {
  if (queue_->is_forked_child()) {
    keep_until_the_end(queue_);
    keep_until_the_end(std::move(direct_));
    keep_until_the_end(std::move(messages_));
    keep_until_the_end(std::move(device_messages_));
    return;
  }
  // During stack unwinding this rank abandons its pending collectives, so poison the job: the peers must not wait for
  // this rank. What its device completes is not abandoned.
  if (std::uncaught_exceptions() > exceptions_at_start_ && has_pending()) queue_->give_up();
  if (messages_ != nullptr) messages_->close();
  device_messages_.reset();
  if (direct_ != nullptr) direct_->close();
  queue_->close();
  group_.endpoint->communicator_ids().release(group_.id);
  if (group_.direct) group_.endpoint->communicator_ids().release(group_.direct->id);
  if (const auto hub = MessageHub::find(*group_.endpoint)) hub->forget(group_.key());
}

MessageQueue& Communicator::State::messages() {
  group_.endpoint->faults().check_process();
  std::call_once(messages_made_, [this] { messages_ = std::make_shared<MessageQueue>(group_); });
  messages_->begin_use();
  return *messages_;
}

DeviceMessages& Communicator::State::device_messages() {
  (void)messages();  // checks, and notes the calling thread
  // No std::call_once: under thread sanitizer it waits for ever after a constructor that has thrown.
  const std::lock_guard lock(device_messages_mutex_);
  if (device_messages_ == nullptr) device_messages_ = std::make_unique<DeviceMessages>(*this);
  return *device_messages_;
}

bool Communicator::State::has_pending() const {
  if (messages_ != nullptr && messages_->has_pending()) return true;
  try {
    return queue_->needs_this_rank() || (direct_ != nullptr && direct_->has_running());
  } catch (const DeviceError&) {
    return true;  // the device has failed
  }
}

std::array<ShortVectors, kCollectiveCount> Communicator::State::select_short_vectors() const {
  std::array<ShortVectors, kCollectiveCount> found{};
  for (int i = 0; i < kCollectiveCount; ++i) {
    found[static_cast<std::size_t>(i)] =
        farandole::select_short_vectors(query(static_cast<Collective>(i), 0), group_.endpoint->settings());
  }
  return found;
}

Selection Communicator::State::select(const PreparedCall& prepared) {
  if (group_.carries_messages) return {&kDeviceMessageMethod, nullptr, 1};
  const Call& call = prepared.call;
  const MemoryKind memory = prepared.space.kind;
  const bool is_free = call.algorithm.empty() && call.segments == 0 && memory == MemoryKind::kHost;
  const ShortVectors& known = short_vectors_[static_cast<std::size_t>(call.collective)];
  if (is_free && prepared.bytes < known.below_bytes) return known.selection;
  SelectionQuery asked = query(call.collective, prepared.bytes, memory);
  asked.forced = call.algorithm;
  asked.segments = call.segments;
  asked.vendor_agrees =
      memory == MemoryKind::kHost ? vendor_agrees(call.input.dtype, call.op) : device_vendor_agrees(call);
  return select(asked);
}

Selection Communicator::State::select(const SelectionQuery& query) {
  const Key key(query.collective, query.bytes, std::string(query.forced), query.segments, query.vendor_agrees,
                query.memory);
  const auto found = selections_.find(key);
  if (found != selections_.end()) return found->second;
  constexpr std::size_t kRemembered = 1024;
  if (selections_.size() >= kRemembered) selections_.clear();
  return selections_[key] = farandole::select(query, group_.endpoint->settings());
}

PreparedCall Communicator::State::prepare(const Call& call, bool is_direct) {
  PreparedCall prepared(call, group_.size());
  try {
    validate(prepared, group_.rank, group_.size(), queue_->devices(), is_direct);
    prepared.accept(select(prepared));
  } catch (const InvalidArgument& error) {
    refuse(prepared, error.message(), is_direct);
  }
  return prepared;
}

void Communicator::State::refuse(PreparedCall& prepared, const std::string& why, bool is_direct) const {
  // In a forked child or after a fault of the job, raise that error instead: valid arguments would not avoid it.
  group_.endpoint->faults().check();
  // If the ranks compare the call first, all of them raise: the comparison tells the peers of the refusal. Otherwise
  // only this rank raises.
  if (group_.size() == 1 || !group_.compares || is_direct) throw InvalidArgument(why);
  prepared.refuse(why);
}

}  // namespace farandole
