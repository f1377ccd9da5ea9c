// SPDX-License-Identifier: Apache-2.0
// The door of a process: every caller of its listening socket must prove to be of the job.
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

/// A listening socket, and the handshakes with those that have called it. Strangers are dropped, counted, and logged
/// once a minute at most, as is that callers wait because this process may open no more files. Nothing blocks. Not
/// thread-safe.
class Acceptor {
 public:
  /// Handshakes with callers that have not proved to be of the job, beside one for each process of the job, so that all
  /// of those can call at once; the oldest makes room for the next.
  static constexpr std::size_t kMaxPending = 64;
  using Decide = std::function<Verdict(const Introduction& caller)>;
  using Adopt = std::function<void(const Introduction& caller, UniqueDescriptor socket)>;

  Acceptor(UniqueDescriptor listener, const JobKey& key, const Introduction& own, Seconds peer_timeout);

  /// What later callers are told.
  void set_introduction(const Introduction& own) { introduction_ = own; }
  /// Accepts callers and goes on with their handshakes.
  /// @param decide  on each caller that has proved to be of the job; its process and processes may be any numbers. What
  ///                it throws passes through.
  /// @param adopt   takes each connection whose handshake is done
  void advance(const Decide& decide, const Adopt& adopt);
  /// True if a handshake that has not ended began a moment ago, so that the rest of it is about to come. A caller that
  /// stays silent is not worth looking at again and again.
  bool has_new(Clock::time_point now) const;
  std::uint64_t strangers() const { return strangers_; }
  /// Adds what to look for with poll(2).
  void add_to(std::vector<pollfd>& sockets) const;
  /// In a forked child: lets go of the sockets.
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
  Clock::time_point next_log_{};  // in the log
};

}  // namespace farandole::tcp
