// SPDX-License-Identifier: Apache-2.0
// Channels over the links of a process: the channel is the key.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "farandole/core/topology.h"
#include "farandole/internal/deadline.h"
#include "farandole/sdk/transport.h"
#include "sockets/link.h"

namespace farandole::sockets {

/// What is the same for the sockets of one host and of several. Thread-safe. `set_topology` comes before everything
/// else, once.
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

  /// Of a transfer that is not complete.
  struct WaitState {
    Clock::time_point next_check{};
    std::optional<Clock::time_point> lost_since;
  };
  /// A transfer from or to `peer`, a rank, was tested and is not complete. @throws PeerLost
  virtual void check_peer(int /*peer*/, Traffic /*traffic*/, WaitState& /*wait*/) {}

 protected:
  const Topology& topology() const { return *topology_; }
  /// The link with another process for that traffic; null: there can be none.
  virtual Link* link_with(int process, Traffic traffic) = 0;
  /// The link with another process that is for that traffic alone, or for all, where kShort is asked for; if there is
  /// one now.
  virtual Link* find_link(int process, Traffic traffic) const = 0;
  /// Before links are looked at.
  virtual void before_polling() {}

 private:
  /// The link to the process of `peer`. @throws InternalError  there is no such channel
  Link& link_of(const Channel& channel, int peer);

  std::optional<Topology> topology_;  // written by `set_topology`, const afterwards
  std::atomic<std::uint64_t> sent_bytes_{0};
};

}  // namespace farandole::sockets
