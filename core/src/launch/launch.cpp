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
constexpr int kMaxPort = 65535;
constexpr const char* kJoinedBy = "_FARANDOLE_JOINED_BY";
constexpr const char* kJoinedAs = "_FARANDOLE_JOINED_AS";
constexpr std::string_view kPmixOfSlurm = "slurm.";  // Slurm's PMIx namespaces are slurm.pmix.<job>.<step>

/// Value of a variable; an empty value counts as not set.
std::string text_of(const Variables& read, const char* name) {
  const char* const value = read(name);
  return value != nullptr ? value : "";
}

bool is_set(const Variables& read, const char* name) {
  return !text_of(read, name).empty();
}

/// Parses an integer from `minimum` to `maximum`; -1 if the text is anything else.
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
  // SLURM_NTASKS may belong to the allocation instead of the step.
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

/// The variables of torchrun: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
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
  /// @throws InvalidArgument  a value is invalid
  LaunchedAs parse() const {
    const int rank = number_of(values[0], 0, kMaxProcesses - 1);
    const int size = number_of(values[1], 1, kMaxProcesses);
    // A single colon separates a port; an IPv6 address has several colons.
    const bool has_port = std::count(values[2].begin(), values[2].end(), ':') == 1;
    if (rank < 0 || size < 0 || rank >= size || has_port || number_of(values[3], 1, kMaxPort) < 0) {
      throw InvalidArgument(
          fmt::format("{} are set, of which a job without MPI is made; RANK must be a number from 0 to WORLD_SIZE - 1, "
                      "MASTER_ADDR a host by name or address, without a port, MASTER_PORT a number from 1 to {}; unset "
                      "them if they are for another program",
                      shown(), kMaxPort));
    }
    return {rank, size, rendezvous(), text()};
  }
  /// Reason why an incomplete set of variables is ignored; empty if all or none are set.
  std::string why_ignored() const {
    const auto there = names(/*set=*/true);
    const auto missing = names(/*set=*/false);
    if (there.empty() || missing.empty() || (values[0].empty() && values[1].empty())) return {};
    return fmt::format("; without {} no job is made of {}", fmt::join(missing, " and "), fmt::join(there, " and "));
  }
  /// Warning if WORLD_SIZE is above 1 but the set of variables is incomplete; else empty.
  std::string why_doubtful() const {
    const auto missing = names(/*set=*/false);
    if (missing.empty() || missing.size() > 2 || number_of(values[1], 1, kMaxProcesses) < 2) return {};
    return fmt::format(
        "this process is alone in its job, though WORLD_SIZE is {}: of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, "
        "which make a job without MPI, {} {} not set or empty; set all four, or unset WORLD_SIZE",
        values[1], fmt::join(missing, " and "), missing.size() == 1 ? "is" : "are");
  }
};

bool has_explicit_rank(const Settings& settings, const TorchVariables& torch) {
  return settings.launch.rank >= 0 || settings.launch.size >= 0 || !settings.launch.rendezvous.empty() ||
         (!settings.launch.job.empty() && !torch.is_complete());
}

std::string explicit_text(const Settings& settings) {
  return settings.launch.rendezvous.empty()
             ? fmt::format("{} of {} in {}", settings.launch.rank, settings.launch.size, settings.launch.job)
             : fmt::format("{} of {} at {}", settings.launch.rank, settings.launch.size, settings.launch.rendezvous);
}

bool is_forced(const Settings& settings) {
  return settings.launch.mpi != "auto" && settings.launch.mpi != "off";
}

/// Case 1: FARANDOLE_RANK and its companions set the rank, whatever started this process.
Launch launch_by_settings(const Settings& settings, const LaunchFacts& facts) {
  const bool has_rendezvous = !settings.launch.rendezvous.empty();
  if (settings.launch.rank < 0 || settings.launch.size < 0 || (settings.launch.job.empty() && !has_rendezvous)) {
    const auto shown = [](const std::string& text) { return text.empty() ? "not set" : fmt::format("'{}'", text); };
    const auto number = [](std::int64_t value) { return value < 0 ? "not set" : std::to_string(value); };
    throw InvalidArgument(
        fmt::format("FARANDOLE_RANK is {}, FARANDOLE_SIZE {}, FARANDOLE_RENDEZVOUS {} and FARANDOLE_JOB {}: a job that "
                    "no MPI starts needs the first two, and FARANDOLE_RENDEZVOUS=host:port over several hosts or "
                    "FARANDOLE_JOB on one; or start the program with mpirun or torchrun, without them",
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
                     settings.launch.rendezvous, explicit_text(settings)};
  launch.reason = fmt::format(
      "FARANDOLE_RANK is {} of {} {}", settings.launch.rank, settings.launch.size,
      has_rendezvous ? "at " + settings.launch.rendezvous : fmt::format("in job '{}'", settings.launch.job));
  return launch;
}

/// Checks that MPI's and torchrun's variables agree; returns an addition to the reason.
/// @throws InvalidArgument  rank or size differ
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

/// The process that has joined a job and then started this process.
struct Parent {
  std::string pid;        // empty if there is no such process
  std::string joined_as;  // the parent's LaunchedAs::text

  Parent(const Variables& read, pid_t own) {
    const std::string joined_by = text_of(read, kJoinedBy);
    if (joined_by.empty() || joined_by == std::to_string(own)) return;
    pid = joined_by;
    joined_as = text_of(read, kJoinedAs);
  }
};

/// Case 2: PMIx knows rank and size.
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

/// Cases 2 to 5: the variables of launchers decide.
/// @param has_torch  all of torchrun's variables are set, and are not inherited from a parent that joined by them
Launch launch_by_variables(const Settings& settings, const Variables& read, const LaunchFacts& facts,
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
    // For `mark_joined`: programs that this process starts must not join by the inherited variables.
    launch.launched.text = torch.text();
    if (is_started && !is_forced(settings) && !facts.has_communicator && !is_within_step) {
      launch.reason = agree_with_mpi(launch.mpi, torch);
    }
    // An MPI without a launcher sees a single process, however many processes torchrun has started.
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

/// Returns the release series, whose versions are compatible: "5.0" for "5.0.11".
std::string_view series_of(std::string_view version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

}  // namespace

Launch find_launch(const Settings& settings, const Variables& read, const LaunchFacts& facts) {
  const TorchVariables torch(read);
  const Parent parent(read, facts.pid);
  const bool is_explicit = has_explicit_rank(settings, torch);
  const bool inherits_explicit = is_explicit && parent.joined_as == explicit_text(settings);
  const bool has_torch = torch.is_complete() && parent.joined_as != torch.text() && !inherits_explicit;
  return is_explicit && !inherits_explicit ? launch_by_settings(settings, facts)
                                           : launch_by_variables(settings, read, facts, parent, torch, has_torch);
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
