// SPDX-License-Identifier: Apache-2.0
// Entry point of the MPI plug-ins.
#include <cstdlib>
#include <memory>
#include <string>

#include <unistd.h>

#include "farandole/sdk/backend.h"
#include "farandole/sdk/plugin_build.h"
#include "mpi_process_group.h"
#include "mpi_runtime.h"

namespace farandole::mpi {

namespace {

class MpiBackend final : public Backend {
 public:
  std::string_view name() const override { return FARANDOLE_MPI_PLUGIN; }
  std::string version() const override { return library_version(); }
  std::unique_ptr<ProcessGroup> join(const Settings& settings, const JoinOptions& options) override {
    const Watch::Times times{settings.faults.warn_after, settings.faults.timeout};
    const Watch watch(times);
    auto group =
        std::make_unique<MpiProcessGroup>(start_runtime(options.mpi_communicator, options.many_threads), times);
    // Programs that this process starts inherit the launcher's variables. This variable tells them that they are not
    // part of the job.
    setenv("_FARANDOLE_JOINED_BY", std::to_string(getpid()).c_str(), /*replace=*/1);
    return group;
  }
};

}  // namespace

}  // namespace farandole::mpi

#define FARANDOLE_EXPORT extern "C" __attribute__((visibility("default")))

/// Read by the loader before any call of the plug-in.
FARANDOLE_EXPORT const char farandole_backend_build_id[];
const char farandole_backend_build_id[] = FARANDOLE_PLUGIN_BUILD_ID;

FARANDOLE_EXPORT farandole::Backend* farandole_backend_v1(const farandole::HostApi* host);
farandole::Backend* farandole_backend_v1(const farandole::HostApi* host) {
  if (host->size_bytes != sizeof(farandole::HostApi)) return nullptr;
  static farandole::mpi::MpiBackend backend;
  return &backend;
}
