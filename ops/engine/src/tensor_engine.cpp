// SPDX-License-Identifier: Apache-2.0
#include "tensor_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <system_error>

#include "farandole/internal/log.h"

namespace farandole {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A submitting thread moves a request that is the only pending one on for this long: with ranks in step, that is all
// that it takes.
constexpr microseconds kInlineBudget{60};
// One whose thread waits anyway may take longer, up to the moment when it would sleep.
constexpr microseconds kBlockedBudget{2000};
constexpr milliseconds kLongestSleep{100};  // the liveness of peers is looked at this often
constexpr std::chrono::seconds kIdleSleep{3600};
// A rank stands still after this part of the time until the first warning.
constexpr double kStandstill = 1.0 / 6;

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// How long to sleep until then; nothing if it has passed.
microseconds until(Clock::time_point time) {
  if (time == Clock::time_point::max()) return kIdleSleep;
  const auto now = Clock::now();
  return time <= now ? microseconds(0) : std::chrono::duration_cast<microseconds>(time - now);
}

/// Whose callbacks this thread runs. What they submit it moves on after them: nested, callbacks that submit again could
/// fill the stack.
thread_local const TensorEngine* calling_back = nullptr;

}  // namespace

TensorEngine::TensorEngine(Communicator communicator, int first_set)
    : communicator_(std::move(communicator)),
      endpoint_(communicator_.endpoint()),
      next_set_(first_set),
      standstill_(kStandstill * endpoint_.settings().warn_after) {
  if (!endpoint_.usable_from_any_thread()) {
    throw Unsupported(
        "the engine needs an MPI that any thread may call: initialise MPI with MPI_THREAD_MULTIPLE, or let Farandole "
        "initialise it");
  }
  if (endpoint_.shares_vendor_with_program() && communicator_.rank() == 0) {
    log(LogLevel::kWarning,
        "MPI runs with MPI_THREAD_SERIALIZED, and the engine calls it from a thread of its own at any time: until "
        "farandole_shutdown (farandole.shutdown() in Python) the program must not call MPI; or initialise MPI with "
        "MPI_THREAD_MULTIPLE");
  }
  const std::vector<int> ranks = all_ranks(communicator_.size());
  set_infos_[FARANDOLE_GLOBAL_SET] = {ranks, true, Negotiator::kFirstGeneration};
  sets_[FARANDOLE_GLOBAL_SET] = std::make_unique<SetEngine>(ranks, communicator_.duplicate(SetEngine::kControl),
                                                            communicator_.duplicate(SetEngine::kData), timeline_);
  start_timeline_of_settings();
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  } catch (const std::system_error& error) {
    throw Unsupported(fmt::format(
        "the engine's thread cannot be started ({}); raise the limits on processes and threads (ulimit -u, or "
        "pids.max of the control group)",
        error.code().message()));
  }
}

TensorEngine::~TensorEngine() {
  if (!has_left_.load() && !endpoint_.has_fault() && communicator_.size() > 1) {
    abort("the engine was destroyed without leaving the job");
  }
  thread_.request_stop();
  wake();
  if (thread_.joinable()) thread_.join();
  do {  // what fails lets the next of its name come
    fail_all({ErrorKind::kPeerLost, "the engine has been stopped"});
    Due due;
    collect(due);
    (void)deliver(due);
  } while (has_inbox_.load());
}

/// A job does not end for a file that can not be written.
void TensorEngine::start_timeline_of_settings() {
  const Settings& settings = endpoint_.settings();
  if (settings.timeline == "off") return;
  try {
    start_timeline(settings.timeline, settings.timeline_cycles);
  } catch (const InvalidArgument& error) {
    log(LogLevel::kWarning, error.what());
  }
}

void TensorEngine::start_timeline(const std::string& path, bool mark_cycles) {
  if (communicator_.rank() == 0) timeline_.start(path, mark_cycles);
}

void TensorEngine::wake() {
  bell_.ring();
  endpoint_.doorbell().ring();
}

// ---- Requests -----------------------------------------------------------------------------------------------------

void TensorEngine::check_submission(const LocalRequest& request) const {
  if (fault_) throw_error(fault_->kind, fault_->text);
  endpoint_.check_fault();
  const auto set = set_infos_.find(request.process_set);
  if (set == set_infos_.end()) {
    throw InvalidArgument(fmt::format("{}: there is no process set {}", describe(request.spec), request.process_set));
  }
  if (!set->second.is_member) {
    throw InvalidArgument(fmt::format("{}: rank {} is not in process set {} (ranks {})", describe(request.spec),
                                      communicator_.rank(), request.process_set, fmt::join(set->second.ranks, ", ")));
  }
  if (request.generation > set->second.generation) {
    throw InvalidArgument(fmt::format(
        "{}: generation {} of its step has not begun; take what farandole_generation returned when the step began",
        describe(request.spec), request.generation));
  }
}

