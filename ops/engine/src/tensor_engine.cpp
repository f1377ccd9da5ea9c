#include "tensor_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "farandole/core/log.h"
#include "farandole/core/world.h"

namespace farandole {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A submitting thread moves a lonely request on for this long: with ranks in step, that is all that it takes.
constexpr microseconds kInlineBudget{60};
// One whose thread waits anyway may take longer, up to the moment when it would sleep.
constexpr microseconds kBlockedBudget{2000};
constexpr milliseconds kLongestSleep{100};  // the liveness of peers is looked at this often
constexpr std::chrono::seconds kIdleSleep{3600};

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

/// True while this thread runs callbacks. What they submit is moved on after them: nested, callbacks that submit again
/// could fill the stack.
thread_local bool in_callbacks = false;

void add_counters(const SetEngine& set, farandole_counters& sum) {
  sum.rounds += set.negotiator().counters().rounds;
  sum.named += set.negotiator().counters().named;
  sum.broken_buckets += set.negotiator().counters().broken_buckets;
  sum.buckets += set.flight_counters().collectives;
  sum.packed_tensors += set.flight_counters().packed_tensors;
  sum.packed_bytes += set.flight_counters().packed_bytes;
  sum.reduced_bytes += set.flight_counters().reduced_bytes;
}

RequestError as_error(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return {known != nullptr ? known->kind() : ErrorKind::kInternal, error.what()};
}

}  // namespace

TensorEngine::TensorEngine(Communicator communicator)
    : communicator_(std::move(communicator)), endpoint_(communicator_.endpoint()) {
  if (!endpoint_.usable_from_any_thread()) {
    throw Unsupported(
        "the engine needs an MPI that any thread may call: initialise MPI with MPI_THREAD_MULTIPLE, or let Farandole "
        "initialise it");
  }
  const std::vector<int> ranks = all_ranks(communicator_.size());
  set_infos_[FARANDOLE_GLOBAL_SET] = {ranks, true};
  sets_[FARANDOLE_GLOBAL_SET] =
      std::make_unique<SetEngine>(ranks, communicator_.duplicate(), communicator_.duplicate());
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

TensorEngine::~TensorEngine() {
  if (!has_left_.load() && !endpoint_.has_fault() && communicator_.size() > 1) {
    abort("the engine was destroyed without leaving the job");
  }
  thread_.request_stop();
  wake();
  if (thread_.joinable()) thread_.join();
  fail_all({ErrorKind::kPeerLost, "the engine has been stopped"});
  std::vector<Completion> completions;
  std::vector<SetEngine::Joined> joined;
  collect(completions, joined);
  (void)deliver(completions, joined);
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
  if (names_.contains({request.process_set, request.spec.name})) {
    throw DuplicateName(fmt::format(
        "{}: a request of this name is pending on rank {}; give each a name of its own, or wait for the first",
        describe(request.spec), communicator_.rank()));
  }
}

void TensorEngine::submit(LocalRequest&& request) {
  const bool caller_waits = request.caller_waits;
  bool is_lonely = false;
  {
    const std::lock_guard lock(inbox_mutex_);
    check_submission(request);
    const auto self = std::this_thread::get_id();
    if (!submitter_) submitter_ = self;
    if (*submitter_ != self) many_submitters_.store(true);
    names_.emplace(request.process_set, request.spec.name);
    is_lonely = pending_.fetch_add(1) == 0;
    if (caller_waits) pending_waits_.fetch_add(1);
    const std::shared_ptr<void> registration(
        nullptr, [this, caller_waits, key = std::pair(request.process_set, request.spec.name)](void*) {
          const std::lock_guard locked(inbox_mutex_);
          names_.erase(key);
          pending_.fetch_sub(1);
          if (caller_waits) pending_waits_.fetch_sub(1);
        });
    for (LocalTensor& tensor : request.tensors) tensor.registration = registration;
    request.ticket = next_ticket_.fetch_add(1);
    request.since = Clock::now();
    inbox_.push_back(std::make_unique<LocalRequest>(std::move(request)));
    has_inbox_.store(true);
  }
  requests_.fetch_add(1, std::memory_order_relaxed);
  if ((caller_waits || is_lonely) && !in_callbacks) {
    drive_for(caller_waits ? kBlockedBudget : kInlineBudget, caller_waits);
  } else {
    wake();
  }
}

void TensorEngine::join(int process_set, void* context, SetEngine::JoinCallback done) {
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
  // Frameworks compute on all cores: this thread yields from the start.
  Waiter::Options options = endpoint_.waiting();
  options.crowded = true;
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
    const microseconds until_wish = until(wish_.load());
    if (has_inbox_.load() || until_wish.count() <= 0) continue;
    if (!active_.load()) {
      waiter.reset();
      bell_.sleep(seen, until_wish);
    } else if (waiter.sleeps_next() && until_wish < kLongestSleep) {
      peers.sleep(seen_peers, options.polled ? std::min(until_wish, microseconds(1000)) : until_wish);
      look_around();
    } else if (waiter.rest()) {
      look_around();
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
    if (waiter.sleeps_next() || (!until_sleep && Clock::now() >= end) || wish_.load() != Clock::time_point::max())
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
      const microseconds until_wish = until(wish_.load());
      if (waiter.sleeps_next() && until_wish < kLongestSleep) {
        peers.sleep(seen, until_wish);
        look_around();
      } else if (waiter.rest()) {
        look_around();
      }
    }
  }
  waiters_.fetch_sub(1);
  drivers_.fetch_sub(1);
  wake();
}

