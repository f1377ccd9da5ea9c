// SPDX-License-Identifier: Apache-2.0
// Process 0, at which the processes of a job meet.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/deadline.h"
#include "sockets/kept_bytes.h"
#include "sockets/link.h"
#include "tcp/acceptor.h"
#include "tcp/rendezvous.h"
#include "tcp/rendezvous_messages.h"

struct pollfd;

namespace farandole::tcp::rendezvous {

/// Takes the calls of all other processes, and answers them when all have come. Nothing blocks but `refuse`. Not
/// thread-safe.
class Host {
 public:
  Host(const Slot& slot, TcpNetwork& network, const Request& own, UniqueDescriptor listener);

  /// Goes on. True once all have come and have been answered.
  /// @throws InvalidArgument  two processes do not fit together; shows both   @throws PeerLost  a process has gone
  bool advance();
  /// "processes 3, 7 have not come"
  std::string describe_missing() const;
  /// True once a call of this process itself has come.
  bool has_found_itself() const { return has_found_itself_; }
  /// The job does not start: tells all that have come why, and those that come within half a second. Blocks for a
  /// second at most.
  void refuse(const Error& error);
  /// Acceptor that were dropped because they are not of the job.
  std::uint64_t strangers() const { return acceptor_.strangers(); }
  /// Adds what to look for with poll(2).
  void add_to(std::vector<pollfd>& sockets) const;

 private:
  /// A process of the job that has called.
  struct Member {
    Introduction introduction;
    std::unique_ptr<sockets::Link> link;
    bool has_joined = false;  ///< its request has come
    bool is_refused = false;
  };
  void accept();
  bool receive_request(Member& member);
  void admit(Member& member, const Request& request);
  void check_for_lost(Clock::time_point now);
  void announce_missing(Clock::time_point now);
  void answer();
  bool is_flushed();
  std::vector<int> missing() const;
  const Request& request_of(int process) const { return *requests_[static_cast<std::size_t>(process)]; }

  const Slot slot_;
  TcpNetwork& network_;
  Acceptor acceptor_;
  sockets::KeptBytes kept_;
  std::list<Member> members_;
  std::vector<std::optional<Request>> requests_;  // by process: of those that have come
  int joined_count_ = 1;
  bool is_answered_ = false;
  bool has_found_itself_ = false;
  std::optional<int> lost_process_;
  Deadline lost_deadline_ = Deadline::never();  // the rest have until then to come
  Clock::time_point next_announcement_{};
};

}  // namespace farandole::tcp::rendezvous
