// SPDX-License-Identifier: Apache-2.0
// Joining a job: the processes connect, find out which of them share a host, agree on settings, and share memory.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <utility>

#include "farandole/internal/device_choice.h"
#include "farandole/internal/fixed_text.h"
#include "farandole/internal/limits.h"
#include "farandole/internal/log.h"
#include "faults/peer_message_checks.h"
#include "job/agreement.h"
#include "job/allgather_parts.h"
#include "job/job.h"
#include "launch/launch.h"
#include "sockets/presence.h"

namespace farandole {

/// First message of each process to all processes.
struct Job::PeerInfo {
  HostProof::Claim claim;
  CoreSet cores;
  CpuQuota quota;
  ProcessIdentity identity;
  int replicas = 1;              // where the process divides devices: set by `divide_devices`
  bool divides_devices = false;  // WorldOptions::replica_for_each_device
  bool has_one_replica = false;  // whatever its share of the devices: its MPI may be called by the main thread only
  DevicesToDivide devices;
};
/// Second message of each process to all processes: results of comparing the PeerInfos.
struct Job::HostProbe {
  int neighbour = 0;  // lowest process of the same host
  bool oversubscribed = false;
  int replicas = 1;
  SharedMemory::Claim memory;
};

void Job::join(const WorldOptions& options) {
  const Bootstrap* const bootstrap = options.bootstrap ? &*options.bootstrap : nullptr;
  JoinOptions join_options{options.mpi_communicator, options.mpi_from_any_thread, {}, bootstrap};
  BackendChoice choice;
  if (!options.alone) choice = choose_backend(settings_, join_options);
  if (choice.plugin.empty()) {
    connection_.description = "none (" + (options.alone ? "this process alone" : choice.reason) + ")";
    log(LogLevel::kDebug, "joining no job: " + connection_.description);
    if (!choice.doubt.empty()) log(LogLevel::kWarning, choice.doubt);
  } else {
    Backend& backend = load_backend(choice.plugin, settings_);
    join_options.launched = choice.launched;
    log(LogLevel::kDebug, fmt::format("joining the job by {}: {}", choice.plugin, choice.reason));
    connection_.group = backend.join(settings_, join_options);
    mark_joined(choice.launched);
    connection_.process = group()->process();
    connection_.backend = choice.plugin;
    connection_.description = fmt::format("{} ({})", backend.version(), choice.reason);
    const bool is_meant = settings_.launch.mpi != "auto" || options.mpi_communicator;
    const std::string foreign = is_meant ? std::string() : describe_foreign_launcher(getenv, backend.version());
    if (!foreign.empty() && process() == 0) log(LogLevel::kWarning, foreign);
    if (options.replicas > 1 && !options.replica_for_each_device &&
        group()->thread_use() == ThreadUse::kMainThreadOnly) {
      throw Unsupported(fmt::format("{} replicas per process need an MPI that any thread may call: {}",
                                    options.replicas, group()->thread_advice()));
    }
  }
  check_size(options, options.mpi_communicator ? 0 : choice.launched_size);
}

void Job::check_size(const WorldOptions& options, int launched_size) const {
  const int processes = group() != nullptr ? group()->process_count() : 1;
  const auto& own = options.bootstrap;
  if (!options.alone && own && (own->process != process() || own->processes != processes)) {
    throw InvalidArgument(fmt::format(
        "the program says that this process is number {} of {}, but it is number {} of {} in its job ({}); pass the "
        "launcher's rank and size, or start the processes without a launcher",
        own->process, own->processes, process(), processes, backend_description()));
  }
  if (!options.alone && launched_size > 0 && launched_size != processes && settings_.launch.mpi != "off") {
    throw InvalidArgument(fmt::format(
        "the launcher started {} processes, but {} sees {}: the program was started by the launcher of another MPI; "
        "start it with the mpirun that belongs to this MPI, or set FARANDOLE_MPI (`off` where no MPI shall be used)",
        launched_size, backend_description(), processes));
  }
}

/// Returns every process's `mine`, in the order of processes. Collective over the job's processes.
template <class Part>
std::vector<Part> Job::gather(const Part& mine) const {
  return group() != nullptr ? allgather_parts(*group(), mine) : std::vector<Part>{mine};
}

Job::PeerInfo Job::own_info(const WorldOptions& options, const HostProof& proof) const {
  PeerInfo info{proof.claim(), allowed_cores(), cpu_quota(), own_identity(), options.replicas, false, false, {}};
  if (!options.replica_for_each_device) return info;
  info.replicas = 1;
  info.divides_devices = true;
  info.devices = devices_to_divide(settings_);
  info.has_one_replica = group() != nullptr && group()->thread_use() == ThreadUse::kMainThreadOnly;
  return info;
}

std::vector<int> Job::exchange_peer_info(const WorldOptions& options) {
  // Uses this process's own settings: the agreed settings are known only after this exchange.
  const bool may_share = group() != nullptr && group()->process_count() > 1 && settings_.shared_memory.mode != "off";
  const HostProof proof(settings_.launch.host_id, /*publishes=*/may_share);
  // Socket that identifies this process to peers on the machine if /proc is missing. Bound before the peers search for
  // it.
  const bool has_peers = group() != nullptr && group()->process_count() > 1;
  const auto presence = has_peers ? sockets::announce_presence(proof.claim().nonce) : sockets::UniqueDescriptor();
  std::vector<PeerInfo> all = gather(own_info(options, proof));
  for (std::size_t p = 0; p < all.size(); ++p) check_claim(static_cast<int>(p), all[p].claim, all[p].replicas);
  // This gather is also a barrier: the proofs must stay open until all processes have checked them.
  std::vector<int> devices = options.replica_for_each_device ? std::vector<int>() : options.devices;
  const std::vector<HostProbe> found = gather(probe_host(proof, all, may_share, devices));
  for (std::size_t p = 0; p < all.size(); ++p) check_claim(static_cast<int>(p), all[p].claim, found[p].replicas);

  std::vector<int> neighbours;
  for (const HostProbe& of_process : found) neighbours.push_back(of_process.neighbour);
  const std::vector<int> hosts = host_indices(neighbours);
  std::vector<ProcessInfo> processes;
  std::vector<ProcessIdentity> identities;
  for (std::size_t p = 0; p < all.size(); ++p) {
    const HostProof::Claim& claim = all[p].claim;
    processes.push_back({hosts[p], found[p].replicas, claim.pid, claim.hostname, found[p].oversubscribed});
    identities.push_back(all[p].identity);
  }
  topology_.emplace(std::move(processes));
  peers_.emplace(*this);
  peers_->watch(identities);
  if (options.expected_size > 0 && topology_->size() != options.expected_size) {
    throw InvalidArgument(
        fmt::format("{} ranks were expected and {} are there (processes: {}, replicas in this one: {})",
                    options.expected_size, topology_->size(), all.size(), topology_->process(process()).replicas));
  }
  agree();
  share_memory(found);
  if (group() == nullptr) return devices;
  group()->set_topology(*topology_);
  connection_.between_hosts.emplace(choose_host_network(settings_, *group(), *topology_));
  log(LogLevel::kDebug, "messages between hosts go by " + network_description());
  group()->while_waiting({});
  return devices;
}

namespace {

bool is_machine_known(const HostProof::Claim& claim) {
  return std::any_of(std::begin(claim.machine), std::end(claim.machine), [](unsigned char byte) { return byte != 0; });
}

bool has_same_host_id(const HostProof::Claim& one, const HostProof::Claim& other) {
  return std::equal(std::begin(one.host_id), std::end(one.host_id), std::begin(other.host_id));
}

}  // namespace

/// If /proc is missing in either process: returns true if `other` is found on this machine by its presence socket
/// (sockets/presence.h). If the process id of `other` means a different process here, or cannot be determined, marks
/// the id as unusable for Liveness.
bool Job::finds_without_proc(const HostProof::Claim& own, PeerInfo& other) {
  if (is_machine_known(own) && is_machine_known(other.claim)) return false;
  const std::optional<pid_t> seen = sockets::find_present(other.claim.nonce);
  if (seen && *seen != other.claim.pid) other.identity.pid_namespace = ProcessIdentity::kOtherNamespace;
  return seen.has_value();
}

/// Warns if /proc is missing and no other process of the job was found on this machine.
/// @param replicas  number of ranks in this process
void Job::warn_if_alone_without_proc(const HostProof::Claim& own, std::size_t processes, int replicas) const {
  if (processes == 1 || is_machine_known(own) || machine_.ranks > replicas) return;
  log(LogLevel::kWarning,
      "/proc/sys/kernel/random/boot_id cannot be read, and no other process of the job is in this network name space: "
      "this process counts as the only one of its host, with local rank 0 and the first device; mount /proc, or set "
      "FARANDOLE_DEVICE");
}

/// Sets the number of ranks of each process of this machine that divides devices, and adds the devices of this
/// process's share to `devices` unless FARANDOLE_DEVICE selects them.
/// @param machine  the processes of this machine
void Job::divide_devices(std::span<PeerInfo> all, std::span<const int> machine, std::vector<int>& devices) const {
  for (const int p : machine) {
    PeerInfo& self = all[static_cast<std::size_t>(p)];
    if (!self.divides_devices) continue;
    int processes = 0, index = 0;
    for (const int q : machine) {
      const PeerInfo& other = all[static_cast<std::size_t>(q)];
      if (!other.divides_devices || other.devices.digest != self.devices.digest) continue;
      if (!has_same_host_id(self.claim, other.claim)) continue;
      ++processes;
      if (q < p) ++index;
    }
    const DeviceShare share = device_share(self.devices.count, processes, index);
    self.replicas = self.has_one_replica ? 1 : std::clamp(share.count, 1, kMaxReplicas);
    if (p != process() || share.count == 0 || settings_.devices.ordinals != "auto") continue;
    for (int i = 0; i < self.replicas; ++i) devices.push_back(share.first + i);
  }
}

/// Finds the processes of this machine and of this host, and creates this process's shared memory.
/// @param devices  of this process's ranks; filled if the process divides devices
Job::HostProbe Job::probe_host(const HostProof& proof, std::span<PeerInfo> all, bool may_share,
                               std::vector<int>& devices) {
  HostProbe around;
  around.neighbour = process();
  SharedMemory::Options memory{/*sharing=*/1, /*copies=*/settings_.shared_memory.single_copy_bytes > 0,
                               static_cast<std::uint64_t>(settings_.shared_memory.window_bytes)};
  std::vector<int> machine;
  for (int p = 0; p < static_cast<int>(all.size()); ++p) {
    PeerInfo& other = all[static_cast<std::size_t>(p)];
    if (proof.shares_machine_with(other.claim) || finds_without_proc(proof.claim(), other)) machine.push_back(p);
  }
  divide_devices(all, machine, devices);
  for (const int p : machine) {
    const PeerInfo& other = all[static_cast<std::size_t>(p)];
    machine_.ranks += other.replicas;
    machine_.cores |= other.cores;
    machine_.quotas.add(other.quota);
    if (p == process() || !has_same_host_id(proof.claim(), other.claim)) continue;
    around.neighbour = std::min(around.neighbour, p);
    if (may_share) ++memory.sharing;
  }
  around.oversubscribed = machine_.is_oversubscribed(1);
  around.replicas = all[static_cast<std::size_t>(process())].replicas;
  warn_if_alone_without_proc(proof.claim(), all.size(), around.replicas);
  memory_ = std::make_unique<SharedMemory>(static_cast<int>(all.size()), process(), memory);
  around.memory = memory_->claim();
  return around;
}

/// Adopts process 0's values of the agreed settings, and its tuning table.
void Job::agree() {
  std::string text;
  if (process() == 0) text = encode(make_agreement(settings_));
  if (group() != nullptr) text = share_text(*group(), text);
  Agreement agreement = decode_agreement(text);
  for (const std::string& difference : adopt_agreed(settings_, agreement.settings)) {
    log(LogLevel::kWarning, difference);
  }
  if (!agreement.problem.empty()) throw DataError(agreement.problem);
  tuning_text_ = std::move(agreement.tuning);
}

/// Maps the memory of the other processes of this host. All processes exchange the outcomes, so that all know which
/// hosts share memory.
void Job::share_memory(std::span<const HostProbe> all) {
  shares_memory_.assign(static_cast<std::size_t>(topology_->host_count()), settings_.shared_memory.mode != "off");
  if (settings_.shared_memory.mode == "off" || group() == nullptr) return;
  const int host = topology_->process(process()).host_index;
  struct Outcome {
    char problem[400] = {};
    bool can_copy = false;
  };
  Outcome mine;
  const auto note = [&mine](const std::string& problem) {
    if (mine.problem[0] == '\0') write_text(mine.problem, problem);
  };
  note(memory_->problem());
  for (int p = 0; p < topology_->process_count(); ++p) {
    if (p == process() || topology_->process(p).host_index != host) continue;
    note(memory_->map(p, all[static_cast<std::size_t>(p)].memory));
  }
  mine.can_copy = memory_->can_copy();
  const std::vector<Outcome> outcomes = gather(mine);
  for (int p = 0; p < topology_->process_count(); ++p) {
    const int there = topology_->process(p).host_index;
    const auto& [problem, can_copy] = outcomes[static_cast<std::size_t>(p)];
    if (there == host && !can_copy) memory_->forbid_copies();
    if (problem[0] == '\0' || !shares_memory_[static_cast<std::size_t>(there)]) continue;
    shares_memory_[static_cast<std::size_t>(there)] = false;
    if (p == process())
      log(LogLevel::kWarning,
          fmt::format("the ranks of this host exchange messages, which is slower, because they cannot share memory: {}",
                      problem));
  }
  if (!shares_memory_[static_cast<std::size_t>(host)]) memory_->unmap_peers();
}

}  // namespace farandole
