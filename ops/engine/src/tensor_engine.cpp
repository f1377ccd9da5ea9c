// SPDX-License-Identifier: Apache-2.0
#include "tensor_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "farandole/internal/communicator_access.h"
#include "farandole/internal/library_thread.h"
#include "farandole/internal/log.h"

namespace farandole {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Time for which a submitting thread drives the only pending request: enough for a negotiation and a small batch if all
// ranks submit at about the same time.
constexpr microseconds kInlineBudget{60};
constexpr milliseconds kMaxSleep{100};  // the liveness of peers is checked at least this often
constexpr std::chrono::seconds kIdleSleep{3600};
/// Name of every request that adds or removes a process set. All such requests have the same name, so that the ranks
/// compare them: ranks that add or remove different sets get a Mismatch.
constexpr const char* kSetChanges = "process sets";

/// Time left until `time`; 0 if it has passed.
microseconds until(Clock::time_point time) {
  if (time == Clock::time_point::max()) return kIdleSleep;
  const auto now = Clock::now();
  return time <= now ? microseconds(0) : std::chrono::duration_cast<microseconds>(time - now);
}

/// Engine whose callbacks run on this thread; nested submits are only queued, because callbacks that submit and drive
/// recursively could overflow the stack.
thread_local const TensorEngine* calling_back = nullptr;

/// @throws Unsupported  MPI allows only the main thread
Endpoint& endpoint_for_any_thread(const Communicator& communicator) {
  Endpoint& endpoint = internals(communicator).endpoint();
  if (!endpoint.progress().usable_from_any_thread()) {
    throw Unsupported(
        "the engine needs an MPI that any thread may call: initialise MPI with MPI_THREAD_MULTIPLE, or let Farandole "
        "initialise it");
  }
  if (endpoint.progress().shares_vendor_with_program() && communicator.rank() == 0) {
    log(LogLevel::kWarning,
        "MPI runs with MPI_THREAD_SERIALIZED, and the engine calls it from a thread of its own at any time: until "
        "farandole_shutdown (farandole.shutdown() in Python) the program must not call MPI; or initialise MPI with "
        "MPI_THREAD_MULTIPLE");
  }
  return endpoint;
}

}  // namespace

TensorEngine::TensorEngine(Communicator communicator, int first_set)
    : communicator_(std::move(communicator)),
      endpoint_(endpoint_for_any_thread(communicator_)),
      device_(communicator_),
      inbox_(communicator_.rank(), endpoint_),
      sets_(communicator_, inbox_, timeline_, first_set),
      health_(communicator_.rank(), endpoint_) {
  start_timeline_of_settings();
  try {
    thread_ = start_library_thread([this](const std::stop_token& stop) { run(stop); });
  } catch (const std::system_error& error) {
    throw Unsupported(fmt::format(
        "the engine's thread cannot be started ({}); raise the limits on processes and threads (ulimit -u, or "
        "pids.max of the control group)",
        error.code().message()));
  }
}

TensorEngine::~TensorEngine() {
  if (!has_left_.load() && !endpoint_.faults().exist() && communicator_.size() > 1) {
    abort("the engine was destroyed without leaving the job");
  }
  thread_.request_stop();
  wake();
  if (thread_.joinable()) thread_.join();
  do {  // repeat: when a request fails, the inbox admits the next request of its name, which must fail, too
    fail({ErrorKind::kPeerLost, "the engine has been stopped"});
    DueCallbacks due;
    sets_.take_due(due);
    (void)deliver(due);
  } while (inbox_.has_items());
}

/// Only warns if the timeline cannot be written, because the job can go on.
void TensorEngine::start_timeline_of_settings() {
  const Settings& settings = endpoint_.settings();
  if (settings.engine.timeline == "off") return;
  try {
    start_timeline(settings.engine.timeline, settings.engine.timeline_cycles);
  } catch (const InvalidArgument& error) {
    log(LogLevel::kWarning, error.message());
  }
}

void TensorEngine::start_timeline(const std::string& path, bool mark_cycles) {
  if (communicator_.rank() == 0) timeline_.start(path, mark_cycles);
}

void TensorEngine::wake() {
  bell_.ring();
  endpoint_.progress().doorbell().ring();
}

// ---- Requests -----------------------------------------------------------------------------------------------------

