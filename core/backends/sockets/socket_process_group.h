// SPDX-License-Identifier: Apache-2.0
// Common part of the process groups over sockets.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farandole/internal/stall_monitor.h"
#include "farandole/sdk/backend.h"
#include "sockets/binomial_tree.h"
#include "sockets/link.h"

namespace farandole::sockets {

/// Process group over links: derive from this class and provide the links. Control messages go directly between the two
/// processes. A process that receives a fault forwards the fault to the processes that would notice the end of the
/// forwarding process, so that these processes raise the original error. An allgather uses the binomial tree, so it
/// needs links to neighbours in the tree only.
class SocketProcessGroup : public ProcessGroup {
 public:
  SocketProcessGroup(const SocketProcessGroup&) = delete;
  SocketProcessGroup& operator=(const SocketProcessGroup&) = delete;

  int process() const override { return process_; }
  int process_count() const override { return processes_; }
  ThreadUse thread_use() const override { return ThreadUse::kAnyThread; }
  std::string thread_advice() const override { return {}; }
  /// Gathers up the binomial tree to process 0, which sends the result down the tree: 2 ceil(log2(processes))
  /// consecutive messages, the longest of processes * bytes. An error is forwarded along the tree, so that all
  /// processes throw the same error.
  /// @throws PeerLost  names the lost process, even if that process is not a neighbour   @throws Timeout  names the
  /// processes that are late
  void allgather(const void* mine, void* all, std::size_t bytes) override;
  void post(int process, const ControlMessage& control) override;
  std::optional<ControlMessage> poll() override;
  bool is_gone(int process) override;
  bool detects_gone_processes() const override { return true; }
  bool is_flushed() override;
  std::unique_ptr<VendorCollectives> vendor_collectives(std::span<const int>, std::uint16_t) override {
    return nullptr;
  }
  void leave() override {}

 protected:
  /// @param timeout  0: wait for ever   @param timeout_origin  what has set the timeout, for the text of the error
  SocketProcessGroup(int process, int processes, Seconds warn_after, Seconds timeout,
                     std::string timeout_origin = "FARANDOLE_TIMEOUT");

  /// Returns the link to another process; makes the link if necessary.
  virtual Link& link_with(int process) = 0;
  /// Returns the link to another process if the link exists, else null.
  virtual Link* find_link(int process) = 0;
  /// Returns why nothing more can arrive from a process to which a link exists; empty while something may arrive.
  virtual std::string loss_reason(int process) = 0;
  /// True if another process notices the end of this process without a message. Such a process must be told of a fault
  /// before this process ends, because it would otherwise report this process as the first that was lost.
  virtual bool is_watched_by(int process) { return find_link(process) != nullptr; }
  /// Makes progress on links that are being connected.
  virtual void advance() {}
  /// Waits until the messages posted last, such as a fault, are sent; for a second at most, because a peer may have
  /// stopped reading. For the destructor of the class that owns the links.
  void flush_at_end();

 private:
  struct Gathering;
  void post_receive(Gathering& gathering, int from, std::byte* data, std::size_t bytes);
  void send_to(Gathering& gathering, int to, const std::byte* data, std::size_t bytes);
  void finish(Gathering& gathering);
  void check_while_waiting(Gathering& gathering);
  void read_messages_of(Gathering& gathering, int neighbour);
  void announce_late(Gathering& gathering);
  void send_error_to_neighbours(const Error& error);
  std::optional<ControlMessage> poll_locked();
  void forward_fault(ControlMessage fault);

  const int process_;
  const int processes_;
  const Seconds warn_after_, timeout_;
  const std::string timeout_origin_;
  const BinomialTree tree_;
  const std::vector<int> neighbours_;             // neighbours of this process in the tree
  std::uint64_t allgather_count_ = 0;             // number of allgathers begun; used by the joining thread only
  std::atomic<bool> has_forwarded_fault_{false};  // only the first fault is forwarded
  std::mutex mutex_;                              // guards the members below
  std::deque<ControlMessage> own_messages_;
};

}  // namespace farandole::sockets
