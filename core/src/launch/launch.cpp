// SPDX-License-Identifier: Apache-2.0
#include "launch/launch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "farandole/core/error.h"

namespace farandole {
namespace {

constexpr int kMaxProcesses = 1 << 20;
constexpr int kLargestPort = 65535;
constexpr const char* kJoinedBy = "_FARANDOLE_JOINED_BY";
constexpr const char* kJoinedAs = "_FARANDOLE_JOINED_AS";
constexpr std::string_view kPmixOfSlurm = "slurm.";  // its jobs are slurm.pmix.<job>.<step>

/// Empty counts as not set.
std::string text_of(const Variables& read, const char* name) {
  const char* const value = read(name);
  return value != nullptr ? value : "";
}

bool is_set(const Variables& read, const char* name) {
  return !text_of(read, name).empty();
}

/// -1: it is no number of these.
int number_of(const std::string& text, int minimum, int maximum) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc{} && end == text.data() + text.size() && !text.empty();
  return is_whole && value >= minimum && value <= maximum ? value : -1;
}

int rank_of(const Variables& read, const char* name) {
  return number_of(text_of(read, name), 0, kMaxProcesses - 1);
}

int size_of(const Variables& read, const char* name) {
  return std::max(0, number_of(text_of(read, name), 1, kMaxProcesses));
}

MpiLauncher find_mpi_launcher(const Variables& read) {
  if (is_set(read, "OMPI_COMM_WORLD_SIZE")) {
    return {kOpenMpi, "OMPI_COMM_WORLD_SIZE is set", rank_of(read, "OMPI_COMM_WORLD_RANK"),
            size_of(read, "OMPI_COMM_WORLD_SIZE")};
  }
  const bool is_slurm = is_set(read, "SLURM_STEP_ID") && is_set(read, "SLURM_PROCID");
  for (const char* name : {"PMI_RANK", "PMI_SIZE"}) {
    if (!is_set(read, name)) continue;
    return {kMpich,  fmt::format("{} is set", name), rank_of(read, "PMI_RANK"), size_of(read, "PMI_SIZE"), !is_slurm,
            is_slurm};
  }
  // SLURM_NTASKS may be the allocation's.
  const int step_size = is_slurm ? size_of(read, "SLURM_STEP_NUM_TASKS") : 0;
  const int slurm_size = step_size > 0 || !is_slurm ? step_size : size_of(read, "SLURM_NTASKS");
  const std::string pmix_job = text_of(read, "PMIX_NAMESPACE");
  if (step_size == 1 && (pmix_job.empty() || pmix_job.starts_with(kPmixOfSlurm))) {
    MpiLauncher one_task;
    one_task.is_slurm = true;
    return one_task;
  }
  if (is_set(read, "PMIX_RANK")) {
    return {{}, "PMIX_RANK is set", rank_of(read, "PMIX_RANK"), slurm_size, false, is_slurm};
  }
  if (is_slurm) return {{}, "SLURM_PROCID is set", rank_of(read, "SLURM_PROCID"), slurm_size, false, true};
  return {};
}

/// RANK and its companions.
struct TorchVariables {
  static constexpr std::array kNames{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  std::array<std::string, kNames.size()> values;

  explicit TorchVariables(const Variables& read) {
    for (std::size_t i = 0; i < kNames.size(); ++i) values[i] = text_of(read, kNames[i]);
  }
  std::vector<std::string_view> names(bool set) const {
    std::vector<std::string_view> some;
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (values[i].empty() != set) some.emplace_back(kNames[i]);
    }
    return some;
  }
  bool is_complete() const { return names(/*set=*/false).empty(); }
  std::string rendezvous() const {
    const bool is_bare_ipv6 = values[2].find(':') != std::string::npos && values[2].front() != '[';
    return fmt::format("{}{}{}:{}", is_bare_ipv6 ? "[" : "", values[2], is_bare_ipv6 ? "]" : "", values[3]);
  }
  std::string text() const { return fmt::format("{} of {} at {}", values[0], values[1], rendezvous()); }
  std::string shown() const {
    return fmt::format("RANK={}, WORLD_SIZE={}, MASTER_ADDR={} and MASTER_PORT={}", values[0], values[1], values[2],
                       values[3]);
  }
  /// @throws InvalidArgument  one has no sense
  LaunchedAs parse() const {
    const int rank = number_of(values[0], 0, kMaxProcesses - 1);
    const int size = number_of(values[1], 1, kMaxProcesses);
    // An address of IPv6 has more of them.
    const bool has_port = std::count(values[2].begin(), values[2].end(), ':') == 1;
    if (rank < 0 || size < 0 || rank >= size || has_port || number_of(values[3], 1, kLargestPort) < 0) {
      throw InvalidArgument(
          fmt::format("{} are set, of which a job without MPI is made; RANK must be a number from 0 to WORLD_SIZE - 1, "
                      "MASTER_ADDR a host by name or address, without a port, MASTER_PORT a number from 1 to {}; unset "
                      "them if they are for another program",
                      shown(), kLargestPort));
    }
    return {rank, size, rendezvous(), text()};
  }
  /// Some are set, and not all.
  std::string why_ignored() const {
    const auto there = names(/*set=*/true);
    const auto missing = names(/*set=*/false);
    if (there.empty() || missing.empty() || (values[0].empty() && values[1].empty())) return {};
    return fmt::format("; without {} no job is made of {}", fmt::join(missing, " and "), fmt::join(there, " and "));
  }
  /// Some say that there are more processes than this one.
  std::string why_doubtful() const {
    const auto missing = names(/*set=*/false);
    if (missing.empty() || missing.size() > 2 || number_of(values[1], 1, kMaxProcesses) < 2) return {};
    return fmt::format(
        "this process is alone in its job, though WORLD_SIZE is {}: of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, "
        "which make a job without MPI, {} {} not set or empty; set all four, or unset WORLD_SIZE",
        values[1], fmt::join(missing, " and "), missing.size() == 1 ? "is" : "are");
  }
};

bool is_told_its_rank(const Settings& settings, const TorchVariables& torch) {
  return settings.launch.rank >= 0 || settings.launch.size >= 0 || !settings.launch.rendezvous.empty() ||
         (!settings.launch.job.empty() && !torch.is_complete());
}

std::string told_text(const Settings& settings) {
  return settings.launch.rendezvous.empty()
             ? fmt::format("{} of {} in {}", settings.launch.rank, settings.launch.size, settings.launch.job)
             : fmt::format("{} of {} at {}", settings.launch.rank, settings.launch.size, settings.launch.rendezvous);
}

bool is_forced(const Settings& settings) {
  return settings.launch.mpi != "auto" && settings.launch.mpi != "off";
}

/// The user says which rank this process is, whatever started it.
Launch launch_as_told(const Settings& settings, const LaunchFacts& facts) {
  const bool has_rendezvous = !settings.launch.rendezvous.empty();
  if (settings.launch.rank < 0 || settings.launch.size < 0 || (settings.launch.job.empty() && !has_rendezvous)) {
    const auto shown = [](const std::string& text) { return text.empty() ? "not set" : fmt::format("'{}'", text); };
    const auto number = [](std::int64_t value) { return value < 0 ? "not set" : std::to_string(value); };
    throw InvalidArgument(fmt::format(
        "FARANDOLE_RANK is {}, FARANDOLE_SIZE {}, FARANDOLE_RENDEZVOUS {} and FARANDOLE_JOB {}: a job that no MPI "
        "starts "
        "needs the first two, and FARANDOLE_RENDEZVOUS=host:port over several hosts or FARANDOLE_JOB on one; or start "
        "the program with mpirun or torchrun, without them",
        number(settings.launch.rank), number(settings.launch.size), shown(settings.launch.rendezvous),
        shown(settings.launch.job)));
  }
  if (facts.has_communicator || is_forced(settings)) {
    throw InvalidArgument(
        fmt::format("FARANDOLE_RANK is set, which is for jobs without MPI, but {}; give one of them up",
                    facts.has_communicator ? std::string("an MPI communicator was passed")
                                           : fmt::format("FARANDOLE_MPI={}", settings.launch.mpi)));
  }
  Launch launch;
  launch.way = has_rendezvous ? Launch::Way::kTcp : Launch::Way::kLocal;
  launch.launched = {static_cast<int>(settings.launch.rank), static_cast<int>(settings.launch.size),
                     settings.launch.rendezvous, told_text(settings)};
  launch.reason = fmt::format(
      "FARANDOLE_RANK is {} of {} {}", settings.launch.rank, settings.launch.size,
      has_rendezvous ? "at " + settings.launch.rendezvous : fmt::format("in job '{}'", settings.launch.job));
  return launch;
}

/// Both are there: returns what is said about it. @throws InvalidArgument  they say different things
std::string agree_with_mpi(const MpiLauncher& mpi, const TorchVariables& torch) {
  const LaunchedAs theirs = torch.parse();
  const bool differs = (mpi.rank >= 0 && mpi.rank != theirs.process) || (mpi.size > 0 && mpi.size != theirs.processes);
  if (differs) {
    const auto shown = [](int number, int none) { return number == none ? "unknown" : std::to_string(number); };
    throw InvalidArgument(fmt::format(
        "{} are set, as torchrun does, but {}, by which this is rank {} of {}: unset those that have not started this "
        "process, or set FARANDOLE_MPI=off to join by RANK and MASTER_ADDR, FARANDOLE_MPI=openmpi or mpich to join by "
        "MPI",
        torch.shown(), mpi.evidence, shown(mpi.rank, -1), shown(mpi.size, 0)));
  }
  return ", which RANK and WORLD_SIZE agree with";
}

/// The process that has joined a job and started this one, if there is one, and what the variables made of it.
struct Parent {
  std::string pid;  // empty: none
  std::string joined_as;