/// A device failure poisons the job.
void TensorEngine::prepare(LocalRequest& request) {
  try {
    device_.prepare(request);
  } catch (const DeviceError& error) {
    endpoint_.faults().poison(error.kind(), error.message());
    wake();
    throw;
  }
}

void TensorEngine::submit(LocalRequest&& request) {
  const bool caller_waits = request.waiting == Waiting::kCaller;
  const bool is_only_pending = inbox_.submit(std::move(request));
  if (calling_back == this) return;
  if (caller_waits || is_only_pending) {
    drive_until(caller_waits ? Clock::time_point::max() : Clock::now() + kInlineBudget);
  } else {
    wake();
  }
}

void TensorEngine::refuse(LocalRequest&& request) {
  if (inbox_.refuse(std::move(request))) wake();
}

void TensorEngine::join(int process_set, void* context, JoinCallback done) {
  inbox_.join({process_set, context, done});
  wake();
}

void TensorEngine::leave() {
  inbox_.leave();
  wait_until([this] { return has_left_.load() || endpoint_.faults().exist(); });
}

void TensorEngine::abort(const std::string& text) {
  communicator_.abort(text);
  wake();
}

// ---- Driving ------------------------------------------------------------------------------------------------------

/// Main function of the engine's thread. The thread does not drive while a caller's thread drives. It sleeps on `bell_`
/// while a caller's thread drives or the engine is quiet, and on the peers' doorbell while the engine waits for other
/// ranks or for data.
void TensorEngine::run(const std::stop_token& stop) {
  // Frameworks compute on all cores, so this thread yields from the start, and soon sleeps.
  Waiter::Options options = endpoint_.progress().waiting();
  options.oversubscribed = true;
  Doorbell& peers = endpoint_.progress().doorbell();
  std::optional<Waiter> own_waiter(std::in_place, peers, options);
  for (;;) {
    if (!options.polled && endpoint_.progress().waiting().polled) {  // a device has been opened
      options.polled = true;
      own_waiter.emplace(peers, options);
    }
    Waiter& waiter = *own_waiter;
    const std::uint32_t seen = bell_.rings();
    if (stop.stop_requested()) return;  // tested after reading `seen`, because the destructor stops, then rings
    if (drivers_.load() > 0) {
      waiter.reset();
      bell_.sleep(seen, kMaxSleep);
      continue;
    }
    const std::uint32_t seen_peers = peers.rings();
    waiter.look();
    if (drive()) {
      waiter.reset();
      continue;
    }
    const microseconds until_wakeup = until(next_wakeup_.load());
    if (inbox_.has_items() || until_wakeup.count() <= 0) continue;
    if (!active_.load()) {
      waiter.reset();
      bell_.sleep(seen, until_wakeup);
    } else if (waiter.sleeps_next() && until_wakeup < kMaxSleep) {
      peers.sleep(seen_peers, options.polled ? std::min(until_wakeup, microseconds(1000)) : until_wakeup);
      poll_health();
    } else if (waiter.rest()) {
      poll_health();
    }
  }
}

/// Drives on the submitting thread, so that its request needs no switch of threads. Afterwards the engine's thread
/// takes over if anything is left.
void TensorEngine::drive_until(Clock::time_point end) {
  drivers_.fetch_add(1);
  Waiter waiter(endpoint_.progress().doorbell(), endpoint_.progress().waiting());
  while (inbox_.has_pending()) {
    if (drive()) {
      waiter.reset();
      continue;
    }
    const bool has_wakeup = next_wakeup_.load() != Clock::time_point::max();
    if (waiter.sleeps_next() || has_wakeup || Clock::now() >= end) break;
    (void)waiter.rest();
  }
  drivers_.fetch_sub(1);
  if (!is_quiet() || inbox_.has_items()) wake();
}

