// SPDX-License-Identifier: Apache-2.0
// A job of processes of one host that no MPI started: FARANDOLE_RANK, FARANDOLE_SIZE and FARANDOLE_JOB.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "farandole/sdk/backend.h"
#include "local/local_transport.h"
#include "local/rendezvous.h"
#include "sockets/descriptor.h"

namespace farandole::local {

/// Everything between processes goes over a socket for each pair; the collectives of the ranks use shared memory.
class LocalProcessGroup final : public ProcessGroup {
 public:
  /// Blocks until all processes have met. @throws InvalidArgument, Timeout, TransportError  see `meet`
  explicit LocalProcessGroup(const Slot& slot);
  LocalProcessGroup(const LocalProcessGroup&) = delete;
  LocalProcessGroup& operator=(const LocalProcessGroup&) = delete;
  ~LocalProcessGroup() override;

  int process() const override { return process_; }
  int process_count() const override { return static_cast<int>(links_.size()); }
  ThreadUse thread_use() const override { return ThreadUse::kAnyThread; }
  std::string thread_advice() const override { return {}; }
  Transport& transport() override { return transport_; }
  void set_topology(const Topology& topology) override { transport_.set_topology(topology); }
  /// @throws PeerLost  a process has gone   @throws Timeout  names the processes that have not come
  void allgather(const void* mine, void* all, std::size_t bytes) override;
  void post(int process, const ControlMessage& control) override;
  std::optional<ControlMessage> poll() override;
  bool is_gone(int process) override;
  bool tells_who_is_gone() const override { return true; }
  bool is_flushed() override;
  void rest() override;
  std::unique_ptr<VendorCollectives> vendor_collectives(std::span<const int>, std::uint16_t) override {
    return nullptr;
  }
  void leave() override {}
  /// In a forked child, which has one thread: it is no process of the job, and must not look like one to its peers.
  void drop_sockets();

 private:
  std::optional<ControlMessage> poll_any();
  /// Looks until `is_done` is satisfied with what has passed between this process and the other.
  /// @throws PeerLost  it has gone before
  template <class Look>
  void wait_for(int process, std::string_view doing, const Look& is_done);

  const int process_;
  const std::chrono::duration<double> warn_after_, timeout_;
  UniqueDescriptor name_;
  Links links_;
  LocalTransport transport_{links_};
  std::mutex mutex_;  // guards what follows
  std::deque<ControlMessage> to_self_;
};

/// "0 of 2 in job": what the settings make of this process, for programs that it starts.
std::string slot_text(const Settings& settings);
/// The backend "local", part of the library.
Backend& local_backend();

}  // namespace farandole::local
