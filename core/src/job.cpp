#include "job.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "agreement.h"
#include "farandole/core/log.h"
#include "from_peers.h"
#include "patience.h"
#include "private_file.h"

namespace farandole {
namespace {

// Launchers end the survivors of a crash at once; who looks more often than that can still say who died.
constexpr auto kLivenessInterval = std::chrono::milliseconds(1);

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

}  // namespace

Liveness::~Liveness() {
  for (const auto& [process, descriptor] : descriptors_) close(descriptor);
}

void Liveness::watch(int process, int pid) {
  const auto descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (descriptor >= 0) descriptors_.emplace(process, descriptor);
}

void Liveness::forget(int process) {
  const auto found = descriptors_.find(process);
  if (found == descriptors_.end()) return;
  close(found->second);
  descriptors_.erase(found);
}

std::optional<int> Liveness::first_dead() const {
  std::vector<pollfd> entries;
  for (const auto& [process, descriptor] : descriptors_) entries.push_back({descriptor, POLLIN, 0});
  if (entries.empty() || poll(entries.data(), entries.size(), 0) <= 0) return std::nullopt;
  auto process = descriptors_.begin();
  for (auto entry = entries.begin(); entry->revents == 0; ++entry) ++process;
  return process->first;
}

/// What each process tells all others when they meet.
struct Job::Introduction {
  HostProof::Claim claim;
  CoreSet cores;
  int replicas = 1;
};
/// What each process finds out then, and tells all others.
struct Job::Surroundings {
  int neighbour = 0;  // the first process of the same host
  bool crowded = false;
  HostMemory::Claim memory;
};

Job::Job(const WorldOptions& options) : settings_(Settings::from_environment()) {
  if (options.replicas < 1 || options.replicas > kMaxReplicas) {
    throw InvalidArgument(fmt::format("replicas is {}; it must be 1 … {}", options.replicas, kMaxReplicas));
  }
  configure_log(parse_log_level(settings_.log_level), fmt::format("pid {}", getpid()));
  join(options);
  // The rest of bring-up goes by what holds for all: whether memory is shared, for one.
  const std::vector<std::string> differences = agree();
  introduce(options);
  const int first = topology_->first_rank_of(process_);
  configure_log(parse_log_level(settings_.log_level),
                fmt::format("rank {} {}", first, topology_->process(process_).hostname));
  for (const std::string& difference : differences) {
    log(LogLevel::kWarning, "rank 0's setting is used: " + difference);
  }
  inproc_ = std::make_unique<InprocTransport>(first, options.replicas,
                                              [this, first](int rank) { endpoint(rank - first).ring(); });
  for (int i = 0; i < options.replicas; ++i) endpoints_.push_back(std::make_unique<Endpoint>(*this, first + i));
  waiting_ = waiting_options(/*progress_thread=*/false);
  const ThreadUse threads = group_ ? group_->thread_use() : ThreadUse::kAnyThread;
  if (threads != ThreadUse::kMainThreadOnly) {
    progress_ = std::make_unique<ProgressThread>(waiting_options(/*progress_thread=*/true), memory_->header().progress,
                                                 /*rests=*/threads == ThreadUse::kOneThreadAtATime);
  }
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
  const bool may_share = count > 1 && settings_.shared_memory != "off";
  const HostProof proof(settings_.host_id, /*publishes=*/may_share);
  Introduction mine;
  mine.claim = proof.claim();
  mine.cores = allowed_cores();
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
    if (proof.sees_process_of(other.claim)) liveness_.watch(p, other.claim.pid);
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
  left_.resize(static_cast<std::size_t>(ranks));
  if (options.expected_size > 0 && ranks != options.expected_size) {
    throw InvalidArgument(
        fmt::format("{} ranks were expected and {} are there (processes: {}, replicas in this one: {})",
                    options.expected_size, ranks, count, options.replicas));
  }
  share_memory(found);
  if (group_ != nullptr) group_->set_topology(*topology_);
}

/// Takes over what process 0 says about the settings that hold for all. Returns what was different here.
std::vector<std::string> Job::agree() {
  std::string text;
  if (process_ == 0) text = encode(make_agreement(settings_));
  if (group_) text = share_text(*group_, text);
  Agreement agreement = decode_agreement(text);
  std::vector<std::string> differences = adopt_agreed(settings_, agreement.settings);
  if (!agreement.problem.empty()) throw DataError(agreement.problem);
  tuning_text_ = std::move(agreement.tuning);
  return differences;
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
    if (group_ != nullptr && !faulted_) {
      post_to_others(make_notice(Notice::Kind::kLeave, process_, first));
      leave();
    }
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
}

Transport& Job::route(int peer) {
  if (is_here(peer)) return *inproc_;
  if (group_ == nullptr) check_fault();
  return group_->transport();
}

/// Waits for the other processes, but not in silence.
void Job::leave() {
  Patience patience(settings_.warn_after, settings_.timeout);
  const auto start = Clock::now();
  group_->leave([&](const Notice* notice) {
    if (notice != nullptr) {
      if (notice->kind == Notice::Kind::kLeave) handle(*notice);
      return;
    }
    patience.look([&] {
      return fmt::format("leaving the job: waiting for {:.1f} s; still in it: {}",
                         Seconds(Clock::now() - start).count(), describe_remaining());
    });
  });
}

std::string Job::describe_remaining() {
  std::string text;
  const std::lock_guard lock(answers_mutex_);
  for (int p = 0; p < topology_->process_count(); ++p) {
    const int rank = topology_->first_rank_of(p);
    if (p == process_ || left_[static_cast<std::size_t>(rank)]) continue;
    text += (text.empty() ? "" : "; ") + topology_->describe(rank);
  }
  return text;
}

/// Launchers bind each process to cores of its own, so the cores of all of them count.
bool Job::is_crowded(int threads_per_rank) const {
  return ranks_here_ * threads_per_rank > static_cast<int>(cores_here_.count());
}

Waiter::Options Job::waiting_options(bool progress_thread) const {
  return {.crowded = is_crowded(progress_thread ? 2 : 1),
          .polled = group_ != nullptr && group_->transport().is_polled()};
}

void Job::check_fault() const {
  if (!faulted_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(fault_mutex_);
  throw_error(fault_kind_, fault_text_);
}

void Job::check_world() const {
  if (!faulted_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(fault_mutex_);
  if (has_ended_) throw InvalidArgument(kEnded);
}

void Job::poison(int rank, ErrorKind kind, const std::string& text, bool tell) {
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
  if (group_ == nullptr) return;
  const std::unique_lock lock(look_mutex_, std::try_to_lock);
  if (!lock) return;
  while (const auto notice = group_->poll()) handle(*notice);
  const auto now = Clock::now();
  if (now < next_liveness_) return;
  next_liveness_ = now + kLivenessInterval;
  auto dead = liveness_.first_dead();
  if (!dead) dead = group_->first_gone();
  if (dead) {
    const int rank = topology_->first_rank_of(*dead);
    // What it said before it died tells more than that it died.
    while (const auto notice = group_->poll()) handle(*notice);
    poison(endpoints_.front()->rank(), ErrorKind::kPeerLost, topology_->describe(rank) + " died", true);
  }
}

void Job::handle(const Notice& notice) {
  check_notice(notice, *topology_);
  switch (notice.kind) {
    case Notice::Kind::kFault:
      poison(notice.rank, static_cast<ErrorKind>(notice.error_kind), notice.text, false);
      break;
    case Notice::Kind::kLeave: {
      liveness_.forget(notice.process);
      const int first = topology_->first_rank_of(notice.process);
      for (int i = 0; i < topology_->process(notice.process).replicas; ++i) set_left(first + i, true);
      break;
    }
    case Notice::Kind::kQuery:
      for (const auto& endpoint : endpoints_) {
        Notice reply = make_notice(Notice::Kind::kReply, process_, endpoint->rank());
        reply.communicator = notice.communicator;
        reply.sequence = endpoint->entered_[notice.communicator].load(std::memory_order_relaxed);
        group_->post(notice.process, reply);
      }
      break;
    case Notice::Kind::kReply: {
      const std::lock_guard lock(answers_mutex_);
      answers_[{notice.rank, notice.communicator}] = notice.sequence;
      break;
    }
  }
}

void Job::ask(int rank, std::uint16_t communicator) {
  if (group_ == nullptr) return;
  {
    const std::lock_guard lock(answers_mutex_);
    std::erase_if(answers_, [&](const auto& answer) { return answer.first.second == communicator; });
  }
  Notice notice = make_notice(Notice::Kind::kQuery, process_, rank);
  notice.communicator = communicator;
  post_to_others(notice);
}

void Job::set_left(int rank, bool left) {
  {
    const std::lock_guard lock(answers_mutex_);
    left_[static_cast<std::size_t>(rank)] = left ? std::optional(Clock::now()) : std::nullopt;
  }
  for (const auto& endpoint : endpoints_) endpoint->ring();
}

bool Job::has_left(int rank, Seconds ago) {
  const std::lock_guard lock(answers_mutex_);
  const auto& left = left_[static_cast<std::size_t>(rank)];
  return left && Clock::now() - *left >= ago;
}

std::string Job::describe_missing(std::uint16_t communicator, std::uint64_t sequence, std::span<const int> members) {
  std::string text;
  const std::lock_guard lock(answers_mutex_);
  for (const int member : members) {
    std::optional<std::uint64_t> entered;
    if (is_here(member)) {
      const auto& endpoint = *endpoints_[static_cast<std::size_t>(topology_->rank(member).replica)];
      entered = endpoint.entered_[communicator].load(std::memory_order_relaxed);
    } else if (const auto answer = answers_.find({member, communicator}); answer != answers_.end()) {
      entered = answer->second;
    }
    if (entered && *entered >= sequence) continue;
    if (!text.empty()) text += "; ";
    text += topology_->describe(member);
    if (left_[static_cast<std::size_t>(member)]) {
      text += " has left the job";
    } else if (entered) {
      text += fmt::format(" has entered only collective {}", *entered);
    } else {
      text += " does not answer: it computes, is stopped, or is gone";
    }
  }
  return text;
}

}  // namespace farandole