void TensorEngine::submit(LocalRequest&& request) {
  const bool caller_waits = request.waiting == Waiting::kCaller;
  bool is_only_pending = false;
  {
    const std::lock_guard lock(inbox_mutex_);
    check_submission(request);
    const auto self = std::this_thread::get_id();
    if (!submitter_) submitter_ = self;
    if (*submitter_ != self) many_submitters_.store(true);
    auto owned = std::make_unique<LocalRequest>(std::move(request));
    const bool is_first = enter_name(owned);
    is_only_pending = pending_.fetch_add(1) == 0;
    if (caller_waits) pending_waits_.fetch_add(1);
    if (is_first) hand_over(std::move(owned));
  }
  requests_.fetch_add(1, std::memory_order_relaxed);
  if (calling_back == this) return;
  if (caller_waits || is_only_pending) {
    drive_for(caller_waits ? kBlockedBudget : kInlineBudget, caller_waits);
  } else {
    wake();
  }
}

void TensorEngine::join(int process_set, void* context, JoinCallback done) {
  {
    const std::lock_guard lock(inbox_mutex_);
    if (fault_) throw_error(fault_->kind, fault_->text);
    const auto set = set_infos_.find(process_set);
    if (set == set_infos_.end() || !set->second.is_member) {
      throw InvalidArgument(fmt::format("join: rank {} is not in process set {}", communicator_.rank(), process_set));
    }
    joins_.push_back({process_set, context, done});
    has_inbox_.store(true);
  }
  wake();
}

void TensorEngine::leave() {
  {
    const std::lock_guard lock(inbox_mutex_);
    leaving_ = true;
    has_inbox_.store(true);
  }
  wait_until([this] { return has_left_.load() || endpoint_.has_fault(); });
}

void TensorEngine::abort(const std::string& text) {
  communicator_.abort(text);
  wake();
}

// ---- Driving ------------------------------------------------------------------------------------------------------

void TensorEngine::run(const std::stop_token& stop) {
  // Frameworks compute on all cores: this thread yields from the start, and sleeps soon.
  Waiter::Options options = endpoint_.waiting();
  options.oversubscribed = true;
  Doorbell& peers = endpoint_.doorbell();
  Waiter waiter(peers, options);
  for (;;) {
    const std::uint32_t seen = bell_.rings();
    if (stop.stop_requested()) return;  // looked at after `seen`: the bell rings after it is set
    if (drivers_.load() > 0) {
      waiter.reset();
      bell_.sleep(seen, kLongestSleep);
      continue;
    }
    const std::uint32_t seen_peers = peers.rings();
    waiter.look();
    if (drive()) {
      waiter.reset();
      continue;
    }
    const microseconds until_wakeup = until(next_wakeup_.load());
    if (has_inbox_.load() || until_wakeup.count() <= 0) continue;
    if (!active_.load()) {
      waiter.reset();
      bell_.sleep(seen, until_wakeup);
    } else if (waiter.sleeps_next() && until_wakeup < kLongestSleep) {
      peers.sleep(seen_peers, options.polled ? std::min(until_wakeup, microseconds(1000)) : until_wakeup);
      poll_health();
    } else if (waiter.rest()) {
      poll_health();
    }
  }
}

void TensorEngine::drive_for(microseconds budget, bool until_sleep) {
  drivers_.fetch_add(1);
  const Clock::time_point end = Clock::now() + budget;
  Waiter waiter(endpoint_.doorbell(), endpoint_.waiting());
  while (pending_.load() > 0) {
    if (drive()) {
      waiter.reset();
      continue;
    }
    if (waiter.sleeps_next() || (!until_sleep && Clock::now() >= end) ||
        next_wakeup_.load() != Clock::time_point::max())
      break;
    (void)waiter.rest();
  }
  drivers_.fetch_sub(1);
  if (!is_quiet() || has_inbox_.load()) wake();
}

void TensorEngine::wait_until(const std::function<bool()>& done) {
  if (done()) return;
  drivers_.fetch_add(1);
  waiters_.fetch_add(1);
  {
    Waiter waiter(endpoint_.doorbell(), endpoint_.waiting());
    Doorbell& peers = endpoint_.doorbell();
    for (;;) {
      const std::uint32_t seen = peers.rings();
      waiter.look();
      if (done()) break;
      if (drive()) {
        waiter.reset();
        continue;
      }
      if (done()) break;
      const microseconds until_wakeup = until(next_wakeup_.load());
      if (waiter.sleeps_next() && until_wakeup < kLongestSleep) {
        peers.sleep(seen, until_wakeup);
        poll_health();
      } else if (waiter.rest()) {
        poll_health();
      }
    }
  }
  waiters_.fetch_sub(1);
  drivers_.fetch_sub(1);
  wake();
}

