#include "job.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "agreement.h"
#include "farandole/core/forked_children.h"
#include "farandole/core/log.h"
#include "from_peers.h"
#include "patience.h"
#include "private_file.h"

namespace farandole {
namespace {

// Launchers end the survivors of a crash at once; who looks more often than that can still say who died.
constexpr auto kLivenessInterval = std::chrono::milliseconds(1);
// What a process has said last may be seen after its death. Counts only in the last moments of a job.
constexpr auto kLastWords = std::chrono::milliseconds(100);
// Who waits for others to leave asks them how far they are, for its warning.
constexpr double kFirstQuestion = 0.25;  // of the time until the first warning
constexpr auto kNextQuestion = std::chrono::seconds(1);

constexpr const char* kEnded =
    "the World of this communicator has ended: keep the World for as long as its communicators are used";

Notice make_notice(Notice::Kind kind, int process, int rank, std::string_view text = {}) {
  Notice notice;
  notice.kind = kind;
  notice.process = process;
  notice.rank = rank;
  text.copy(notice.text, sizeof notice.text - 1);
  return notice;
}

std::string text_of(const Notice& notice) {
  return {notice.text, strnlen(notice.text, sizeof notice.text)};
}

void mark_in_child(Job& job) {
  job.become_forked_child();
}
using JobsInChildren = ForkedChildren<Job, mark_in_child>;

}  // namespace

/// What each process tells all others when they meet.
struct Job::Introduction {
  HostProof::Claim claim;
  CoreSet cores;
  ProcessIdentity identity;
  int replicas = 1;
};
/// What each process finds out then, and tells all others.
struct Job::Surroundings {
  int neighbour = 0;  // the first process of the same host
  bool crowded = false;
  HostMemory::Claim memory;
};

Job::Job(const WorldOptions& options)
    : one_world_(std::in_place, options.alone), settings_(Settings::from_environment()) {
  if (options.replicas < 1 || options.replicas > kMaxReplicas) {
    throw InvalidArgument(fmt::format("replicas is {}; it must be 1 … {}", options.replicas, kMaxReplicas));
  }
  name_in_log(fmt::format("pid {}", getpid()));
  join(options);
  introduce(options);
  const int first = topology_->first_rank_of(process_);
  name_in_log(fmt::format("rank {} {}", first, topology_->process(process_).hostname));
  inproc_ = std::make_unique<InprocTransport>(first, options.replicas,
                                              [this, first](int rank) { endpoint(rank - first).ring(); });
  for (int i = 0; i < options.replicas; ++i) endpoints_.push_back(std::make_unique<Endpoint>(*this, first + i));
  waiting_ = waiting_options(/*progress_thread=*/false);
  const ThreadUse threads = group_ ? group_->thread_use() : ThreadUse::kAnyThread;
  if (threads != ThreadUse::kMainThreadOnly) {
    progress_ = std::make_unique<ProgressThread>(waiting_options(/*progress_thread=*/true), memory_->header().progress,
                                                 /*rests=*/threads == ThreadUse::kOneThreadAtATime);
  }
  one_world_->set_place(topology_->describe(first));
  JobsInChildren::add(this);
}

void Job::name_in_log(std::string_view who) const {
  if (one_world_->names_the_log()) configure_log(parse_log_level(settings_.log_level), who);
}

void Job::join(const WorldOptions& options) {
  const JoinOptions join_options{options.mpi_communicator, options.mpi_from_any_thread};
  BackendChoice choice;
  if (!options.alone) choice = choose_backend(settings_, join_options);
  if (choice.plugin.empty()) {
    backend_description_ = "none (" + (options.alone ? "this process alone" : choice.reason) + ")";
  } else {
    Backend& backend = load_backend(choice.plugin, settings_);
    group_ = backend.join(settings_, join_options);
    process_ = group_->process();
    backend_description_ = fmt::format("{} ({})", backend.version(), choice.reason);
    if (options.replicas > 1 && group_->thread_use() == ThreadUse::kMainThreadOnly) {
      throw Unsupported(fmt::format("{} replicas per process need an MPI that any thread may call: {}",
                                    options.replicas, group_->thread_advice()));
    }
  }
  check_size(options, options.mpi_communicator ? 0 : choice.launched_size);
}

void Job::check_size(const WorldOptions& options, int launched_size) const {
  const int processes = group_ ? group_->process_count() : 1;
  if (!options.alone && launched_size > 0 && launched_size != processes && settings_.mpi != "off") {
    throw InvalidArgument(fmt::format(
        "the launcher started {} processes, but {} sees {}: the program was started by the launcher of another MPI; "
        "start it with the mpirun that belongs to this MPI, or set FARANDOLE_MPI",
        launched_size, backend_description_, processes));
  }
}

void Job::introduce(const WorldOptions& options) {
  const int count = group_ ? group_->process_count() : 1;
  // By this process's own settings: what holds for all is agreed on when each knows who the others are.
  const bool may_share = count > 1 && settings_.shared_memory != "off";
  const HostProof proof(settings_.host_id, /*publishes=*/may_share);
  Introduction mine;
  mine.claim = proof.claim();
  mine.cores = allowed_cores();
  mine.identity = own_identity();
  mine.replicas = options.replicas;
  std::vector<Introduction> all(static_cast<std::size_t>(count), mine);
  if (group_) group_->allgather(&mine, all.data(), sizeof mine);
  for (int p = 0; p < count; ++p) {
    const Introduction& other = all[static_cast<std::size_t>(p)];
    check_claim(p, other.claim, other.replicas);
  }

  Surroundings around;
  around.neighbour = process_;
  HostMemory::Options memory{/*sharing=*/1, /*copies=*/settings_.single_copy_bytes > 0,
                             static_cast<std::uint64_t>(settings_.window_bytes)};
  for (int p = count - 1; p >= 0; --p) {
    const Introduction& other = all[static_cast<std::size_t>(p)];
    if (!proof.shares_machine_with(other.claim)) continue;
    ranks_here_ += other.replicas;
    cores_here_ |= other.cores;
    if (p == process_ || !proof.shares_host_with(other.claim)) continue;
    around.neighbour = std::min(around.neighbour, p);
    if (may_share) ++memory.sharing;
  }
  around.crowded = is_crowded(1);
  memory_ = std::make_unique<HostMemory>(count, process_, memory);
  around.memory = memory_->claim();
  std::vector<Surroundings> found(static_cast<std::size_t>(count), around);
  // The proofs must stay open until everybody has looked: this gathering is also that barrier.
  if (group_) group_->allgather(&around, found.data(), sizeof around);

  std::vector<int> neighbours;
  for (const Surroundings& of_process : found) neighbours.push_back(of_process.neighbour);
  const std::vector<int> hosts = host_indices(neighbours);
  std::vector<ProcessInfo> processes;
  int ranks = 0;
  for (std::size_t p = 0; p < all.size(); ++p) {
    processes.push_back({hosts[p], all[p].replicas, all[p].claim.pid, all[p].claim.hostname, found[p].crowded});
    ranks += all[p].replicas;
  }
  topology_.emplace(std::move(processes));
  stragglers_.emplace(*topology_, process_, [this](int rank, std::uint32_t communicator) {
    const Endpoint& asked = *endpoints_[static_cast<std::size_t>(topology_->rank(rank).replica)];
    return communicator < kMaxCommunicators ? asked.entered_[communicator].load(std::memory_order_relaxed) : 0;
  });
  shutdown_.emplace(*topology_, process_, [this](int process, const Notice& notice) { group_->post(process, notice); });
  watch_processes(all);
  if (options.expected_size > 0 && ranks != options.expected_size) {
    throw InvalidArgument(
        fmt::format("{} ranks were expected and {} are there (processes: {}, replicas in this one: {})",
                    options.expected_size, ranks, count, options.replicas));
  }
  agree();
  share_memory(found);
  if (group_ == nullptr) return;
  group_->while_waiting({});
  group_->set_topology(*topology_);
}

void Job::watch_processes(std::span<const Introduction> all) {
  liveness_.emplace(settings_.liveness);
  if (group_ == nullptr) return;
  const int host = topology_->process(process_).host_index;
  std::string problem;
  int neighbours = 0, unwatched = 0;
  bool is_first = true;
  for (int p = 0; p < topology_->process_count(); ++p) {
    if (p == process_ || topology_->process(p).host_index != host) continue;
    is_first = is_first && p > process_;
    ++neighbours;
    const std::string why = liveness_->watch(p, all[static_cast<std::size_t>(p)].identity);
    if (!why.empty()) ++unwatched;
    if (problem.empty()) problem = why;
  }
  if (!problem.empty() && !group_->tells_who_is_gone()) {
    // One line for each host; its other processes have the same reason, usually.
    log(is_first ? LogLevel::kWarning : LogLevel::kInfo,
        fmt::format(
            "if one of {} of the {} other processes of this host dies, ranks that wait for it are not told, and "
            "wait until the launcher or FARANDOLE_TIMEOUT ends the job: {}",
            unwatched, neighbours, problem));
  }
  group_->while_waiting([this] { throw_if_a_process_has_died(); });
}

/// While the job is joined. Notices are left alone, unless they say why.
void Job::throw_if_a_process_has_died() {
  const auto now = Clock::now();
  if (now < next_liveness_) return;
  next_liveness_ = now + kLivenessInterval;
  const std::set<int>& dead = liveness_->dead(now);
  if (dead.empty()) return;
  while (const auto notice = group_->poll()) {
    if (notice->kind == Notice::Kind::kFault) throw_error(static_cast<ErrorKind>(notice->error_kind), text_of(*notice));
  }
  throw PeerLost(fmt::format("joining the job: {} died; its own output may say why",
                             topology_->describe(topology_->first_rank_of(*dead.begin()))));
}

/// Takes over what process 0 says about the settings that hold for all.
void Job::agree() {
  std::string text;
  if (process_ == 0) text = encode(make_agreement(settings_));
  if (group_) text = share_text(*group_, text);
  Agreement agreement = decode_agreement(text);
  for (const std::string& difference : adopt_agreed(settings_, agreement.settings)) {
    log(LogLevel::kWarning, "rank 0's setting is used: " + difference);
  }
  if (!agreement.problem.empty()) throw DataError(agreement.problem);
  tuning_text_ = std::move(agreement.tuning);
}

/// Maps the memory of the other processes of this host, and lets all processes know what worked where.
void Job::share_memory(std::span<const Surroundings> all) {
  shares_memory_.assign(static_cast<std::size_t>(topology_->host_count()), settings_.shared_memory != "off");
  if (settings_.shared_memory == "off" || group_ == nullptr) return;
  const int host = topology_->process(process_).host_index;
  struct Outcome {
    char problem[400] = {};
    bool can_copy = false;
  };
  Outcome mine;
  const auto note = [&mine](const std::string& problem) {
    if (mine.problem[0] == '\0') problem.copy(mine.problem, sizeof mine.problem - 1);
  };
  note(memory_->problem());
  for (int p = 0; p < topology_->process_count(); ++p) {
    if (p == process_ || topology_->process(p).host_index != host) continue;
    note(memory_->map(p, all[static_cast<std::size_t>(p)].memory));
  }
  mine.can_copy = memory_->can_copy();
  std::vector<Outcome> outcomes(all.size());
  group_->allgather(&mine, outcomes.data(), sizeof mine);
  for (int p = 0; p < topology_->process_count(); ++p) {
    const int there = topology_->process(p).host_index;
    const auto& [problem, can_copy] = outcomes[static_cast<std::size_t>(p)];
    if (there == host && !can_copy) memory_->forbid_copies();
    if (problem[0] == '\0' || !shares_memory_[static_cast<std::size_t>(there)]) continue;
    shares_memory_[static_cast<std::size_t>(there)] = false;
    if (p == process_)
      log(LogLevel::kWarning,
          fmt::format("the ranks of this host exchange messages, which is slower, because they cannot share memory: {}",
                      problem));
  }
  if (!shares_memory_[static_cast<std::size_t>(host)]) memory_->unmap_peers();
}

Job::~Job() {
  JobsInChildren::remove(this);
}

void Job::end() {
  try {
    const int first = endpoints_.front()->rank();
    if (std::uncaught_exceptions() > exceptions_at_start_) {
      poison(first, ErrorKind::kPeerLost, fmt::format("{} failed with an exception", topology_->describe(first)), true);
    }
    // Ranks of this process may wait for each other: while one is closed the progress thread moves the others on.
    if (progress_ && endpoints_.size() > 1) progress_->wake();
    for (const auto& endpoint : endpoints_) endpoint->close_attached();
    progress_.reset();
    if (group_ != nullptr && !faulted_) leave();
  } catch (const std::exception& error) {
    log(LogLevel::kError, std::string("leaving the job failed: ") + error.what());
  }
  retire();
}

/// A fault that the job had before stays what is raised.
void Job::retire() {
  {
    const std::lock_guard lock(fault_mutex_);
    has_ended_ = true;
    if (!faulted_) {
      fault_kind_ = ErrorKind::kInvalidArgument;
      fault_text_ = kEnded;
      faulted_.store(true, std::memory_order_seq_cst);
    }
  }
  group_.reset();
  memory_->unmap_peers();
  one_world_.reset();
}

Transport& Job::route(int peer) {
  if (is_here(peer)) return *inproc_;
  if (group_ == nullptr) check_fault();
  return group_->transport();
}

/// Waits for the other processes, but neither in silence nor for one that has died.
void Job::leave() {
  Patience patience(settings_.warn_after, settings_.timeout);
  const auto start = Clock::now();
  next_question_ = start + std::chrono::duration_cast<Clock::duration>(kFirstQuestion * settings_.warn_after);
  shutdown_->begin();
  for (;; group_->rest()) {
    look_around();
    if (has_fault()) {
      const std::lock_guard lock(fault_mutex_);
      throw_error(fault_kind_, "while leaving the job: " + fault_text_);
    }
    if (shutdown_->advance() && group_->is_flushed()) break;
    ask_before_leaving(Clock::now());
    patience.look([&] {
      return fmt::format("leaving the job: waiting for {:.1f} s; {}", Seconds(Clock::now() - start).count(),
                         describe_remaining());
    });
  }
  group_->leave();
}

void Job::ask_before_leaving(Clock::time_point now) {
  if (now < next_question_) return;
  next_question_ = now + kNextQuestion;
  std::vector<int> awaited;
  for (const int p : shutdown_->waits_for()) awaited.push_back(topology_->first_rank_of(p));
  ask(topology_->first_rank_of(process_), Notice::kNoCommunicator, 1, awaited, {});
}

/// The first ranks of processes that this one waits for and that do not leave; if those do, one that they wait for.
std::vector<int> Job::remaining() const {
  std::vector<int> ranks;
  for (const int p : shutdown_->waits_for()) {
    const int rank = topology_->first_rank_of(p);
    if (!stragglers_->has_left(rank, Seconds(0))) ranks.push_back(rank);
  }
  if (ranks.empty() && remaining_elsewhere_ >= 0 && !stragglers_->has_left(remaining_elsewhere_, Seconds(0))) {
    ranks.push_back(remaining_elsewhere_);
  }
  return ranks;
}

std::string Job::describe_remaining() const {
  std::string text;
  for (const int rank : remaining()) text += (text.empty() ? "still in it: " : "; ") + topology_->describe(rank);
  return text.empty() ? "the processes that it waits for leave, too, and wait themselves" : text;
}

/// Launchers bind each process to cores of its own, so the cores of all of them count.
bool Job::is_crowded(int threads_per_rank) const {
  return ranks_here_ * threads_per_rank > static_cast<int>(cores_here_.count());
}

Waiter::Options Job::waiting_options(bool progress_thread) const {
  return {.crowded = is_crowded(progress_thread ? 2 : 1),
          .polled = group_ != nullptr && group_->transport().is_polled()};
}

void Job::become_forked_child() {
  is_forked_child_ = true;
  faulted_.store(true, std::memory_order_seq_cst);
}

void Job::check_process() const {
  if (is_forked_child_) {
    throw InvalidArgument(describe_forked_child(topology_->describe(topology_->first_rank_of(process_))));
  }
}

void Job::check_fault() const {
  if (!faulted_.load(std::memory_order_acquire)) return;
  check_process();
  const std::lock_guard lock(fault_mutex_);
  throw_error(fault_kind_, fault_text_);
}

void Job::check_world() const {
  if (!faulted_.load(std::memory_order_acquire)) return;
  check_process();
  const std::lock_guard lock(fault_mutex_);
  if (has_ended_) throw InvalidArgument(kEnded);
}

void Job::poison(int rank, ErrorKind kind, const std::string& text, bool tell) {
  if (is_forked_child_) return;
  {
    const std::lock_guard lock(fault_mutex_);
    if (faulted_) return;
    fault_kind_ = kind;
    fault_text_ = text;
    // First: whoever sees the fault may release memory that a stopped peer still writes.
    memory_->quarantine();
    faulted_.store(true, std::memory_order_seq_cst);
  }
  if (tell && group_) {
    Notice notice = make_notice(Notice::Kind::kFault, process_, rank, text);
    notice.error_kind = static_cast<std::uint32_t>(kind);
    try {
      post_to_others(notice);
    } catch (const Error& error) {
      log(LogLevel::kError, std::string("the other ranks could not be told of a fault: ") + error.what());
    }
  }
  for (const auto& endpoint : endpoints_) endpoint->ring();
  write_flight_records(text);
}

void Job::post_to_others(const Notice& notice) {
  std::exception_ptr first;
  for (int p = 0; p < topology_->process_count(); ++p) {
    if (p == process_) continue;
    try {
      group_->post(p, notice);
    } catch (...) {
      // One may be gone; the others must hear of it all the same.
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void Job::write_flight_records(const std::string& text) const {
  if (settings_.flight_directory == "off") return;
  for (const auto& endpoint : endpoints_) {
    const std::string problem =
        write_private_file(settings_.flight_directory, fmt::format("rank-{}.farandole-flight.json", endpoint->rank()),
                           endpoint->recorder().to_json_lines());
    if (!problem.empty()) log(LogLevel::kError, "the flight record could not be written: " + problem);
  }
  log(LogLevel::kError,
      fmt::format("{}; the last collectives of each rank are in {}", text, settings_.flight_directory));
}

void Job::look_around() {
  if (group_ == nullptr || is_forked_child_) return;
  const std::unique_lock lock(look_mutex_, std::try_to_lock);
  if (!lock) return;
  read_notices();
  const auto now = Clock::now();
  if (now < next_liveness_) return;
  next_liveness_ = now + kLivenessInterval;
  if (const auto lost = find_lost(now)) {
    poison(endpoints_.front()->rank(), ErrorKind::kPeerLost,
           topology_->describe(topology_->first_rank_of(*lost)) + " died", true);
  }
}

void Job::read_notices() {
  while (const auto notice = group_->poll()) handle(*notice);
}

std::optional<int> Job::find_lost(Clock::time_point now) {
  const std::set<int>& dead = liveness_->dead(now);
  const auto is_lost = [&](int p) { return shutdown_->must_be_alive(p) && (dead.contains(p) || group_->is_gone(p)); };
  const auto find = [&]() -> std::optional<int> {
    if (dead.empty() && !group_->tells_who_is_gone()) return std::nullopt;
    for (int p = 0; p < topology_->process_count(); ++p) {
      if (p != process_ && is_lost(p)) return p;
    }
    return std::nullopt;
  };
  const auto lost = find();
  if (!lost) {
    lost_since_.reset();
    return std::nullopt;
  }
  // What it said before it died tells more than that it died.
  read_notices();
  if (!is_lost(*lost)) return std::nullopt;
  if (!shutdown_->is_in_last_round()) return lost;
  if (!lost_since_) lost_since_ = now;
  return now - *lost_since_ >= kLastWords ? lost : std::nullopt;
}

void Job::handle(const Notice& notice) {
  check_notice(notice, *topology_);
  switch (notice.kind) {
    case Notice::Kind::kFault:
      poison(notice.rank, static_cast<ErrorKind>(notice.error_kind), text_of(notice), false);
      break;
    case Notice::Kind::kLeave:
    case Notice::Kind::kAllLeave:
      shutdown_->handle(notice);
      process_has_left(notice.process);
      break;
    case Notice::Kind::kIsLeaving:
      remaining_elsewhere_ = notice.rank;
      process_has_left(notice.process);
      break;
    case Notice::Kind::kQuery:
      answer(notice);
      break;
    case Notice::Kind::kReply:
      if (notice.rank >= 0) stragglers_->answered(notice.rank, notice.communicator, notice.sequence);
      break;
    case Notice::Kind::kMissing:
      if (notice.rank >= 0) stragglers_->named(notice.rank, notice.communicator);
      break;
  }
}

void Job::answer(const Notice& query) {
  if (shutdown_->has_begun()) {
    const std::vector<int> ranks = remaining();
    group_->post(query.process, make_notice(Notice::Kind::kIsLeaving, process_, ranks.empty() ? -1 : ranks.front()));
    return;
  }
  const auto post = [&](Notice::Kind kind, int rank, std::uint64_t sequence) {
    Notice reply = make_notice(kind, process_, rank);
    reply.communicator = query.communicator;
    reply.sequence = sequence;
    group_->post(query.process, reply);
  };
  for (const int rank : stragglers_->missing(query.communicator)) post(Notice::Kind::kMissing, rank, 0);
  for (const auto& endpoint : endpoints_) {
    post(Notice::Kind::kReply, endpoint->rank(), stragglers_->entered(endpoint->rank(), query.communicator));
  }
}

void Job::ask(int rank, std::uint32_t communicator, std::uint64_t sequence, std::span<const int> awaited,
              std::span<const int> others) {
  if (group_ == nullptr || is_forked_child_) return;
  Notice notice = make_notice(Notice::Kind::kQuery, process_, rank);
  notice.communicator = communicator;
  for (const int process : stragglers_->ask(communicator, sequence, awaited, others)) group_->post(process, notice);
}

void Job::set_left(int rank, bool left) {
  if (is_forked_child_) return;
  stragglers_->set_left(rank, left);
  for (const auto& endpoint : endpoints_) endpoint->ring();
}

void Job::process_has_left(int process) {
  stragglers_->process_has_left(process);
  for (const auto& endpoint : endpoints_) endpoint->ring();
}

}  // namespace farandole
