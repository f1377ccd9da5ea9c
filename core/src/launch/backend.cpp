// SPDX-License-Identifier: Apache-2.0
// Selects the way to join a job, and loads the backend, which for MPI is a plug-in.
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

#include "farandole/core/error.h"
#include "farandole/internal/loaded_libraries.h"
#include "farandole/internal/plugin.h"
#include "launch/launch.h"
#include "local/local_process_group.h"
#include "pmix/pmix_backend.h"
#include "tcp/tcp_process_group.h"

namespace farandole {

namespace {

constexpr std::array kPlugins{kOpenMpi, kMpich};
constexpr std::string_view kLocal = "local";
constexpr std::string_view kTcp = "tcp";
constexpr std::string_view kPmix = "pmix";
constexpr PluginKind kBackendPlugin{"farandole_backend_v1", "farandole_backend_build_id",
                                    "build Farandole where the development files of that MPI are installed"};

/// Process that loaded the first backend; 0: no process yet. A process that finds a different process here is a forked
/// child of that process.
std::atomic<pid_t> joining_process{0};

void remember_joining() {
  pid_t none = 0;
  joining_process.compare_exchange_strong(none, getpid());
}

std::string_view product(std::string_view plugin) {
  return plugin == kOpenMpi ? "Open MPI" : "MPICH";
}

struct LoadedMpi {
  std::string_view plugin;
  std::string path;
  bool is_running = false;  ///< initialised and not finalised
};

/// Returns the MPI libraries in this process. Identifies them by symbols, because their file names may be the same
/// (MPICH's may be libmpi.so.12).
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

std::optional<std::string> why_child() {
  const pid_t joined = joining_process.load(std::memory_order_relaxed);
  if (joined != 0 && joined != getpid()) return fmt::format("forked from process {}, which has joined a job", joined);
  return std::nullopt;
}

[[noreturn]] void contradiction(const Settings& settings, std::string_view other) {
  throw InvalidArgument(
      fmt::format("FARANDOLE_MPI={}, but {}; unset FARANDOLE_MPI, or start the program with the mpirun of that MPI",
                  settings.launch.mpi, other));
}

std::string forced_plugin(const Settings& settings) {
  return settings.launch.mpi == "auto" || settings.launch.mpi == "off" ? std::string() : "mpi_" + settings.launch.mpi;
}

BackendChoice choose_for_communicator(const Settings& settings, const std::vector<LoadedMpi>& mpis,
                                      const Launch& launch) {
  const auto mpi = std::find_if(mpis.begin(), mpis.end(), [](const LoadedMpi& each) { return each.is_running; });
  if (mpi == mpis.end()) {
    throw InvalidArgument(
        "an MPI communicator was passed, but this process has loaded no libmpi that is initialised; call MPI_Init "
        "first, and link MPI as a shared library");
  }
  if (settings.launch.mpi == "off") contradiction(settings, "an MPI communicator was passed");
  if (const std::string forced = forced_plugin(settings); !forced.empty() && forced != mpi->plugin) {
    contradiction(settings,
                  fmt::format("the communicator that was passed belongs to {} ({})", product(mpi->plugin), mpi->path));
  }
  return {std::string(mpi->plugin), fmt::format("a communicator of {} was passed", product(mpi->plugin)), 0,
          launch.launched};
}

/// Joins an MPI that is initialised already, whatever started the program.
BackendChoice choose_running(const Settings& settings, const LoadedMpi& mpi, const Launch& launch) {
  if (const std::string forced = forced_plugin(settings); !forced.empty() && forced != mpi.plugin) {
    contradiction(settings, fmt::format("this process has initialised {} ({})", product(mpi.plugin), mpi.path));
  }
  return {std::string(mpi.plugin),
          fmt::format("{} is initialised ({}){}", product(mpi.plugin), mpi.path, launch.reason), launch.mpi.size,
          launch.launched};
}

std::string only_available(const Settings& settings, const MpiLauncher& launcher) {
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

/// Selects the plug-in if no MPI is initialised. The launcher, the libmpi that the program is linked with, and
/// FARANDOLE_MPI must agree.
BackendChoice choose_by_environment(const Settings& settings, const std::vector<LoadedMpi>& mpis,
                                    const Launch& launch) {
  const MpiLauncher& launcher = launch.mpi;
  const std::string forced = forced_plugin(settings);
  const bool knows = launcher.is_certain && !launcher.plugin.empty();
  const auto choice = [&](std::string_view plugin, const std::string& reason) {
    return BackendChoice{std::string(plugin), reason + launch.reason, launcher.size, launch.launched};
  };
  if (!forced.empty()) {
    if (knows && forced != launcher.plugin) {
      contradiction(settings, fmt::format("the launcher of {} started this process ({})", product(launcher.plugin),
                                          launcher.evidence));
    }
    return choice(forced, fmt::format("FARANDOLE_MPI={}", settings.launch.mpi));
  }
  const bool loads_one = mpis.size() == 1;
  if (knows && loads_one && mpis.front().plugin != launcher.plugin) {
    throw InvalidArgument(
        fmt::format("this program is linked with {} ({}), but the launcher of {} started it ({}); start it with the "
                    "mpirun of {}",
                    product(mpis.front().plugin), mpis.front().path, product(launcher.plugin), launcher.evidence,
                    product(mpis.front().plugin)));
  }
  if (!knows && loads_one) {
    return choice(mpis.front().plugin, fmt::format("{}, and {} is loaded", launcher.evidence, mpis.front().path));
  }
  if (!launcher.plugin.empty()) return choice(launcher.plugin, launcher.evidence);
  return choice(only_available(settings, launcher), launcher.evidence + ", and there is one MPI plug-in");
}

/// Makes the symbols of the plug-in's MPI global, as Open MPI's components expect.
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

/// True if no launcher has made the job and the program has a Bootstrap that can share texts. torchrun's variables make
/// no job then: they name a meeting place, but bring no key.
bool joins_by_bootstrap(const Settings& settings, const JoinOptions& options, const Launch& launch) {
  if (options.bootstrap == nullptr || !options.bootstrap->share) return false;
  return launch.way == Launch::Way::kNone || (launch.way == Launch::Way::kTcp && settings.launch.rendezvous.empty());
}

/// @throws InvalidArgument  the numbers are no place in a job, or torchrun's variables say another place
BackendChoice choose_bootstrap(const Bootstrap& bootstrap, const Launch& launch) {
  if (bootstrap.processes < 1 || bootstrap.process < 0 || bootstrap.process >= bootstrap.processes) {
    throw InvalidArgument(fmt::format("the program says that this process is number {} of {}; expected 0 to {}",
                                      bootstrap.process, bootstrap.processes, bootstrap.processes - 1));
  }
  const LaunchedAs& torch = launch.launched;
  if (launch.way == Launch::Way::kTcp &&
      (torch.process != bootstrap.process || torch.processes != bootstrap.processes)) {
    throw InvalidArgument(
        fmt::format("the program says that this process is number {} of {}, but RANK is {} and WORLD_SIZE {}; pass the "
                    "same numbers, "
                    "or unset the variables",
                    bootstrap.process, bootstrap.processes, torch.process, torch.processes));
  }
  return {std::string(kTcp),
          "the program has started the processes",
          bootstrap.processes,
          {bootstrap.process, bootstrap.processes, {}, torch.text}};
}

}  // namespace

BackendChoice choose_backend(const Settings& settings, const JoinOptions& options) {
  const std::optional<std::string> child = why_child();
  const std::vector<LoadedMpi> mpis = child ? std::vector<LoadedMpi>() : loaded_mpis();
  const auto running = std::find_if(mpis.begin(), mpis.end(), [](const LoadedMpi& mpi) { return mpi.is_running; });
  const Launch launch =
      find_launch(settings, getenv, {getpid(), running != mpis.end(), options.mpi_communicator.has_value()});
  if (joins_by_bootstrap(settings, options, launch)) return choose_bootstrap(*options.bootstrap, launch);
  if (launch.way == Launch::Way::kLocal || launch.way == Launch::Way::kTcp) {
    return {std::string(launch.way == Launch::Way::kLocal ? kLocal : kTcp), launch.reason, launch.launched.processes,
            launch.launched};
  }
  if (launch.way == Launch::Way::kPmix && !child) {
    return {std::string(kPmix), launch.reason, /*launched_size=*/0, launch.launched};
  }
  if (child) {
    if (!options.mpi_communicator) return {{}, *child, 0, {}};
    throw InvalidArgument(
        fmt::format("an MPI communicator was passed, but this process (pid {}) was {}: MPI belongs to its parent",
                    getpid(), *child));
  }
  if (options.mpi_communicator) return choose_for_communicator(settings, mpis, launch);
  if (launch.way == Launch::Way::kNone) return {{}, launch.reason, 0, {}, launch.doubt};
  if (running != mpis.end()) return choose_running(settings, *running, launch);
  return choose_by_environment(settings, mpis, launch);
}

Backend& load_backend(std::string_view plugin, const Settings& settings) {
  // Without the mutex, which a thread of the parent may have held at the fork: a forked child may join a job without
  // MPI.
  if (plugin == kLocal || plugin == kTcp) {
    remember_joining();
    return plugin == kLocal ? local::local_backend() : tcp::tcp_backend();
  }
  if (plugin == kPmix) {
    remember_joining();
    return pmix::pmix_backend();
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
