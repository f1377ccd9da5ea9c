// SPDX-License-Identifier: Apache-2.0
#include "tcp/tcp_backend.h"

#include <memory>
#include <string>

#include "tcp/job_key.h"
#include "tcp/tcp_process_group.h"

namespace farandole::tcp {
namespace {

class TcpBackend final : public Backend {
 public:
  std::string_view name() const override { return "tcp"; }
  std::string version() const override { return "TCP connections"; }
  std::unique_ptr<ProcessGroup> join(const Settings& settings, const JoinOptions& options) override {
    const LaunchedAs& launched = options.launched;
    const JobName name{launched.rendezvous, settings.launch.job};
    Slot slot = make_slot(settings);
    slot.process = launched.process;
    slot.processes = launched.processes;
    // A process without peers needs no shared key: a random key keeps every other process out.
    slot.key = launched.processes == 1 ? make_job_key() : read_job_key(settings, name, KeptKey::of_process());
    slot.job = job_number(name);
    slot.rendezvous = launched.rendezvous;
    return std::make_unique<TcpProcessGroup>(slot);
  }
};

}  // namespace

Backend& tcp_backend() {
  static TcpBackend backend;
  return backend;
}

}  // namespace farandole::tcp
