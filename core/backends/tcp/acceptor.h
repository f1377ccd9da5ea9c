// SPDX-License-Identifier: Apache-2.0
// Listening socket of a process; authenticates incoming connections.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string_view>
#include <vector>

#include "farandole/core/settings.h"
#include "farandole/internal/deadline.h"
#include "tcp/handshake.h"

struct pollfd;

namespace farandole::tcp {

/// Listening socket, and the handshakes on accepted connections. Each connecting process must prove that it belongs to
/// the job (Handshake); then `decide` gives the verdict, and `adopt` takes the socket. The owner calls `advance`
/// regularly.
///
/// A connection that fails the proof, or does not complete the proof within Handshake::kDeadline, is a stranger: the
/// connection is closed and counted. A log line, at most once a minute, reports strangers, and connections that wait
/// because this process has reached its limit of open files. Non-blocking. Not thread-safe.
class Acceptor {
 public:
  /// Maximum number of handshakes, in addition to one per process of the job, so that all processes can connect at the
  /// same time. Beyond the maximum, the oldest unproven handshake is dropped, and counted as a stranger.
  static constexpr std::size_t kMaxPending = 64;
  using Decide = std::function<Verdict(const Introduction& peer)>;
  using Adopt = std::function<void(const Introduction& peer, UniqueDescriptor socket)>;

  Acceptor(UniqueDescriptor listener, const JobKey& key, const Introduction& own, Seconds peer_timeout);

  /// Sets the introduction that is sent on connections accepted from now on.
  void set_introduction(const Introduction& own) { introduction_ = own; }
  /// Accepts connections and advances their handshakes.
  /// @param decide  called for each connecting process that has proved to be of the job; its `process` and `processes`
  ///                may still be any numbers. Exceptions pass through.
  /// @param adopt   receives each connection whose handshake is done
  void advance(const Decide& decide, const Adopt& adopt);
  /// True if the newest handshake is in progress and began less than 50 ms ago, so that its next bytes are about to
  /// arrive and frequent polling pays off. A peer that stays silent is not polled so often.
  bool has_new(Clock::time_point now) const;
  /// Number of connections that were dropped because they are not of the job.
  std::uint64_t strangers() const { return strangers_; }
  /// Adds the sockets and events to wait for with poll(2).
  void add_to(std::vector<pollfd>& sockets) const;
  /// Closes the sockets in a forked child.
  void drop_sockets();

 private:
  std::size_t max_pending() const { return kMaxPending + static_cast<std::size_t>(introduction_.processes); }
  void accept();
  bool advance_handshake(Handshake& handshake, const Decide& decide, const Adopt& adopt);
  void count_stranger(std::string_view why);
  void warn_if_out_of_descriptors(int error);
  bool may_log();

  UniqueDescriptor listener_;
  const JobKey key_;
  Introduction introduction_;
  const Seconds peer_timeout_;
  std::list<Handshake> handshakes_;  // oldest first
  std::uint64_t strangers_ = 0;
  Clock::time_point next_log_{};  // time of the next permitted log line
};

}  // namespace farandole::tcp
