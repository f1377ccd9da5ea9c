// SPDX-License-Identifier: Apache-2.0
// Connections between the processes of a job, made on first use.
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

/// Addresses at which a process listens, best first. Processes send this struct to each other as bytes.
struct ListenAddresses {
  static constexpr std::size_t kMax = 6;
  std::array<Address, kMax> addresses{};  ///< entries of family 0 are empty
};

/// Connections of this process with the other processes of a job. Each pair of processes has up to two connections, one
/// per class of traffic, so that short messages do not wait behind long ones in the buffers of a connection.
///
/// - On first use, `link` returns a Link immediately; messages wait in the link until the connection is made. Either
///   process may connect. On simultaneous connect, the connection that the lower process has started is kept.
/// - Every connection starts with a Handshake. Strangers (connections that are not of the job) are dropped and counted,
///   and do not disturb the job.
/// - There is no thread: a thread that waits for a link calls `advance`, which accepts connections, advances attempts
///   to connect, and sends waiting messages.
///
/// Use: construct in every process, exchange `listens_at`, call `set_start` and `set_addresses`, then `link`.
/// Thread-safe.
class TcpNetwork {
 public:
  struct Options {
    int process = 0;
    int processes = 1;
    JobKey key{};
    std::uint64_t job = 0;     ///< number of the job
    std::string interface;     ///< FARANDOLE_NETWORK_INTERFACE
    Seconds peer_timeout{60};  ///< FARANDOLE_PEER_TIMEOUT
    /// Name of a process for messages: "rank 3 (host node7, pid 4711)". Empty: "process 3".
    std::function<std::string(int process)> name = nullptr;
  };

  /// Starts to listen. @throws InvalidArgument  no interface matches `interface`   @throws TransportError  listening
  /// failed
  explicit TcpNetwork(Options options);
  TcpNetwork(const TcpNetwork&) = delete;
  TcpNetwork& operator=(const TcpNetwork&) = delete;
  ~TcpNetwork();

  int process() const { return options_.process; }
  int processes() const { return options_.processes; }
  /// Addresses at which this process listens, to be passed to `set_addresses` in the other processes.
  const ListenAddresses& listens_at() const { return own_addresses_; }
  /// Local address of outgoing connections; empty if no interface was chosen.
  const std::optional<Address>& source() const { return source_; }
  /// Returns the addresses of a peer in the order in which this host should try them.
  std::vector<Address> by_reach(const ListenAddresses& addresses) const;
  /// Sets the random number that process 0 has drawn for this start of the job; 0 if never called. Processes of another
  /// start, which may have the same key and numbers, are strangers. Must be called before the functions below; until
  /// then, connections of peers wait in the queue of the listening socket.
  void set_start(std::uint32_t start);
  /// Sets the addresses of `process`. A `link` to the process that was made earlier connects after this call.
  void set_addresses(int process, const ListenAddresses& addresses);

  /// Returns the link to another process for this traffic. The first call, in either process, starts to connect;
  /// messages wait in the link until the connection is made. Non-blocking. Valid as long as the network.
  Link& link(int process, Traffic traffic = Traffic::kShort);
  /// Returns the link if it exists, connected or not; else null.
  Link* find(int process, Traffic traffic = Traffic::kShort) const {
    return links_[link_index({process, traffic})].load(std::memory_order_acquire);
  }
  /// True if the connection for this traffic is made.
  bool is_connected(int process, Traffic traffic = Traffic::kShort);
  /// Makes progress: accepts connections, advances attempts to connect, and sends messages that wait in any link for
  /// space in the socket. Non-blocking; cheap if there is nothing to do.
  void advance();
  /// Returns why nothing more can arrive from `process` for this traffic: "it closed the connection", "nothing came
  /// from its host for 60 s"; empty while something may arrive. Called by transfers that wait for the process.
  std::string loss_reason(int process, Traffic traffic = Traffic::kShort);
  /// Returns why the host of `process` cannot be reached, as seen on the connection for short traffic. Empty if the
  /// host answers, or if the process itself has ended the connection.
  std::string unreachable_reason(int process);
  /// Returns how the last attempt to connect to `process` for short traffic failed. Empty if the processes are
  /// connected, or if no attempt was made.
  std::string connect_failure(int process);
  /// Sleeps until something may have arrived, for `milliseconds` at most.
  void rest(int milliseconds);

  /// Returns "connections: 3 of 7 peers, 1 for long vectors".
  std::string describe() const;
  /// Number of connections made, over all processes.
  int connections(Traffic traffic = Traffic::kShort) const {
    return connections_[static_cast<std::size_t>(traffic)].load(std::memory_order_relaxed);
  }
  /// Number of connections that were dropped because they are not of the job.
  std::uint64_t strangers() const { return strangers_.load(std::memory_order_relaxed); }
  /// Mutex that is held around a fork, so that the child finds the members in a consistent state.
  ForkMutex& fork_mutex() { return mutex_; }
  /// Closes all sockets in a forked child, which has a single thread.
  void drop_sockets();

 private:
  /// Identifies a connection by its peer process and traffic.
  struct PeerId {
    int process = 0;
    Traffic traffic = Traffic::kShort;
    auto operator<=>(const PeerId&) const = default;
  };
  /// A peer that this process connects to, is connected with, or has accepted a handshake from.
  struct Peer {
    Connector connector;     // attempts of this process to connect
    SilenceWatch silence{};  // detects silence on the connection
    std::string lost{};
    bool is_out_of_reach = false;  // `lost` says that the host cannot be reached, not that the process has ended
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
  Verdict decide(const Introduction& claims);
  void connect(PeerId id, UniqueDescriptor socket);
  std::string why_peer_lost(PeerId id);
  Introduction introduction(Traffic traffic) const;
  std::string name_of(int process) const;

  const Options options_;
  const std::vector<InterfaceAddress> interfaces_;
  ListenAddresses own_addresses_;
  std::optional<Address> source_;          // local address of connections, if an interface was chosen
  std::uint32_t start_ = 0;                // const after the rendezvous
  std::vector<std::atomic<Link*>> links_;  // index: link_index
  std::array<std::atomic<int>, kTraffics> connections_{};
  std::atomic<std::uint64_t> strangers_{0};
  std::atomic<bool> is_connecting_{false};  // an attempt or handshake is in progress: `advance` polls each time
  std::atomic<Clock::rep> next_check_{0};
  ForkMutex mutex_;  // guards the members below
  std::optional<Acceptor> acceptor_;
  std::vector<std::vector<Address>> addresses_;  // by process, in the order in which to try them
  std::map<PeerId, Peer> peers_;                 // peers that this process wants to reach, or that have connected
  std::vector<std::unique_ptr<Link>> owned_links_;
};

}  // namespace farandole::tcp
