// SPDX-License-Identifier: Apache-2.0
// Rendezvous, in process 0.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/deadline.h"
#include "sockets/inbox.h"
#include "sockets/link.h"
#include "tcp/acceptor.h"
#include "tcp/rendezvous.h"
#include "tcp/rendezvous_messages.h"

struct pollfd;

namespace farandole::tcp::rendezvous {

/// Accepts the connections and requests of all other processes, and answers when all have sent their request.
/// Non-blocking, except for `refuse`. Not thread-safe.
class Server {
 public:
  Server(const Slot& slot, TcpNetwork& network, const Request& own, UniqueDescriptor listener);

  /// Makes progress. Returns true once all processes have connected and have been answered.
  /// @throws InvalidArgument  two processes do not fit together; the message shows both
  /// @throws PeerLost  a process has ended before all had connected
  bool advance();
  /// Returns "processes 3, 7 have not come".
  std::string describe_missing() const;
  /// True once a connection from this process itself has arrived, which shows that the rendezvous address leads here.
  bool has_found_itself() const { return has_found_itself_; }
  /// Sends the error to all processes that have connected, and to processes that connect within half a second. Blocks
  /// for a second at most.
  void refuse(const Error& error);
  /// Number of connections that were dropped because they are not of the job.
  std::uint64_t strangers() const { return acceptor_.strangers(); }
  /// Adds the sockets and events to wait for with poll(2).
  void add_to(std::vector<pollfd>& sockets) const;

 private:
  /// A process of the job that has connected.
  struct Member {
    Introduction introduction;
    std::unique_ptr<sockets::Link> link;
    bool has_joined = false;  ///< its request has arrived and was accepted
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
  std::vector<std::optional<Request>> requests_;  // by process; empty for processes that are missing
  int joined_count_ = 1;
  bool is_answered_ = false;
  bool has_found_itself_ = false;
  std::optional<int> lost_process_;
  Deadline lost_deadline_ = Deadline::never();  // end of the time for peers to report why `lost_process_` ended
  Clock::time_point next_announcement_{};
};

}  // namespace farandole::tcp::rendezvous