bool TensorEngine::drive() {
  std::vector<Completion> completions;
  std::vector<SetEngine::Joined> joined;
  bool moved = false;
  {
    const std::unique_lock lock(drive_mutex_, std::try_to_lock);
    if (!lock) return false;
    try {
      moved = drive_locked(completions, joined);
    } catch (const std::exception& error) {
      const RequestError fault = as_error(error);
      endpoint_.poison(fault.kind, fault.text);
      fail_all(fault);
      collect(completions, joined);
    }
  }
  return deliver(completions, joined) || moved;
}

bool TensorEngine::deliver(std::vector<Completion>& completions, const std::vector<SetEngine::Joined>& joined) {
  if (completions.empty() && joined.empty()) return false;
  const bool is_nested = std::exchange(in_callbacks, true);
  for (Completion& completion : completions) completion.run();
  finish(joined);
  in_callbacks = is_nested;
  if (waiters_.load() > 0) endpoint_.doorbell().ring();
  return true;
}

bool TensorEngine::drive_locked(std::vector<Completion>& completions, std::vector<SetEngine::Joined>& joined) {
  const Clock::time_point now = Clock::now();
  if (has_inbox_.load()) take_inbox(now);
  if (job_fault_) {
    fail_all(*job_fault_);
    collect(completions, joined);
    return false;
  }
  if (endpoint_.has_fault()) endpoint_.check_fault();
  bool moved = advance_sets(now);
  moved = end_removals() || moved;
  moved = change_sets() || moved;
  collect(completions, joined);
  bool is_active = false, all_left = left_;
  Clock::time_point wish = Clock::time_point::max();
  for (const auto& [id, set] : sets_) {
    is_active = is_active || set->is_active();
    wish = std::min(wish, set->wish());
    all_left = all_left && set->has_left();
  }
  active_.store(is_active);
  wish_.store(wish);
  has_left_.store(all_left);
  return moved;
}

