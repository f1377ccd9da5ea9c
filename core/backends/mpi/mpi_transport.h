// SPDX-License-Identifier: Apache-2.0
// Channels over MPI point-to-point messages: the channel is the tag, and large messages travel in parts.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "farandole/core/topology.h"
#include "farandole/sdk/transport.h"
#include "mpi_session.h"

namespace farandole::mpi {

/// How a channel is packed into a tag: communicator (12 bits), lane (2), source replica and target replica (as many
/// bits as the job's largest process needs; 0 with one replica per process, so that an MPI with 16-bit tags will do).
class TagLayout {
 public:
  /// @throws Unsupported  tags of `tag_upper_bound` have too few bits
  TagLayout(int most_replicas, int tag_upper_bound);
  int pack(const Channel& channel, int source_replica, int target_replica) const {
    int tag = channel.communicator;
    tag = tag * kLanes + channel.lane;
    tag = (tag << replica_bits_) + source_replica;
    return (tag << replica_bits_) + target_replica;
  }

 private:
  int replica_bits_ = 0;
};

/// Thread-safe where the session is. `set_topology` comes before everything else, once.
class MpiTransport final : public Transport {
 public:
  /// Messages of more than `slice_bytes` bytes (at most INT_MAX) are cut into parts of that size; what is received by
  /// `recv_up_to` must not be.
  MpiTransport(MpiSession& session, std::size_t slice_bytes);
  void set_topology(const Topology& topology);

  std::string_view name() const override { return "mpi"; }
  std::unique_ptr<Transfer> send(const Channel& channel, const void* data, std::size_t bytes) override;
  std::unique_ptr<Transfer> recv(const Channel& channel, void* data, std::size_t bytes) override;
  std::unique_ptr<Transfer> recv_up_to(const Channel& channel, void* data, std::size_t most) override;
  bool is_polled() const override { return true; }
  bool can_send(MemoryKind kind) const override { return kind == MemoryKind::kHost || takes_device_memory_; }
  bool has_arrived(std::uint16_t communicator, std::uint8_t lane, int target) override;
  LinkCost cost() const override { return cost_; }
  std::uint64_t sent_bytes() const override { return sent_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    int process = 0;
    int replica = 0;
  };
  int tag_of(const Channel& channel) const;

  MpiSession& session_;
  const std::size_t part_bytes_;
  const bool takes_device_memory_;  // as this MPI says
  // Written by `set_topology`, const afterwards.
  std::vector<Slot> slots_;
  int most_replicas_ = 1;
  TagLayout tags_;
  LinkCost cost_;
  std::atomic<std::uint64_t> sent_bytes_{0};
};

}  // namespace farandole::mpi
