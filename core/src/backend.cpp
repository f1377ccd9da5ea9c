// SPDX-License-Identifier: Apache-2.0
// Which MPI this process should use, and the plug-ins that speak to it.
#include "farandole/sdk/backend.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/loaded_libraries.h"
#include "local/local_process_group.h"
#include "plugin.h"

namespace farandole {

namespace {

constexpr std::string_view kOpenMpi = "mpi_openmpi";
constexpr std::string_view kMpich = "mpi_mpich";
constexpr std::array kPlugins{kOpenMpi, kMpich};
constexpr std::string_view kLocal = "local";
constexpr PluginKind kBackendPlugin{"farandole_backend_v1", "farandole_backend_build_id",
                                    "build Farandole where the development files of that MPI are installed"};

/// The process that loaded the first plug-in; another one that finds it here is a forked child. 0: none yet.
std::atomic<pid_t> joining_process{0};

void remember_joining() {
  pid_t none = 0;
  joining_process.compare_exchange_strong(none, getpid());
}

std::string_view product(std::string_view plugin) {
  return plugin == kOpenMpi ? "Open MPI" : "MPICH";
}

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

int positive_number(const char* text) {
  if (text == nullptr) return 0;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *end == '\0' && value > 0 && value <= 1 << 30 ? static_cast<int>(value) : 0;
}

struct LoadedMpi {
  std::string_view plugin;
  std::string path;
  bool is_running = false;  ///< initialised, and not finalised
};

/// The MPI libraries in this process. File names do not tell them apart (MPICH's may be libmpi.so.12), symbols do.
std::vector<LoadedMpi> loaded_mpis() {
  std::vector<LoadedMpi> mpis;
  for (const std::string& path : loaded_libraries({"libmpi.so", "libmpich.so"})) {
    void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    LoadedMpi mpi{dlsym(handle, "ompi_mpi_comm_world") != nullptr ? kOpenMpi : kMpich, path};
    using Query = int (*)(int*);
    const auto initialized = reinterpret_cast<Query>(dlsym(handle, "MPI_Initialized"));
    const auto finalized = reinterpret_cast<Query>(dlsym(handle, "MPI_Finalized"));
    int was_initialized = 0;
    int was_finalized = 0;
    if (initialized != nullptr) initialized(&was_initialized);
    if (finalized != nullptr) finalized(&was_finalized);
    mpi.is_running = was_initialized != 0 && was_finalized == 0;
    dlclose(handle);
    mpis.push_back(std::move(mpi));
  }
  return mpis;
}

/// What the environment says about how this process was started.
struct Launcher {
  std::string_view plugin;  ///< empty if it does not tell
  std::string evidence;     ///< empty: not started by a launcher
  int size = 0;
  bool is_certain = true;  ///< false: other MPIs can be started in the same way
};

Launcher find_launcher() {
  if (const char* size = variable("OMPI_COMM_WORLD_SIZE"))
    return {kOpenMpi, "OMPI_COMM_WORLD_SIZE is set", positive_number(size)};
  const char* slurm = variable("SLURM_STEP_ID") != nullptr ? variable("SLURM_PROCID") : nullptr;
  if (variable("PMI_RANK") != nullptr || variable("PMI_SIZE") != nullptr) {
    return {kMpich, variable("PMI_RANK") != nullptr ? "PMI_RANK is set" : "PMI_SIZE is set",
            positive_number(variable("PMI_SIZE")), slurm == nullptr};
  }
  const int slurm_size = slurm != nullptr ? positive_number(variable("SLURM_NTASKS")) : 0;
  if (variable("PMIX_RANK") != nullptr) return {{}, "PMIX_RANK is set", slurm_size, false};
  if (slurm != nullptr) return {{}, "SLURM_PROCID is set", slurm_size, false};
  return {};
}

std::optional<std::string> why_child() {
  const pid_t joined = joining_process.load(std::memory_order_relaxed);
  if (joined != 0 && joined != getpid()) return fmt::format("forked from process {}, which has joined a job", joined);
  return std::nullopt;
}

/// Set by plug-ins when they join: a program that a rank starts inherits the launcher's variables.
std::optional<std::string> why_inherited() {
  const char* joined = variable("_FARANDOLE_JOINED_BY");
  if (joined == nullptr || std::to_string(getpid()) == joined) return std::nullopt;
  return fmt::format("the launcher's variables are inherited from process {}, which has joined the job", joined);
}

/// True in a program that a rank of a job without MPI has started, and that was not told another rank since.
bool inherits_its_rank(const Settings& settings) {
  const char* joined = variable("_FARANDOLE_JOINED_AS");
  return joined != nullptr && why_inherited() && joined == local::slot_text(settings);
}

[[noreturn]] void contradiction(const Settings& settings, std::string_view other) {
  throw InvalidArgument(
      fmt::format("FARANDOLE_MPI={}, but {}; unset FARANDOLE_MPI, or start the program with the mpirun of that MPI",
                  settings.mpi, other));
}

std::string forced_plugin(const Settings& settings) {
  return settings.mpi == "auto" || settings.mpi == "off" ? std::string() : "mpi_" + settings.mpi;
}

bool is_told_its_rank(const Settings& settings) {
  return settings.rank >= 0 || settings.size >= 0 || !settings.job.empty();
}

/// The user says which rank this process is, whatever started it.
BackendChoice choose_local(const Settings& settings, const JoinOptions& options) {
  if (settings.rank < 0 || settings.size < 0 || settings.job.empty()) {
    throw InvalidArgument(
        fmt::format("FARANDOLE_RANK is {}, FARANDOLE_SIZE {} and FARANDOLE_JOB {}: a job that no MPI starts needs all "
                    "three; or start the program with mpirun, without them",
                    settings.rank < 0 ? "not set" : std::to_string(settings.rank),
                    settings.size < 0 ? "not set" : std::to_string(settings.size),
                    settings.job.empty() ? "not set" : fmt::format("'{}'", settings.job)));
  }
  if (options.mpi_communicator || !forced_plugin(settings).empty()) {
    throw InvalidArgument(
        fmt::format("FARANDOLE_RANK is set, which is for jobs without MPI, but {}; give one of them up",
                    options.mpi_communicator ? std::string("an MPI communicator was passed")
                                             : fmt::format("FARANDOLE_MPI={}", settings.mpi)));
  }
  return {std::string(kLocal),
          fmt::format("FARANDOLE_RANK is {} of {} in job '{}'", settings.rank, settings.size, settings.job),
          static_cast<int>(settings.size)};
}

BackendChoice choose_for_communicator(const Settings& settings, const std::vector<LoadedMpi>& mpis) {
  const auto mpi = std::find_if(mpis.begin(), mpis.end(), [](const LoadedMpi& each) { return each.is_running; });
  if (mpi == mpis.end()) {
    throw InvalidArgument(
        "an MPI communicator was passed, but this process has loaded no libmpi that is initialised; call MPI_Init "
        "first, and link MPI as a shared library");
  }
  if (settings.mpi == "off") contradiction(settings, "an MPI communicator was passed");
  if (const std::string forced = forced_plugin(settings); !forced.empty() && forced != mpi->plugin) {
    contradiction(settings,
                  fmt::format("the communicator that was passed belongs to {} ({})", product(mpi->plugin), mpi->path));
  }
  return {std::string(mpi->plugin), fmt::format("a communicator of {} was passed", product(mpi->plugin)), 0};
}

/// An MPI is initialised already: it is joined, whatever started the program.
BackendChoice choose_running(const Settings& settings, const LoadedMpi& mpi) {
  if (const std::string forced = forced_plugin(settings); !forced.empty() && forced != mpi.plugin) {
    contradiction(settings, fmt::format("this process has initialised {} ({})", product(mpi.plugin), mpi.path));
  }
  const Launcher launcher = why_inherited() ? Launcher{} : find_launcher();
  return {std::string(mpi.plugin), fmt::format("{} is initialised ({})", product(mpi.plugin), mpi.path), launcher.size};
}

std::string only_available(const Settings& settings, const Launcher& launcher) {
  const std::vector<std::string> available = available_backends(settings);
  if (available.size() == 1) return available.front();
  if (available.empty()) {
    throw Unsupported(
        fmt::format("{}, but this build of Farandole has no MPI plug-in; install the development files of the MPI that "
                    "started the program and build again",
                    launcher.evidence));
  }
  throw InvalidArgument(
      fmt::format("{}, which does not tell Open MPI from MPICH, and there are plug-ins for both; set "
                  "FARANDOLE_MPI=openmpi or FARANDOLE_MPI=mpich",
                  launcher.evidence));
}

/// No MPI is initialised: the launcher, the libmpi that the program was linked with, and FARANDOLE_MPI must agree.
BackendChoice choose_by_environment(const Settings& settings, const std::vector<LoadedMpi>& mpis) {
  const Launcher launcher = find_launcher();
  const std::string forced = forced_plugin(settings);
  const bool knows = launcher.is_certain && !launcher.plugin.empty();
  if (!forced.empty()) {
    if (knows && forced != launcher.plugin) {
      contradiction(settings, fmt::format("the launcher of {} started this process ({})", product(launcher.plugin),
                                          launcher.evidence));
    }
    return {forced, fmt::format("FARANDOLE_MPI={}", settings.mpi), launcher.size};
  }
  if (launcher.evidence.empty()) return {{}, "no launcher's variables, and no initialised MPI", 0};
  const bool loads_one = mpis.size() == 1;
  if (knows && loads_one && mpis.front().plugin != launcher.plugin) {
    throw InvalidArgument(
        fmt::format("this program is linked with {} ({}), but the launcher of {} started it ({}); start it with the "
                    "mpirun of {}",
                    product(mpis.front().plugin), mpis.front().path, product(launcher.plugin), launcher.evidence,
                    product(mpis.front().plugin)));
  }
  if (!knows && loads_one) {
    return {std::string(mpis.front().plugin), fmt::format("{}, and {} is loaded", launcher.evidence, mpis.front().path),
            launcher.size};
  }
  if (!launcher.plugin.empty()) return {std::string(launcher.plugin), launcher.evidence, launcher.size};
  return {only_available(settings, launcher), launcher.evidence + ", and there is one MPI plug-in", launcher.size};
}

/// Open MPI's components expect the symbols of their MPI to be global.
void make_mpi_global(void* plugin) {
  Dl_info mpi{};
  const void* function = dlsym(plugin, "MPI_Init_thread");
  if (function != nullptr && dladdr(function, &mpi) != 0) dlopen(mpi.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL);
}

Backend& open_backend(std::string_view plugin, const Settings& settings) {
  const PluginLibrary library = load_plugin(plugin, kBackendPlugin, settings);
  make_mpi_global(library.handle);
  const HostApi host{sizeof(HostApi), build_id()};
  Backend* backend = reinterpret_cast<BackendEntry>(library.entry)(&host);
  if (backend == nullptr) throw Unsupported(plugin_refusal(plugin, library));
  return *backend;
}

}  // namespace

BackendChoice choose_backend(const Settings& settings, const JoinOptions& options) {
  if (is_told_its_rank(settings) && !inherits_its_rank(settings)) return choose_local(settings, options);
  if (const auto reason = why_child()) {
    if (!options.mpi_communicator) return {{}, *reason, 0};
    throw InvalidArgument(
        fmt::format("an MPI communicator was passed, but this process (pid {}) was {}: MPI belongs to its parent",
                    getpid(), *reason));
  }
  const std::vector<LoadedMpi> mpis = loaded_mpis();
  if (options.mpi_communicator) return choose_for_communicator(settings, mpis);
  if (settings.mpi == "off") return {{}, "FARANDOLE_MPI=off", 0};
  const auto running = std::find_if(mpis.begin(), mpis.end(), [](const LoadedMpi& mpi) { return mpi.is_running; });
  if (running != mpis.end()) return choose_running(settings, *running);
  if (const auto reason = why_inherited()) return {{}, *reason, 0};
  return choose_by_environment(settings, mpis);
}

Backend& load_backend(std::string_view plugin, const Settings& settings) {
  // Before the mutex: a forked child may join a job without MPI, whatever its parent's threads were loading.
  if (plugin == kLocal) {
    remember_joining();
    return local::local_backend();
  }
  static std::mutex mutex;
  static std::map<std::string, Backend*, std::less<>> backends;
  const std::lock_guard guard(mutex);
  if (const auto known = backends.find(plugin); known != backends.end()) return *known->second;
  Backend& backend = open_backend(plugin, settings);
  backends.emplace(plugin, &backend);
  remember_joining();
  return backend;
}

std::vector<std::string> available_backends(const Settings& settings) {
  std::vector<std::string> names;
  for (const std::string_view plugin : kPlugins) {
    if (has_plugin(plugin, settings)) names.emplace_back(plugin);
  }
  return names;
}

}  // namespace farandole
