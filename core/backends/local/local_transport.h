// SPDX-License-Identifier: Apache-2.0
// Channels over the sockets between the processes of a host that no MPI started.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "farandole/core/topology.h"
#include "farandole/sdk/transport.h"
#include "sockets/link.h"

namespace farandole::local {

using sockets::Link;

/// The connections of a process, by process; none with itself.
using Links = std::vector<std::unique_ptr<Link>>;

/// Carries what does not go through shared memory. Thread-safe. `set_topology` comes before everything else, once.
class LocalTransport final : public Transport {
 public:
  explicit LocalTransport(const Links& links) : links_(links) {}
  void set_topology(const Topology& topology) { topology_.emplace(topology); }

  std::string_view name() const override { return "local"; }
  std::unique_ptr<Transfer> send(const Channel& channel, const void* data, std::size_t bytes) override;
  std::unique_ptr<Transfer> recv(const Channel& channel, void* data, std::size_t bytes) override;
  std::unique_ptr<Transfer> recv_up_to(const Channel& channel, void* data, std::size_t most) override;
  std::unique_ptr<Transfer> recv_reduce(const Channel& channel, void* out, const void* operand, std::size_t count,
                                        DType dtype, ReduceOp op) override;
  bool fuses_reduction() const override { return true; }
  bool has_arrived(std::uint16_t communicator, std::uint8_t lane, int target) override;
  bool is_polled() const override { return true; }
  LinkCost cost() const override { return {5.0, 1e6 / 2e9}; }
  std::uint64_t sent_bytes() const override { return sent_bytes_.load(std::memory_order_relaxed); }

 private:
  /// The link to the process of `peer`. @throws InternalError  there is no such channel
  Link& link_of(const Channel& channel, int peer) const;

  const Links& links_;
  std::optional<Topology> topology_;  // written by `set_topology`, const afterwards
  std::atomic<std::uint64_t> sent_bytes_{0};
};

}  // namespace farandole::local
