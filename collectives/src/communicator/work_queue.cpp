// SPDX-License-Identifier: Apache-2.0
#include "communicator/work_queue.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/error_classes.h"
#include "shared_memory/shm_operation.h"

namespace farandole {
WorkQueue::WorkQueue(Group group) : WorkOwner(group.endpoint), group_(std::move(group)) {
  int local_size = 0;
  for (int index = 0; index < group_.size(); ++index) {
    local_size += group_.host_of(index) == group_.host_of(group_.rank) ? 1 : 0;
  }
  host_.hierarchy = Hierarchy::of(group_);
  if (host_.hierarchy) host_.plans = std::make_unique<PreparedPlans>(group_, *host_.hierarchy);
  const bool on_one_host = local_size == group_.size();
  if (local_size > 1 && group_.shares_memory(group_.rank) && (on_one_host || host_.hierarchy)) {
    host_.group = std::make_unique<ShmGroup>(group_);
    in_flight_ = static_cast<std::uint64_t>(host_.group->ledger().lanes());
  }
}

std::uint64_t WorkQueue::next_sequence() {
  const std::uint64_t sequence = next_sequence_++;
  group_.endpoint->late_ranks().blocked().note_thread();
  group_.endpoint->late_ranks().enter(group_.id, sequence);
  return sequence;
}

std::unique_ptr<CollectiveOperation> WorkQueue::make_operation(const PreparedCall& prepared, std::uint64_t sequence,
                                                               bool has_arrived) {
  return std::make_unique<CollectiveOperation>(group_, host_, prepared, sequence, VendorSlots{vendor_, devices_},
                                               has_arrived);
}

std::shared_ptr<CollectiveWork> WorkQueue::enqueue(std::unique_ptr<CollectiveOperation> operation,
                                                   std::optional<FlightRecorder::Id> record) {
  auto work = std::make_shared<CollectiveWork>();
  work->owner = shared_from_this();
  work->sequence = operation->sequence();
  work->descriptor = operation->descriptor();
  work->operation = std::move(operation);
  FlightRecorder& recorder = group_.endpoint->recorder();
  work->record = record ? *record : recorder.begin(group_.id, work->sequence, subject_of(work->descriptor));
  pending_.push_back(work);
  pending_count_.store(pending_.size(), std::memory_order_relaxed);
  group_.endpoint->progress().begin_operation();
  return work;
}

std::shared_ptr<CollectiveWork> WorkQueue::submit(const PreparedCall& prepared) {
  group_.endpoint->faults().check();
  count_time_outside_calls();
  const std::lock_guard lock(mutex_);
  return enqueue(make_operation(prepared, next_sequence()));
}

bool WorkQueue::is_one_shot(const PreparedCall& prepared) const {
  if (prepared.selection.method != &kShmMethod || host_.group_of_all() == nullptr) return false;
  if (!prepared.is_valid() || prepared.call.is_uneven()) return false;
  return prepared.bytes <= host_.group_of_all()->one_shot_bytes();
}

/// @param record  set to the line in the flight recorder, which begins before a peer can see this collective and cause
/// a fault
Attempt WorkQueue::run_one_shot(const PreparedCall& prepared, std::uint64_t sequence,
                                std::optional<FlightRecorder::Id>& record) {
  Waiter waiter(group_.endpoint->progress().doorbell(), group_.endpoint->progress().waiting());
  FlightRecorder& recorder = group_.endpoint->recorder();
  record = recorder.begin_inline(group_.id, sequence, subject_of(prepared.descriptor));
  const Attempt attempt = try_one_shot(*host_.group_of_all(), LaneLedger::first_number(sequence), prepared, waiter);
  if (attempt == Attempt::kDone) recorder.finish_inline(*record);
  return attempt;
}

void WorkQueue::run(const PreparedCall& prepared) {
  group_.endpoint->faults().check();
  std::shared_ptr<CollectiveWork> work;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t sequence = next_sequence();
    const bool is_inline = pending_.empty();
    Attempt attempt = Attempt::kNotBegun;
    std::optional<FlightRecorder::Id> record;
    if (is_inline && is_one_shot(prepared)) attempt = run_one_shot(prepared, sequence, record);
    if (attempt == Attempt::kDone) return;
    auto operation = make_operation(prepared, sequence, attempt == Attempt::kPublished);
    std::optional<Failure> failure;
    if (is_inline && attempt == Attempt::kNotBegun) {
      FlightRecorder& recorder = group_.endpoint->recorder();
      if (!record) record = recorder.begin_inline(group_.id, sequence, subject_of(operation->descriptor()));
      try {
        if (advance_inline(*operation)) return recorder.finish_inline(*record);
      } catch (const std::exception& error) {
        failure = Failure{kind_of(error), message_of(error)};
      }
    }
    work = enqueue(std::move(operation), record);
    if (failure) fail(*work, *failure);
  }
  wait(*work);
  if (work->failure) throw_error(work->failure->kind, work->failure->text);
}