void TensorEngine::wait_until(const std::function<bool()>& done) {
  if (done()) return;
  drivers_.fetch_add(1);
  waiters_.fetch_add(1);
  {
    Waiter waiter(endpoint_.progress().doorbell(), endpoint_.progress().waiting());
    Doorbell& peers = endpoint_.progress().doorbell();
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
      if (waiter.sleeps_next() && until_wakeup < kMaxSleep) {
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

/// If the process sets throw, poisons the job, so that every other rank gets the error, and fails all requests of this
/// rank.
bool TensorEngine::drive() {
  DueCallbacks due;
  bool moved = false;
  {
    const std::unique_lock lock(drive_mutex_, std::try_to_lock);
    if (!lock) return false;
    try {
      moved = drive_locked(due);
    } catch (const std::exception& error) {
      const RequestError fault = as_request_error(error);
      endpoint_.faults().poison(fault.kind, fault.text);
      fail(fault);
      sets_.take_due(due);
    }
  }
  return deliver(due) || moved;
}

bool TensorEngine::deliver(DueCallbacks& due) {
  if (due.empty()) return false;
  const TensorEngine* const outer = std::exchange(calling_back, this);
  due.run();
  calling_back = outer;
  if (waiters_.load() > 0) endpoint_.progress().doorbell().ring();
  return true;
}

bool TensorEngine::drive_locked(DueCallbacks& due) {
  const Clock::time_point now = Clock::now();
  if (inbox_.has_items()) sets_.take_inbox(now);
  if (sets_.fault()) {
    fail(*sets_.fault());
    sets_.take_due(due);
    return false;
  }
  if (endpoint_.faults().exist()) endpoint_.faults().check();
  const bool moved = sets_.advance(is_blocked(), now);
  sets_.take_due(due);
  const ProcessSets::Status status = sets_.status();
  active_.store(status.is_active);
  next_wakeup_.store(status.next_wakeup);
  has_left_.store(status.has_left);
  return moved;
}

void TensorEngine::fail(const RequestError& error) {
  sets_.fail(error);
  active_.store(false);
  next_wakeup_.store(Clock::time_point::max());
}

void TensorEngine::poll_health() {
  health_.poll_peers();
  const std::unique_lock lock(drive_mutex_, std::try_to_lock);
  if (lock && !sets_.fault()) health_.check(sets_, inbox_.progress_count(), Clock::now());
}

farandole_counters TensorEngine::counters() {
  const std::lock_guard lock(drive_mutex_);
  farandole_counters sum = sets_.counters();
  sum.struct_bytes = sizeof sum;
  sum.requests = inbox_.requests();
  sum.sent_bytes = internals(communicator_).sent_bytes();
  sum.host_waits += device_.host_waits();
  return sum;
}

// ---- Process sets -------------------------------------------------------------------------------------------------

std::int64_t TensorEngine::run_set_request(RequestKind kind, std::vector<std::int64_t> arguments) {
  struct Answer {
    std::atomic<bool> done{false};
    std::int64_t id = -1;
    std::optional<RequestError> error;
  } answer;
  LocalRequest request;
  request.spec.name = kSetChanges;
  request.spec.kind = kind;
  request.spec.arguments = std::move(arguments);
  LocalTensor& tensor = request.tensors.emplace_back();
  tensor.context = &answer;
  tensor.done = [](void* context, const farandole_result* result) {
    auto& to = *static_cast<Answer*>(context);
    if (result->error != nullptr) to.error = RequestError{result->error->kind, result->error->text};
    if (result->dimensions > 0) to.id = result->shape[0];
    to.done.store(true);
  };
  request.waiting = Waiting::kCaller;
  submit(std::move(request));
  wait_until([&] { return answer.done.load(); });
  if (answer.error) throw_error(answer.error->kind, answer.error->text);
  return answer.id;
}

void TensorEngine::refuse_set_change(const std::string& why) {
  LocalRequest refusal;
  refusal.spec.name = kSetChanges;
  refusal.spec.kind = RequestKind::kRefused;
  refusal.spec.about = why;
  refusal.tensors.emplace_back();
  refuse(std::move(refusal));
  throw InvalidArgument(why);
}

int TensorEngine::add_process_set(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  const bool fits = !ranks.empty() && ranks.front() >= 0 && ranks.back() < communicator_.size() &&
                    std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end();
  if (!fits) {
    refuse_set_change(fmt::format("a process set needs different ranks between 0 and {}; these are [{}]",
                                  communicator_.size() - 1, fmt::join(ranks, ", ")));
  }
  return static_cast<int>(run_set_request(RequestKind::kAddSet, {ranks.begin(), ranks.end()}));
}

void TensorEngine::remove_process_set(int process_set) {
  if (process_set == FARANDOLE_GLOBAL_SET || !ranks_of(process_set)) {
    refuse_set_change(fmt::format("process set {} cannot be removed: {}", process_set,
                                  process_set == FARANDOLE_GLOBAL_SET ? "it is that of all ranks" : "there is none"));
  }
  (void)run_set_request(RequestKind::kRemoveSet, {process_set});
}

}  // namespace farandole