void TensorEngine::take_inbox(Clock::time_point now) {
  std::vector<std::unique_ptr<LocalRequest>> requests;
  std::vector<Join> joins;
  bool leaving = false;
  {
    const std::lock_guard lock(inbox_mutex_);
    requests.swap(inbox_);
    joins.swap(joins_);
    leaving = leaving_ && !left_;
    has_inbox_.store(false);
  }
  for (auto& request : requests) {
    SetEngine& set = *sets_.at(request->process_set);
    set.submit(std::move(request), now);
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

/// The one thread that ever submitted waits: nothing will come until something is done.
bool TensorEngine::is_blocked() const {
  return pending_waits_.load() > 0 && !many_submitters_.load();
}

void TensorEngine::collect(std::vector<Completion>& completions, std::vector<SetEngine::Joined>& joined) {
  for (const auto& [id, set] : sets_) {
    std::move(set->completions.begin(), set->completions.end(), std::back_inserter(completions));
    set->completions.clear();
    joined.insert(joined.end(), set->joined.begin(), set->joined.end());
    set->joined.clear();
  }
}

void TensorEngine::finish(const std::vector<SetEngine::Joined>& joined) {
  for (const auto& join : joined) {
    farandole_error failure;
    if (join.error) failure = {join.error->kind, join.error->text};
    if (join.done != nullptr) join.done(join.context, join.error ? &failure : nullptr, join.last_rank);
  }
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
  wish_.store(Clock::time_point::max());
}

// ---- Process sets -------------------------------------------------------------------------------------------------

bool TensorEngine::change_sets() {
  auto& changes = sets_.at(FARANDOLE_GLOBAL_SET)->set_changes;
  bool changed = false;
  while (!changes.empty()) {
    FlightEntry next = std::move(changes.front());
    changes.erase(changes.begin());
    change_set(std::move(next));
    changed = true;
  }
  return changed;
}

void TensorEngine::change_set(FlightEntry entry) {
  if (entry.spec->kind == RequestKind::kAddSet) {
    try {
      const int id = make_set(entry.spec->arguments);
      answer(std::move(entry), id, std::nullopt);
    } catch (const InvalidArgument& error) {
      answer(std::move(entry), -1, as_error(error));
    } catch (const std::exception& error) {
      answer(std::move(entry), -1, as_error(error));
      throw;
    }
    return;
  }
  const int id = static_cast<int>(entry.spec->arguments.front());
  {
    const std::lock_guard lock(inbox_mutex_);
    set_infos_.erase(id);
  }
  const auto found = sets_.find(id);
  if (found != sets_.end()) found->second->leave(Departure::kSetRemoved);
  removals_.push_back({id, std::move(entry)});
}

void TensorEngine::answer(FlightEntry entry, std::int64_t process_set, const std::optional<RequestError>& error) {
  for (LocalTensor& tensor : entry.local->tensors) {
    sets_.at(FARANDOLE_GLOBAL_SET)->completions.push_back({std::move(tensor), error, {process_set}, {}});
  }
}

/// A set goes when all its ranks have left it: others may wait in rounds and collectives that need this rank. What was
/// submitted to it before its removal has been taken from the inbox by then.
bool TensorEngine::end_removals() {
  bool ended = false;
  for (auto removal = removals_.begin(); removal != removals_.end();) {
    const auto set = sets_.find(removal->process_set);
    if (set != sets_.end()) {
      if (!set->second->has_left()) {
        ++removal;
        continue;
      }
      SetEngine& global = *sets_.at(FARANDOLE_GLOBAL_SET);
      std::move(set->second->completions.begin(), set->second->completions.end(),
                std::back_inserter(global.completions));
      global.joined.insert(global.joined.end(), set->second->joined.begin(), set->second->joined.end());
      add_counters(*set->second, removed_counters_);
      sets_.erase(set);
    }
    answer(std::move(removal->entry), removal->process_set, std::nullopt);
    removal = removals_.erase(removal);
    ended = true;
  }
  return ended;
}

/// All ranks of the job do this at the same point of what they have agreed on, so the ids are the same.
/// @throws InvalidArgument  on all ranks: there are too many communicators on one
int TensorEngine::make_set(const std::vector<std::int64_t>& wanted) {
  const std::vector<int> ranks(wanted.begin(), wanted.end());
  {
    const std::lock_guard lock(inbox_mutex_);
    for (const auto& [id, info] : set_infos_) {
      if (info.ranks == ranks) return id;
    }
  }
  const bool is_member = std::find(ranks.begin(), ranks.end(), communicator_.rank()) != ranks.end();
  std::string problem;
  const auto split = [&] {
    try {
      return communicator_.split(is_member ? 0 : -1, communicator_.rank());
    } catch (const InvalidArgument& error) {
      problem = error.what();
      return Communicator();
    }
  };
  Communicator control = split();
  Communicator data = split();
  // Only members see it.
  std::vector<std::uint8_t> is_made{problem.empty() ? std::uint8_t{1} : std::uint8_t{0}};
  communicator_.allreduce(is_made, ReduceOp::kMin);
  if (is_made.front() == 0) {
    throw InvalidArgument(fmt::format("the process set of ranks [{}] can not be made: {}", fmt::join(ranks, ", "),
                                      problem.empty() ? "its members have no room for it" : problem));
  }
  const int id = next_set_++;
  if (is_member) sets_[id] = std::make_unique<SetEngine>(ranks, std::move(control), std::move(data));
  const std::lock_guard lock(inbox_mutex_);
  set_infos_[id] = {ranks, is_member};
  return id;
}

std::int64_t TensorEngine::run_set_request(RequestSpec&& spec) {
  struct Answer {
    std::atomic<bool> done{false};
    std::int64_t id = -1;
    std::optional<RequestError> error;
  } answer;
  LocalRequest request;
  request.spec = std::move(spec);
  LocalTensor& tensor = request.tensors.emplace_back();
  tensor.context = &answer;
  tensor.done = [](void* context, const farandole_result* result) {
    auto& to = *static_cast<Answer*>(context);
    if (result->error != nullptr) to.error = RequestError{result->error->kind, result->error->text};
    if (result->dimensions > 0) to.id = result->shape[0];
    to.done.store(true);
  };
  request.caller_waits = true;
  submit(std::move(request));
  wait_until([&] { return answer.done.load(); });
  if (answer.error) throw_error(answer.error->kind, answer.error->text);
  return answer.id;
}

int TensorEngine::add_process_set(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  const bool fits = !ranks.empty() && ranks.front() >= 0 && ranks.back() < communicator_.size() &&
                    std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end();
  if (!fits) {
    throw InvalidArgument(fmt::format("a process set needs different ranks between 0 and {}; these are [{}]",
                                      communicator_.size() - 1, fmt::join(ranks, ", ")));
  }
  RequestSpec spec;
  spec.kind = RequestKind::kAddSet;
  spec.arguments.assign(ranks.begin(), ranks.end());
  // One name for all: ranks that add different sets are told so.
  spec.name = "process sets";
  return static_cast<int>(run_set_request(std::move(spec)));
}

void TensorEngine::remove_process_set(int process_set) {
  if (process_set == FARANDOLE_GLOBAL_SET || !ranks_of(process_set)) {
    throw InvalidArgument(
        fmt::format("process set {} can not be removed: {}", process_set,
                    process_set == FARANDOLE_GLOBAL_SET ? "it is that of all ranks" : "there is none"));
  }
  RequestSpec spec;
  spec.kind = RequestKind::kRemoveSet;
  spec.name = "process sets";
  spec.arguments = {process_set};
  (void)run_set_request(std::move(spec));
}

std::optional<std::vector<int>> TensorEngine::ranks_of(int process_set) {
  const std::lock_guard lock(inbox_mutex_);
  const auto found = set_infos_.find(process_set);
  if (found == set_infos_.end()) return std::nullopt;
  return found->second.ranks;
}

std::vector<int> TensorEngine::process_sets() {
  const std::lock_guard lock(inbox_mutex_);
  std::vector<int> ids;
  for (const auto& [id, info] : set_infos_) ids.push_back(id);
  return ids;
}

// ---- Slow paths ---------------------------------------------------------------------------------------------------

void TensorEngine::look_around() {
  try {
    endpoint_.look_around();
  } catch (const std::exception& error) {
    endpoint_.poison(ErrorKind::kTransportError, error.what());
  }
  const std::unique_lock lock(drive_mutex_, std::try_to_lock);
  if (lock && !job_fault_) check_stall(Clock::now());
}

void TensorEngine::check_stall(Clock::time_point now) {
  const SetEngine* late = nullptr;
  Clock::time_point oldest = Clock::time_point::max();
  for (const auto& [id, set] : sets_) {
    const auto since = set->negotiator().oldest();
    if (since && *since < oldest) {
      oldest = *since;
      late = set.get();
    }
  }
  const Settings& settings = endpoint_.settings();
  if (oldest != stalled_since_) warning_interval_ = settings.warn_after;
  stalled_since_ = oldest;
  if (late == nullptr) return;
  const Seconds waited = now - oldest;
  if (settings.timeout.count() > 0 && waited >= settings.timeout) {
    endpoint_.poison(
        ErrorKind::kTimeout,
        fmt::format("the deadline of {} s (FARANDOLE_TIMEOUT) has passed on rank {} for {}", settings.timeout.count(),
                    communicator_.rank(), late->negotiator().describe_waiting()));
  } else if (waited >= warning_interval_) {
    log(LogLevel::kWarning,
        fmt::format("waiting for {:.1f} s for {}; other ranks have not submitted the same, or not reached it yet",
                    waited.count(), late->negotiator().describe_waiting()));
    warning_interval_ *= 2;
  }
}

farandole_counters TensorEngine::counters() {
  const std::lock_guard lock(drive_mutex_);
  farandole_counters sum = removed_counters_;
  sum.struct_bytes = sizeof sum;
  sum.requests = requests_.load();
  for (const auto& [id, set] : sets_) add_counters(*set, sum);
  sum.sent_bytes = communicator_.sent_bytes();
  return sum;
}

}  // namespace farandole