void WorkQueue::run_on_stream(const PreparedCall& prepared) {
  const std::shared_ptr<CollectiveWork> work = submit(prepared);
  advance();
  wait_on(*work, prepared.call.stream);
  // A collective that is not done stays in the queue, which needs progress.
  if (work->done.load(std::memory_order_acquire) && work->failure)
    throw_error(work->failure->kind, work->failure->text);
  group_.endpoint->progress().wake();
}

/// Advances the operation until it is done, or until the caller would have to sleep. Returns true if the operation is
/// done. Otherwise the caller must enqueue it: the queue handles faults, deadlines and other collectives.
bool WorkQueue::advance_inline(CollectiveOperation& operation) const {
  Waiter waiter(group_.endpoint->progress().doorbell(), group_.endpoint->progress().waiting());
  for (;;) {
    const Operation::State state = operation.advance();
    if (state == Operation::State::kDone) return true;
    if (state == Operation::State::kMoved) {
      waiter.reset();
      continue;
    }
    if (waiter.sleeps_next()) return false;
    (void)waiter.rest();
  }
}

template <class IsOver, class BeforeSleep>
void WorkQueue::advance_until(const IsOver& is_over, const BeforeSleep& before_sleep) {
  count_time_outside_calls();
  Waiter waiter(group_.endpoint->progress().doorbell(), group_.endpoint->progress().waiting());
  while (!is_over()) {
    waiter.look();
    if (advance() == Progressable::State::kMoved) {
      waiter.reset();
      continue;
    }
    if (is_over()) break;
    group_.endpoint->progress().advance_attached();
    if (waiter.sleeps_next()) before_sleep();
    if (waiter.rest()) poll_health();
  }
}

void WorkQueue::wait(const Work::State& state) {
  const auto& work = static_cast<const CollectiveWork&>(state);
  std::optional<BlockedCalls::Scope> blocked;
  const auto begin_to_sleep = [&] {
    if (blocked) return;
    blocked.emplace(group_.endpoint->late_ranks().blocked(),
                    BlockedCall{group_.id, work.sequence, subject_of(work.descriptor), &label_, &group_.members,
                                group_.compares, Clock::now()});
  };
  advance_until([&] { return work.done.load(std::memory_order_acquire); }, begin_to_sleep);
  group_.endpoint->progress().wait_until_quiet();
}

void WorkQueue::wait_on(const Work::State& state, StreamView stream) {
  const auto& work = static_cast<const CollectiveWork&>(state);
  if (work.descriptor.memory == MemoryKind::kHost) {
    throw InvalidArgument(fmt::format("a stream can wait for collectives on devices only, not for {}; use wait()",
                                      describe(work.descriptor)));
  }
  if (const MemorySpace own = devices_.context().space(); stream.space != own) {
    throw InvalidArgument(fmt::format("wait_on: expected a stream in {}, the device of this rank, got one in {}",
                                      describe(own), describe(stream.space)));
  }
  std::shared_ptr<DeviceEvent> enqueued;
  advance_until(
      [&] {
        if (work.done.load(std::memory_order_acquire)) return true;
        const std::lock_guard lock(mutex_);
        if (work.operation) enqueued = work.operation->enqueued();
        return enqueued != nullptr;
      },
      [] {});
  // If `enqueued` is null, the collective has ended, on the device, too: the stream need not wait.
  if (enqueued != nullptr) devices_.context().device().wait(stream, *enqueued);
}

bool WorkQueue::is_enqueued(const CollectiveWork& work) {
  return work.descriptor.memory != MemoryKind::kHost && work.operation && work.operation->enqueued() != nullptr;
}

bool WorkQueue::is_enqueued() {
  if (pending_count_.load(std::memory_order_acquire) == 0) return true;
  const std::lock_guard lock(mutex_);
  return std::none_of(pending_.begin(), pending_.end(), [](const std::shared_ptr<CollectiveWork>& work) {
    return work->descriptor.memory != MemoryKind::kHost && work->operation && !is_enqueued(*work);
  });
}

bool WorkQueue::wait_until_enqueued() {
  if (is_enqueued()) return false;
  advance_until([this] { return is_enqueued(); }, [] {});
  return true;
}

void WorkQueue::poll() {
  const auto now = Clock::now();
  const bool is_due = now >= next_health_check_.load(std::memory_order_relaxed);
  if (is_due) count_time_outside_calls();
  group_.endpoint->progress().advance_attached();
  (void)advance();
  if (!is_due) return;
  next_health_check_.store(now + std::chrono::milliseconds(1), std::memory_order_relaxed);
  poll_health();
}

bool WorkQueue::needs_this_rank() {
  const std::lock_guard lock(mutex_);
  return !std::ranges::all_of(pending_, [](const std::shared_ptr<CollectiveWork>& work) { return is_enqueued(*work); });
}

bool WorkQueue::peer_has_started_next() {
  const std::lock_guard lock(mutex_);
  return pending_.empty() && stall_.has_peer_started(host_, next_sequence_);
}

std::string WorkQueue::describe_missing() {
  const std::lock_guard lock(mutex_);
  return pending_.empty() ? std::string() : stall_.describe_missing(*pending_.front());
}

