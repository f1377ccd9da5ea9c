// SPDX-License-Identifier: Apache-2.0
// What process groups over sockets have in common, on one host and on several.
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

/// Control messages go directly from process to process. A process that is told of a fault passes it on to the
/// processes that would see it end; an allgather goes up and down the binomial tree, so that it needs no other links
/// than the tree's.
class SocketProcessGroup : public ProcessGroup {
 public:
  SocketProcessGroup(const SocketProcessGroup&) = delete;
  SocketProcessGroup& operator=(const SocketProcessGroup&) = delete;

  int process() const override { return process_; }
  int process_count() const override { return processes_; }
  ThreadUse thread_use() const override { return ThreadUse::kAnyThread; }
  std::string thread_advice() const override { return {}; }
  /// 2 ceil(log2(processes)) messages in a row, the longest of processes * bytes. What ends it here, with an error,
  /// ends it with the same error in all processes.
  /// @throws PeerLost  names the process that has gone, however far it is   @throws Timeout  names the process that
  /// does not come
  void allgather(const void* mine, void* all, std::size_t bytes) override;
  void post(int process, const ControlMessage& control) override;
  std::optional<ControlMessage> poll() override;
  bool is_gone(int process) override;
  bool tells_who_is_gone() const override { return true; }
  bool is_flushed() override;
  std::unique_ptr<VendorCollectives> vendor_collectives(std::span<const int>, std::uint16_t) override {
    return nullptr;
  }
  void leave() override {}

 protected:
  /// @param timeout  0: never
  SocketProcessGroup(int process, int processes, Seconds warn_after, Seconds timeout);

  /// The link with another process.
  virtual Link& link_with(int process) = 0;
  /// The same if it is there already, else null.
  virtual Link* find_link(int process) = 0;
  /// Why nothing comes from a process any more with which there is a link; empty while something may.
  virtual std::string why_lost(int process) = 0;
  /// Whether another process finds out by itself when this one ends: it must be told of a fault before that, or it
  /// would take this process for the one that was lost first.
  virtual bool is_watched_by(int process) { return find_link(process) != nullptr; }
  /// Goes on with links that are being made.
  virtual void advance() {}
  /// For the destructor of the class that owns the links: what was posted last, a fault maybe, should still leave; a
  /// process that does not read has a moment.
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
  const BinomialTree tree_;
  const std::vector<int> neighbours_;             // in the tree
  std::uint64_t allgather_count_ = 0;             // that have begun; of the thread that joins the job
  std::atomic<bool> has_forwarded_fault_{false};  // a fault: once is enough
  std::mutex mutex_;                              // guards what follows
  std::deque<ControlMessage> own_messages_;
};

}  // namespace farandole::sockets
