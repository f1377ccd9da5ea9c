// SPDX-License-Identifier: Apache-2.0
// Transport, implemented with MPI point-to-point messages.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "farandole/core/topology.h"
#include "farandole/sdk/transport.h"
#include "mpi_session.h"

namespace farandole::mpi {

/// Packs a channel into an MPI tag: communicator (12 bits), lane (2 bits), source replica and target replica (each as
/// many bits as the process with the most replicas needs; 0 bits with one replica per process, so that 16-bit tags
/// suffice).
class TagLayout {
 public:
  /// @throws Unsupported  `tag_upper_bound` allows too few bits
  TagLayout(int max_replicas, int tag_upper_bound);
  int pack(const Channel& channel, int source_replica, int target_replica) const {
    int tag = channel.communicator;
    tag = tag * kLanes + channel.lane;
    tag = (tag << replica_bits_) + source_replica;
    return (tag << replica_bits_) + target_replica;
  }

 private:
  int replica_bits_ = 0;
};

/// Sends each message as a single MPI message, or as several if the message exceeds the part size. All messages use the
/// session's message communicator; the channel is the tag, and MPI keeps messages of equal tag in order.
///
/// Thread-safe to the extent of the session. `set_topology` must be called once, before any other function.
class MpiTransport final : public Transport {
 public:
  /// @param slice_bytes  messages above this size (at most INT_MAX) are split into parts of this size; messages
  /// received by `recv_up_to` must not be above this size
  MpiTransport(MpiSession& session, std::size_t slice_bytes);
  void set_topology(const Topology& topology);

  std::string_view name() const override { return "mpi"; }
  std::unique_ptr<Transfer> send(const Channel& channel, const void* data, std::size_t bytes) override;
  std::unique_ptr<Transfer> recv(const Channel& channel, void* data, std::size_t bytes) override;
  std::unique_ptr<Transfer> recv_up_to(const Channel& channel, void* data, std::size_t max_bytes) override;
  bool is_polled() const override { return true; }
  bool can_send(MemoryKind kind) const override { return kind == MemoryKind::kHost || takes_device_memory_; }
  bool has_arrived(std::uint16_t communicator, std::uint8_t lane, int target) override;
  LinkCost cost() const override { return cost_; }
  std::uint64_t sent_bytes() const override { return sent_bytes_.load(std::memory_order_relaxed); }

 private:
  struct RankAddress {
    int process = 0;
    int replica = 0;
  };
  int tag_of(const Channel& channel) const;

  MpiSession& session_;
  const std::size_t part_bytes_;
  const bool takes_device_memory_;  // this MPI is CUDA-aware
  // Written by `set_topology`, const afterwards.
  std::vector<RankAddress> addresses_;  // by rank of the job
  int max_replicas_ = 1;
  TagLayout tags_;
  LinkCost cost_;
  std::atomic<std::uint64_t> sent_bytes_{0};
};

}  // namespace farandole::mpi
