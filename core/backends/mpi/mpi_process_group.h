// SPDX-License-Identifier: Apache-2.0
// ProcessGroup, implemented with MPI: the processes of MPI_COMM_WORLD, or of a communicator that the program passes.
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

/// Maximum size of a single MPI message and of a single MPI collective. Longer messages and vectors are split into
/// parts, because MPI counts in int. Tests use small parts.
struct PartLimits {
  std::size_t message_bytes = std::size_t{1} << 30;
  std::size_t collective_count = std::size_t{1} << 30;
};

/// The processes of the parent communicator. Thread-safe to the extent of `thread_use`. Const after `set_topology`.
class MpiProcessGroup final : public ProcessGroup {
 public:
  /// Collective over the processes of the runtime's parent communicator. Blocks; the caller holds a Watch meanwhile.
  /// @param watch  times of the Watch in later blocking calls
  /// @throws InvalidArgument  on all processes, if they run different builds
  explicit MpiProcessGroup(const Runtime& runtime, const Watch::Times& watch = {}, PartLimits limits = {});
  /// Without a preceding `leave`: stops using MPI without MPI_Finalize, so that the launcher notices a failure.
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
  /// Exchanges builds and thread levels, before any other message. @throws InvalidArgument  builds differ
  void exchange_builds(int thread_level);
  /// `allgather` without a Watch.
  void gather(const void* mine, void* all, std::size_t bytes);

  MpiSession& session_;
  const Watch::Times watch_;
  const PartLimits limits_;
  MpiControlMessages control_messages_;
  MpiTransport transport_;
  std::vector<int> thread_levels_;  // by process; const after construction
};

}  // namespace farandole::mpi
