// SPDX-License-Identifier: Apache-2.0
// The connections between the processes of a job, made when they are first used.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farandole/core/settings.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/forked_children.h"
#include "farandole/sdk/transport.h"
#include "sockets/link.h"
#include "tcp/acceptor.h"
#include "tcp/address.h"
#include "tcp/connector.h"
#include "tcp/handshake.h"
#include "tcp/job_key.h"
#include "tcp/stream.h"

namespace farandole::tcp {

using sockets::Link;

/// Where a process listens, best first. Processes send each other theirs as these bytes.
struct ListenAddresses {
  static constexpr std::size_t kMax = 6;
  std::array<Address, kMax> addresses{};  ///< those with family 0 are none
};

/// A listening socket, and a Link for each traffic with each process that this one has exchanged such with: what is
/// short does not wait for what is long in the buffers of one connection. Whichever of two processes wants the other
/// first calls it; if both call at once, the call of the lower process counts. Strangers are dropped and counted, and
/// never disturb the job. There is no thread: a thread that waits for a link calls `advance`. Thread-safe.
class TcpNetwork {
 public:
  struct Options {
    int process = 0;
    int processes = 1;
    JobKey key{};
    std::uint64_t job = 0;     ///< number of the job
    std::string interface;     ///< FARANDOLE_NETWORK_INTERFACE
    Seconds peer_timeout{60};  ///< FARANDOLE_PEER_TIMEOUT
    /// For messages: "rank 3 (host node7, pid 4711)"; else "process 3".
    std::function<std::string(int process)> name = nullptr;
  };

  /// Listens. @throws InvalidArgument  no interface fits the choice   @throws TransportError
  explicit TcpNetwork(Options options);
  TcpNetwork(const TcpNetwork&) = delete;
  TcpNetwork& operator=(const TcpNetwork&) = delete;
  ~TcpNetwork();

  int process() const { return options_.process; }
  int processes() const { return options_.processes; }
  /// For the other processes.
  const ListenAddresses& listens_at() const { return own_addresses_; }
  /// The address that connections go out from, where an interface was chosen.
  const std::optional<Address>& source() const { return source_; }
  /// In the order in which this host should try them.
  std::vector<Address> by_reach(const ListenAddresses& addresses) const;
  /// A random number that process 0 has drawn for this start of the job. Processes of another start, which may have the
  /// same key and numbers, are strangers. Not set: 0. Before all that follows; callers wait so long.
  void set_start(std::uint32_t start);
  /// Where `process` listens. May come after the first `link` of that process, which waits for it.
  void set_addresses(int process, const ListenAddresses& addresses);

  /// The link with another process for that traffic. The first call of either process connects them; what is sent
  /// before that waits in the link. Never blocks. Valid as long as the network.
  Link& link(int process, Traffic traffic = Traffic::kShort);
  /// The same link, if there is one already, connected or not.
  Link* find(int process, Traffic traffic = Traffic::kShort) const {
    return links_[link_index({process, traffic})].load(std::memory_order_acquire);
  }
  bool is_connected(int process, Traffic traffic = Traffic::kShort);
  /// Answers callers, goes on with connections that are being made, and sends what has waited in any link for a full
  /// socket. Never blocks. Cheap if there is nothing to do.
  void advance();
  /// Why nothing of that traffic comes from that process any more: "the connection was closed", "no answer for 60 s";
  /// empty while something may. Asked by transfers that wait for it.
  std::string why_lost(int process, Traffic traffic = Traffic::kShort);
  /// The same for short traffic, if that says nothing of the process itself: its host answers nothing.
  std::string why_out_of_reach(int process);
  /// How the calls for short traffic of a process have ended that this one is not connected with; empty: they have not.
  std::string why_not_connected(int process);
  /// Sleeps until something may have arrived, `milliseconds` at most.
  void rest(int milliseconds);

  /// "connections: 3 of 7 peers, 1 for long vectors"
  std::string describe() const;
  /// That are made, with all processes.
  int connections(Traffic traffic = Traffic::kShort) const {
    return connections_[static_cast<std::size_t>(traffic)].load(std::memory_order_relaxed);
  }
  /// Acceptor that were dropped because they are not of the job.
  std::uint64_t strangers() const { return strangers_.load(std::memory_order_relaxed); }
  /// Held around a fork, so that the child finds whole what it lets go of.
  ForkMutex& fork_mutex() { return mutex_; }
  /// In a forked child, which has one thread: lets go of the sockets.
  void drop_sockets();

 private:
  /// A connection of this process, by its other end.
  struct PeerId {
    int process = 0;
    Traffic traffic = Traffic::kShort;
    auto operator<=>(const PeerId&) const = default;
  };
  /// The other end of a connection that this process wants to have, or has, or that has called it.
  struct Peer {
    Connector connector;     // of this process
    SilenceWatch silence{};  // of the connection
    std::string lost{};
    bool is_out_of_reach = false;  // why it is lost
    bool is_wanted = false;
    bool is_connected = false;
  };
  bool is_due();
  static std::size_t link_index(PeerId id) {
    return static_cast<std::size_t>(id.process) * kTraffics + static_cast<std::size_t>(id.traffic);
  }
  Link& link_of(PeerId id);
  Peer& peer_of(PeerId id);
  void advance_connector(PeerId id, Peer& peer, Clock::time_point now);
  void check_for_loss(PeerId id, Peer& peer, Clock::time_point now);
  Verdict decide(const Introduction& caller);
  void connect(PeerId id, UniqueDescriptor socket);
  std::string why_peer_lost(PeerId id);
  Introduction introduction(Traffic traffic) const;
  std::string name_of(int process) const;

  const Options options_;
  const std::vector<InterfaceAddress> interfaces_;
  ListenAddresses own_addresses_;
  std::optional<Address> source_;          // of connections, where an interface was chosen
  std::uint32_t start_ = 0;                // const once the processes have met
  std::vector<std::atomic<Link*>> links_;  // by place_of
  std::array<std::atomic<int>, kTraffics> connections_{};
  std::atomic<std::uint64_t> strangers_{0};
  std::atomic<bool> is_connecting_{false};  // something is under way that should be looked at often
  std::atomic<Clock::rep> next_check_{0};
  ForkMutex mutex_;  // guards what follows
  std::optional<Acceptor> acceptor_;
  std::vector<std::vector<Address>> addresses_;  // by process, in the order in which this host should try them
  std::map<PeerId, Peer> peers_;                 // that this process wants to have, or that have called
  std::vector<std::unique_ptr<Link>> owned_links_;
};

}  // namespace farandole::tcp
