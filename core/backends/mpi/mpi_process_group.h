// SPDX-License-Identifier: Apache-2.0
// The processes of a job that MPI has started, or of a communicator that the program has handed over.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farandole/sdk/backend.h"
#include "mpi_control_messages.h"
#include "mpi_runtime.h"
#include "mpi_session.h"
#include "mpi_transport.h"
#include "mpi_watch.h"

namespace farandole::mpi {

/// Where long messages are cut, because MPI counts in int. Tests use small parts.
struct PartLimits {
  std::size_t message_bytes = std::size_t{1} << 30;
  std::size_t collective_count = std::size_t{1} << 30;
};

/// Thread-safe as far as `thread_use` says; const after `set_topology`.
class MpiProcessGroup final : public ProcessGroup {
 public:
  /// Collective over the processes of the runtime's parent communicator. Blocks; the caller watches.
  /// @throws InvalidArgument  on all processes: they run different builds
  /// @param watch  for the blocking calls that follow
  explicit MpiProcessGroup(const Runtime& runtime, const Watch::Times& watch = {}, PartLimits limits = {});
  /// Without `leave` before it, stops using MPI and lets the launcher notice.
  ~MpiProcessGroup() override;

  int process() const override { return session_.process(); }
  int process_count() const override { return session_.process_count(); }
  ThreadUse thread_use() const override;
  std::string thread_advice() const override;
  Transport& transport() override { return transport_; }
  void set_topology(const Topology& topology) override { transport_.set_topology(topology); }

  void allgather(const void* mine, void* all, std::size_t bytes) override;
  void post(int process, const ControlMessage& control) override { control_messages_.post(process, control); }
  std::optional<ControlMessage> poll() override { return control_messages_.poll(); }
  std::unique_ptr<VendorCollectives> vendor_collectives(std::span<const int> processes, std::uint16_t id) override;
  bool is_flushed() override { return control_messages_.is_flushed(); }
  void rest() override;
  void leave() override;

 private:
  /// Compares the builds of all processes, before anything else is exchanged.
  void meet(int thread_level);
  void gather(const void* mine, void* all, std::size_t bytes);

  MpiSession& session_;
  const Watch::Times watch_;
  const PartLimits limits_;
  MpiControlMessages control_messages_;
  MpiTransport transport_;
  std::vector<int> thread_levels_;  // by process; const after construction
};

}  // namespace farandole::mpi
