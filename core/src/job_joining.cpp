// SPDX-License-Identifier: Apache-2.0
// How a process joins its job: the processes meet, find out which of them share a host, agree on settings, and share
// memory.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agreement.h"
#include "farandole/internal/log.h"
#include "from_peers.h"
#include "job.h"

namespace farandole {

/// What each process sends all processes when they meet.
struct Job::PeerInfo {
  HostProof::Claim claim;
  CoreSet cores;
  ProcessIdentity identity;
  int replicas = 1;
};
/// What each process finds out then, and sends to all.
struct Job::Surroundings {
  int neighbour = 0;  // the first process of the same host
  bool oversubscribed = false;
  SharedMemory::Claim memory;
};

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

void Job::exchange_peer_info(const WorldOptions& options) {
  const int count = group_ ? group_->process_count() : 1;
  // By this process's own settings: what holds for all is agreed on when each knows its peers.
  const bool may_share = count > 1 && settings_.shared_memory != "off";
  const HostProof proof(settings_.host_id, /*publishes=*/may_share);
  PeerInfo mine;
  mine.claim = proof.claim();
  mine.cores = allowed_cores();
  mine.identity = own_identity();
  mine.replicas = options.replicas;
  std::vector<PeerInfo> all(static_cast<std::size_t>(count), mine);
  if (group_) group_->allgather(&mine, all.data(), sizeof mine);
  for (int p = 0; p < count; ++p) {
    const PeerInfo& other = all[static_cast<std::size_t>(p)];
    check_claim(p, other.claim, other.replicas);
  }

  Surroundings around;
  around.neighbour = process_;
  SharedMemory::Options memory{/*sharing=*/1, /*copies=*/settings_.single_copy_bytes > 0,
                               static_cast<std::uint64_t>(settings_.window_bytes)};
  for (int p = count - 1; p >= 0; --p) {
    const PeerInfo& other = all[static_cast<std::size_t>(p)];
    if (!proof.shares_machine_with(other.claim)) continue;
    ranks_here_ += other.replicas;
    cores_here_ |= other.cores;
    if (p == process_ || !proof.shares_host_with(other.claim)) continue;
    around.neighbour = std::min(around.neighbour, p);
    if (may_share) ++memory.sharing;
  }
  around.oversubscribed = is_oversubscribed(1);
  memory_ = std::make_unique<SharedMemory>(count, process_, memory);
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
    processes.push_back({hosts[p], all[p].replicas, all[p].claim.pid, all[p].claim.hostname, found[p].oversubscribed});
    ranks += all[p].replicas;
  }
  topology_.emplace(std::move(processes));
  stragglers_.emplace(*topology_, process_, [this](int rank, std::uint32_t communicator) {
    const Endpoint& asked = *endpoints_[static_cast<std::size_t>(topology_->rank(rank).replica)];
    return communicator < kMaxCommunicators ? asked.entered_[communicator].load(std::memory_order_relaxed) : 0;
  });
  shutdown_.emplace(*topology_, process_,
                    [this](int process, const ControlMessage& control) { group_->post(process, control); });
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

void Job::watch_processes(std::span<const PeerInfo> all) {
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

/// While the job is joined. Control messages are left alone, unless they say why.
void Job::throw_if_a_process_has_died() {
  const auto now = Clock::now();
  if (now < next_liveness_) return;
  next_liveness_ = now + kLivenessInterval;
  const std::set<int>& dead = liveness_->dead(now);
  if (dead.empty()) return;
  while (const auto control = group_->poll()) {
    if (control->kind == ControlMessage::Kind::kFault)
      throw_error(static_cast<ErrorKind>(control->error_kind), text_of(*control));
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

}  // namespace farandole