void WorkQueue::give_up() {
  group_.endpoint->faults().give_up("failed with an exception while collectives were pending");
}

void WorkQueue::close() {
  for (;;) {
    std::shared_ptr<CollectiveWork> last;
    {
      const std::lock_guard lock(mutex_);
      if (pending_.empty()) {
        host_.group.reset();
        vendor_.close();
        devices_.close();
        return;
      }
      last = pending_.back();
    }
    wait(*last);
  }
}

Progressable::State WorkQueue::advance() {
  auto state = Progressable::State::kIdle;
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return Progressable::State::kWaiting;
    if (!pending_.empty()) {
      state = advance_locked() ? Progressable::State::kMoved : Progressable::State::kWaiting;
    }
  }
  done_actions_.run();
  return state;
}

bool WorkQueue::advance_locked() {
  try {
    group_.endpoint->faults().check();
  } catch (const Error& fault) {
    fail_all({fault.kind(), fault.message()});
    return true;
  }
  bool moved = false;
  const std::uint64_t end_of_window = pending_.front()->sequence + in_flight_;
  for (std::size_t i = 0; i < pending_.size() && pending_[i]->sequence < end_of_window;) {
    // Keep a reference: a collective that ends leaves the queue, which may hold the last one.
    const std::shared_ptr<CollectiveWork> work = pending_[i];
    moved = advance_one(*work) || moved;
    if (pending_.empty()) break;
    if (i < pending_.size() && pending_[i] == work) ++i;
  }
  return moved;
}

bool WorkQueue::advance_one(CollectiveWork& work) {
  if (work.started == Clock::time_point{}) {
    StallWatch::begin(work, Clock::now());
    group_.endpoint->recorder().mark(work.record, FlightRecord::Stage::kRunning);
  }
  try {
    const Operation::State state = work.operation->advance();
    if (state == Operation::State::kWaiting) return false;
    stall_.note_progress(work, pending_.front()->started, Clock::now());
    if (state == Operation::State::kDone) end(work, std::nullopt);
  } catch (const std::exception& error) {
    fail(work, {kind_of(error), message_of(error)});
  }
  return true;
}

void WorkQueue::end(CollectiveWork& work, std::optional<Failure> failure) {
  group_.endpoint->recorder().mark(work.record, failure ? FlightRecord::Stage::kFailed : FlightRecord::Stage::kDone);
  if (failure) {
    const BufferHazard hazard = work.operation->withdraw();
    if (hazard == BufferHazard::kWritten) failure->text += kStillWritten;
    if (hazard != BufferHazard::kNone) keep_until_exit(std::move(work.operation));
  }
  work.operation.reset();
  work.failure = std::move(failure);
  const auto entry =
      std::find_if(pending_.begin(), pending_.end(), [&](const auto& each) { return each.get() == &work; });
  const std::shared_ptr<CollectiveWork> ended = *entry;
  pending_.erase(entry);
  pending_count_.store(pending_.size(), std::memory_order_release);
  group_.endpoint->progress().end_operation();
  done_actions_.finish(ended);
  group_.endpoint->progress().doorbell().ring();
}

void WorkQueue::fail_all(const Failure& failure) {
  while (!pending_.empty()) {
    const std::shared_ptr<CollectiveWork> work = pending_.front();
    end(*work, failure);
  }
}

/// Ends `work` with a failure. Poisons the job unless the failure is of a kind that all ranks raise together.
void WorkQueue::fail(CollectiveWork& work, const Failure& failure) {
  const bool same_on_all_ranks = failure.kind == ErrorKind::kInvalidArgument || failure.kind == ErrorKind::kMismatch ||
                                 failure.kind == ErrorKind::kUnsupported;
  if (same_on_all_ranks) {
    end(work, failure);
    return;
  }
  Endpoint& endpoint = *group_.endpoint;
  if (failure.kind == ErrorKind::kDeviceError) endpoint.faults().find_dead_peers();
  endpoint.faults().poison(
      failure.kind, fmt::format("{} in collective {} of {} ({}): {}", endpoint.topology().describe(endpoint.rank()),
                                work.sequence, label_, describe(work.descriptor), failure.text));
  try {
    endpoint.faults().check();
  } catch (const Error& fault) {
    fail_all({fault.kind(), fault.message()});
  }
}

void WorkQueue::poll_health() {
  try {
    group_.endpoint->faults().poll();
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || pending_.empty() || pending_.front()->started == Clock::time_point{}) return;
    const std::shared_ptr<CollectiveWork> oldest = pending_.front();
    if (const auto failure = stall_.check(*oldest, Clock::now())) fail(*oldest, *failure);
  } catch (const std::exception& error) {
    // The transport failed. Poison the job, so that waiting threads raise its fault.
    group_.endpoint->faults().poison(ErrorKind::kTransportError, message_of(error));
  }
}

void WorkQueue::count_time_outside_calls() {
  const bool has_own_thread = group_.progress == CommunicatorOptions::Progress::kOwnThread;
  if (has_own_thread || group_.endpoint->progress().is_running()) return;
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) stall_.count_gap(Clock::now());
}

}  // namespace farandole
