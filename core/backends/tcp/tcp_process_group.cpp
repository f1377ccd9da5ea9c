// SPDX-License-Identifier: Apache-2.0
#include "tcp/tcp_process_group.h"

#include <cstddef>
#include <memory>
#include <string>

#include "tcp/job_key.h"

namespace farandole::tcp {
namespace {

class TcpBackend final : public Backend {
 public:
  std::string_view name() const override { return "tcp"; }
  std::string version() const override { return "TCP connections"; }
  std::unique_ptr<ProcessGroup> join(const Settings& settings, const JoinOptions& options) override {
    const LaunchedAs& launched = options.launched;
    if (launched.rendezvous.empty() && options.bootstrap != nullptr) return join(settings, *options.bootstrap);
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

 private:
  /// Process 0 makes the job's secret and distributes it by the program's own means.
  static std::unique_ptr<ProcessGroup> join(const Settings& settings, const Bootstrap& bootstrap) {
    const JobSecret secret = parse_secret(bootstrap.share(bootstrap.process == 0 ? to_text(make_job_secret()) : ""));
    Slot slot = make_slot(settings);
    slot.process = bootstrap.process;
    slot.processes = bootstrap.processes;
    slot.key = secret.key;
    slot.job = secret.job;
    slot.share = bootstrap.share;
    slot.advice = bootstrap.advice;
    if (bootstrap.timeout > Seconds(0) && (slot.timeout == Seconds(0) || bootstrap.timeout < slot.timeout)) {
      slot.timeout = bootstrap.timeout;
      slot.timeout_origin = bootstrap.timeout_name;
    }
    return std::make_unique<TcpProcessGroup>(slot);
  }
};

}  // namespace

Backend& tcp_backend() {
  static TcpBackend backend;
  return backend;
}

TcpProcessGroup::TcpProcessGroup(const Slot& slot)
    : SocketProcessGroup(slot.process, slot.processes, slot.warn_after, slot.timeout, slot.timeout_origin),
      network_(network_options(slot)) {
  meet(slot, network_);
  std::vector<ListenAddresses> all(static_cast<std::size_t>(slot.processes));
  allgather(&network_.listens_at(), all.data(), sizeof(ListenAddresses));
  for (int p = 0; p < slot.processes; ++p) {
    if (p != slot.process) network_.set_addresses(p, all[static_cast<std::size_t>(p)]);
  }
}

TcpProcessGroup::~TcpProcessGroup() {
  flush_at_end();
}

void TcpProcessGroup::set_topology(const Topology& topology) {
  for (int p = 0; p < topology.process_count(); ++p) {
    is_on_this_host_.push_back(topology.process(p).host_index == topology.process(process()).host_index);
  }
  transport_.set_topology(topology);
}

/// Processes of the same host notice each other's end even without a connection.
bool TcpProcessGroup::is_watched_by(int process) {
  return find_link(process) != nullptr ||
         (!is_on_this_host_.empty() && is_on_this_host_[static_cast<std::size_t>(process)]);
}

void TcpProcessGroup::rest() {
  network_.advance();
  network_.rest(1);
}

}  // namespace farandole::tcp
