// SPDX-License-Identifier: Apache-2.0
#include "fake_groups.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "fake_faults.h"

namespace farandole::fake {

using cuda::ncclResult_t;

namespace {

// True if a group's numbers of sends and receives between the rank and itself differ. NCCL refuses such a group,
// because a message would wait for ever: no other group runs meanwhile.
bool has_lonely_message(const Communicator& communicator, const std::vector<Message>& messages) {
  std::ptrdiff_t sends = 0;
  std::ptrdiff_t receives = 0;
  for (const Message& message : messages) {
    if (message.peer != communicator.rank) continue;
    (message.direction == Message::Direction::kSend ? sends : receives) += 1;
  }
  if (sends == receives) return false;
  misuse("a group of rank {} has {} sends to itself and {} receives from itself: they wait for ever", communicator.rank,
         sends, receives);
  return true;
}

}  // namespace

OpenGroup& open_group() {
  thread_local OpenGroup group;
  return group;
}

OpenGroup::~OpenGroup() {
  if (is_open()) misuse("a thread ends with an open group of {} calls: ncclGroupEnd is missing", calls_.size());
}

void OpenGroup::discard() {
  depth_ = 0;
  failure_ = cuda::ncclSuccess;
  joins_.clear();
  calls_.clear();
}

ncclResult_t OpenGroup::note_failure(ncclResult_t error) {
  if (is_open() && failure_ == cuda::ncclSuccess) failure_ = error;
  return error;
}

ncclResult_t OpenGroup::add(Communicator& communicator, Stream& stream, const char* name, PlannedCall call) {
  calls_.push_back({&communicator, &stream, name, std::move(call)});
  return is_open() ? cuda::ncclSuccess : run();
}

ncclResult_t OpenGroup::add_join(std::function<ncclResult_t()> wait_for_ranks) {
  if (!is_open()) return wait_for_ranks();
  joins_.push_back(std::move(wait_for_ranks));
  return cuda::ncclSuccess;
}

ncclResult_t OpenGroup::end() {
  if (!is_open()) {
    misuse("ncclGroupEnd without ncclGroupStart");
    return cuda::ncclInvalidUsage;
  }
  return --depth_ > 0 ? cuda::ncclSuccess : run();
}

ncclResult_t OpenGroup::run() {
  ncclResult_t result = failure_;
  for (std::size_t i = 0; i < joins_.size() && result == cuda::ncclSuccess; ++i) result = joins_[i]();
  if (result == cuda::ncclSuccess) result = enqueue();
  discard();
  return result;
}

ncclResult_t OpenGroup::collect(Communicator& communicator, bool is_alone, Communicator::Group& group) {
  std::vector<PartAccess> accesses;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    Call& call = calls_[i];
    if (call.communicator != &communicator) continue;
    if (group.stream == nullptr) group.stream = call.stream;
    if (group.stream != call.stream) {
      misuse("a group of rank {} has calls in two streams; all of a communicator must name one", communicator.rank);
      return cuda::ncclInvalidUsage;
    }
    for (const Access& access : call.plan.accesses) {
      if (!group.uses.add(call.name, communicator.device.ordinal, Reach::kDevice, access)) {
        return cuda::ncclInvalidArgument;
      }
      accesses.push_back({access, static_cast<int>(i)});
    }
    for (Message& message : call.plan.messages) {
      message.is_alone = is_alone && message.kind == MessageClass::kPointToPoint;
      group.messages.push_back(message);
    }
    if (call.plan.begin) group.begins.push_back(std::move(call.plan.begin));
    if (call.plan.finish) group.finishes.push_back(std::move(call.plan.finish));
  }
  const std::string conflict = first_conflict(accesses);
  if (!conflict.empty()) {
    misuse("calls of a group of rank {} run at the same time, but {}", communicator.rank, conflict);
    return cuda::ncclInvalidUsage;
  }
  return has_lonely_message(communicator, group.messages) ? cuda::ncclInvalidUsage : cuda::ncclSuccess;
}

ncclResult_t OpenGroup::enqueue() {
  std::vector<std::pair<Communicator*, Communicator::Group>> groups;
  for (const Call& call : calls_) {
    const bool is_new = std::none_of(groups.begin(), groups.end(),
                                     [&call](const auto& group) { return group.first == call.communicator; });
    if (is_new) groups.emplace_back(call.communicator, Communicator::Group{});
  }
  const bool is_alone = calls_.size() == 1;
  std::vector<std::unique_ptr<CommunicatorCall>> guards;
  for (auto& [communicator, group] : groups) {
    guards.push_back(std::make_unique<CommunicatorCall>(*communicator, "ncclGroupEnd"));
    if (const ncclResult_t result = collect(*communicator, is_alone, group); result != cuda::ncclSuccess) return result;
  }
  for (auto& [communicator, group] : groups) {
    group.stream->begin_group();
    communicator->offer_connections(group.messages);
  }
  ncclResult_t result = cuda::ncclSuccess;
  for (auto& [communicator, group] : groups) {
    if (result == cuda::ncclSuccess) result = communicator->wait_for_connections(group.messages);
  }
  for (auto& [communicator, group] : groups) {
    Stream& stream = *group.stream;
    if (result == cuda::ncclSuccess) communicator->enqueue(std::move(group));
    stream.end_group();
  }
  return result;
}

}  // namespace farandole::fake