  Parent(const Variables& read, pid_t own) {
    const std::string joined_by = text_of(read, kJoinedBy);
    if (joined_by.empty() || joined_by == std::to_string(own)) return;
    pid = joined_by;
    joined_as = text_of(read, kJoinedAs);
  }
};

/// The user says that PMIx knows what this process is.
Launch launch_by_pmix(const Variables& read, const LaunchFacts& facts) {
  if (facts.has_communicator || facts.is_mpi_running) {
    throw InvalidArgument(
        fmt::format("FARANDOLE_MPI=pmix, which is for programs without MPI, but {}; unset FARANDOLE_MPI",
                    facts.has_communicator ? "an MPI communicator was passed" : "this process has initialised an MPI"));
  }
  Launch launch;
  launch.way = Launch::Way::kPmix;
  launch.reason = "FARANDOLE_MPI=pmix";
  launch.launched.text = fmt::format("{} in {} by PMIx", text_of(read, "PMIX_RANK"), text_of(read, "PMIX_NAMESPACE"));
  return launch;
}

/// What the variables of launchers make of this process; the user has not said anything.
/// @param has_torch  RANK and its companions are there, and are not those of the parent
Launch launch_as_started(const Settings& settings, const Variables& read, const LaunchFacts& facts,
                         const Parent& parent, const TorchVariables& torch, bool has_torch) {
  const bool is_inherited = !parent.pid.empty();
  if (settings.launch.mpi == "pmix" && !is_inherited) return launch_by_pmix(read, facts);
  const bool may_use_mpi = settings.launch.mpi != "off";
  const bool is_running = facts.has_communicator || (facts.is_mpi_running && may_use_mpi);
  Launch launch;
  if (may_use_mpi && !is_inherited) launch.mpi = find_mpi_launcher(read);
  const bool is_started = !launch.mpi.evidence.empty();
  const bool is_within_step = launch.mpi.is_slurm && is_set(read, "TORCHELASTIC_RUN_ID");
  const bool has_mpi =
      is_running || (is_forced(settings) && !is_inherited) || (is_started && !(has_torch && is_within_step));
  if (has_mpi) {
    launch.way = Launch::Way::kMpi;
    if (!has_torch) return launch;
    // So that programs which this process starts do not join by them.
    launch.launched.text = torch.text();
    if (is_started && !is_forced(settings) && !facts.has_communicator && !is_within_step) {
      launch.reason = agree_with_mpi(launch.mpi, torch);
    }
    // An MPI that nothing has started sees one process, however many torchrun has started.
    if (!is_started && !facts.has_communicator) launch.mpi.size = torch.parse().processes;
    return launch;
  }
  if (has_torch) {
    launch.way = Launch::Way::kTcp;
    launch.launched = torch.parse();
    launch.reason =
        fmt::format("RANK is {} of {} at {}{}", launch.launched.process, launch.launched.processes,
                    launch.launched.rendezvous, is_within_step ? ", by torchrun within a step of Slurm" : "");
    return launch;
  }
  if (is_inherited) {
    launch.reason =
        fmt::format("the launcher's variables are inherited from process {}, which has joined the job", parent.pid);
  } else {
    const char* const why = !may_use_mpi          ? "FARANDOLE_MPI=off"
                            : launch.mpi.is_slurm ? "a step of Slurm with one task"
                                                  : "no launcher's variables, and no initialised MPI";
    launch.reason = why + torch.why_ignored();
    launch.doubt = torch.why_doubtful();
  }
  return launch;
}

/// "5.0" of "5.0.11": what is built alike.
std::string_view series_of(std::string_view version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

}  // namespace

Launch find_launch(const Settings& settings, const Variables& read, const LaunchFacts& facts) {
  const TorchVariables torch(read);
  const Parent parent(read, facts.pid);
  const bool is_told = is_told_its_rank(settings, torch);
  const bool inherits_told = is_told && parent.joined_as == told_text(settings);
  const bool has_torch = torch.is_complete() && parent.joined_as != torch.text() && !inherits_told;
  return is_told && !inherits_told ? launch_as_told(settings, facts)
                                   : launch_as_started(settings, read, facts, parent, torch, has_torch);
}

std::string describe_foreign_launcher(const Variables& read, std::string_view library) {
  std::string launcher;
  constexpr std::string_view kOpenMpiLibrary = "Open MPI ";
  if (is_set(read, "OMPI_COMM_WORLD_SIZE") && library.starts_with(kOpenMpiLibrary)) {
    const std::string_view own = library.substr(kOpenMpiLibrary.size());
    const std::string theirs = text_of(read, "OMPI_VERSION");  // since 5.0
    const bool is_before_5 = number_of(std::string(own.substr(0, own.find('.'))), 0, 4) >= 0;
    if (!theirs.empty() && series_of(theirs) != series_of(own)) launcher = fmt::format("Open MPI {}", theirs);
    if (theirs.empty() && !is_before_5 && is_set(read, "OMPI_MCA_orte_ess_num_procs")) launcher = "an older Open MPI";
  } else if (is_set(read, "PMI_RANK") && library.find("Intel") == std::string_view::npos) {
    for (const char* name : {"I_MPI_MPIRUN", "I_MPI_HYDRA_TOPOLIB", "I_MPI_INFO_NUMA_NODE_NUM"}) {
      if (is_set(read, name)) launcher = "Intel MPI";
    }
  }
  if (launcher.empty()) return {};
  return fmt::format(
      "the launcher of {} has started this job, and its ranks use {}, for which Farandole has a plug-in; start it with "
      "the launcher of {}, or set FARANDOLE_MPI to say that this is meant",
      launcher, library, library);
}

void mark_joined(const LaunchedAs& launched) {
  if (launched.text.empty()) return;
  setenv(kJoinedBy, std::to_string(getpid()).c_str(), /*replace=*/1);
  setenv(kJoinedAs, launched.text.c_str(), /*replace=*/1);
}

}  // namespace farandole
