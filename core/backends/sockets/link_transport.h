// SPDX-License-Identifier: Apache-2.0
// Transport over links. The channel of a message (communicator, lane, target and source) is its key on the link.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "farandole/core/topology.h"
#include "farandole/internal/deadline.h"
#include "farandole/sdk/transport.h"
#include "sockets/link.h"

namespace farandole::sockets {

/// Common part of the transports over sockets: derive from this class and provide the links. Thread-safe.
/// `set_topology` must be called once, before any other function.
class LinkTransport : public Transport {
 public:
  void set_topology(const Topology& topology) { topology_.emplace(topology); }

  std::unique_ptr<Transfer> send(const Channel& channel, const void* data, std::size_t bytes) override;
  std::unique_ptr<Transfer> recv(const Channel& channel, void* data, std::size_t bytes) override;
  std::unique_ptr<Transfer> recv_up_to(const Channel& channel, void* data, std::size_t max_bytes) override;
  std::unique_ptr<Transfer> recv_reduce(const Channel& channel, void* out, const void* operand, std::size_t count,
                                        DType dtype, ReduceOp op) override;
  bool fuses_reduction() const override { return true; }
  bool has_arrived(std::uint16_t communicator, std::uint8_t lane, int target) override;
  bool is_polled() const override { return true; }
  std::uint64_t sent_bytes() const override { return sent_bytes_.load(std::memory_order_relaxed); }

  /// State of an incomplete transfer between its tests.
  struct WaitState {
    Clock::time_point next_check{};
    std::optional<Clock::time_point> lost_since;
  };
  /// Called after a transfer from or to rank `peer` was tested and is incomplete. @throws PeerLost  the peer is lost
  virtual void check_peer(int /*peer*/, Traffic /*traffic*/, WaitState& /*wait*/) {}

 protected:
  const Topology& topology() const { return *topology_; }
  /// Returns the link to another process for this traffic; null if `process` is this process.
  virtual Link* link_with(int process, Traffic traffic) = 0;
  /// Returns the link to another process for this traffic if the link exists, else null. A transport with one link for
  /// all traffic returns the link for kShort, and null for kLong.
  virtual Link* find_link(int process, Traffic traffic) const = 0;
  /// Called before `has_arrived` polls the links.
  virtual void before_polling() {}

 private:
  /// Returns the link to the process of rank `peer`. @throws InternalError  there is no such channel
  Link& link_of(const Channel& channel, int peer);

  std::optional<Topology> topology_;  // written by `set_topology`, const afterwards
  std::atomic<std::uint64_t> sent_bytes_{0};
};

}  // namespace farandole::sockets