bool TensorEngine::drive() {
  Due due;
  bool moved = false;
  {
    const std::unique_lock lock(drive_mutex_, std::try_to_lock);
    if (!lock) return false;
    try {
      moved = drive_locked(due);
    } catch (const std::exception& error) {
      const RequestError fault = as_request_error(error);
      endpoint_.poison(fault.kind, fault.text);
      fail_all(fault);
      collect(due);
    }
  }
  return deliver(due) || moved;
}

bool TensorEngine::deliver(Due& due) {
  if (due.empty()) return false;
  const TensorEngine* const outer = std::exchange(calling_back, this);
  due.run();
  calling_back = outer;
  if (waiters_.load() > 0) endpoint_.doorbell().ring();
  return true;
}

bool TensorEngine::drive_locked(Due& due) {
  const Clock::time_point now = Clock::now();
  if (has_inbox_.load()) take_inbox(now);
  if (job_fault_) {
    fail_all(*job_fault_);
    collect(due);
    return false;
  }
  if (endpoint_.has_fault()) endpoint_.check_fault();
  bool moved = advance_sets(now);
  moved = end_removals() || moved;
  moved = change_sets() || moved;
  publish_generations();
  collect(due);
  bool is_active = false, all_left = left_;
  Clock::time_point next_wakeup = Clock::time_point::max();
  for (const auto& [id, set] : sets_) {
    is_active = is_active || set->is_active();
    next_wakeup = std::min(next_wakeup, set->next_wakeup());
    all_left = all_left && set->has_left();
  }
  active_.store(is_active);
  next_wakeup_.store(next_wakeup);
  has_left_.store(all_left);
  return moved;
}

void TensorEngine::take_inbox(Clock::time_point now) {
  std::vector<std::unique_ptr<LocalRequest>> requests;
  std::vector<Join> joins;
  std::vector<WaitedName> waited;
  bool leaving = false;
  {
    const std::lock_guard lock(inbox_mutex_);
    requests.swap(inbox_);
    joins.swap(joins_);
    waited.swap(waited_names_);
    leaving = leaving_ && !left_;
    has_inbox_.store(false);
  }
  for (auto& request : requests) {
    const auto set = sets_.find(request->process_set);
    if (set != sets_.end()) {
      set->second->submit(std::move(request), now);
      continue;
    }
    // It has waited for an earlier one of its name, whose set has been removed meanwhile.
    const RequestError removed{ErrorKind::kInvalidArgument, "the process set has been removed"};
    for (LocalTensor& tensor : request->tensors) due_.completions.push_back({std::move(tensor), removed, {}, {}});
  }
  for (const auto& [name, waiting] : waited) {
    const auto set = sets_.find(name.first);
    if (set != sets_.end()) set->second->wait_for(name.second, waiting);
  }
  for (const Join& each : joins) sets_.at(each.process_set)->join(each.context, each.done);
  if (leaving) {
    left_ = true;
    for (const auto& [id, set] : sets_) set->leave(Departure::kLeavesJob);
  }
}

bool TensorEngine::advance_sets(Clock::time_point now) {
  const bool blocked = is_blocked();
  bool moved = false;
  for (const auto& [id, set] : sets_) moved = set->advance(blocked, now) || moved;
  return moved;
}

/// Before the callbacks: a step that begins after one of them has failed another is of the new generation.
void TensorEngine::publish_generations() {
  for (const auto& [id, set] : sets_) {
    // Written with both mutexes held, so that the one that is held here is enough to read.
    const auto info = set_infos_.find(id);
    if (info == set_infos_.end() || info->second.generation == set->negotiator().generation()) continue;
    const std::lock_guard lock(inbox_mutex_);
    info->second.generation = set->negotiator().generation();
  }
}

/// Nothing will come until something is done: the one thread that ever submitted waits, or the whole rank stands still.
bool TensorEngine::is_blocked() const {
  return (pending_waits_.load() > 0 && !many_submitters_.load()) || standstill_.holds(happenings());
}

void TensorEngine::collect(Due& due) {
  for (const auto& [id, set] : sets_) set->take_due(due);
  due.take(due_);
}

void TensorEngine::fail_all(const RequestError& error) {
  {
    const std::lock_guard lock(inbox_mutex_);
    if (!fault_) fault_ = error;
  }
  job_fault_ = error;
  take_inbox(Clock::now());
  for (const auto& [id, set] : sets_) set->fail(error);
  for (Removal& removal : std::exchange(removals_, {})) answer(std::move(removal.entry), -1, error);
  active_.store(false);
  next_wakeup_.store(Clock::time_point::max());
}

}  // namespace farandole
