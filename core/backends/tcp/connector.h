// SPDX-License-Identifier: Apache-2.0
// Connecting to a peer process, with retries.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "farandole/core/settings.h"
#include "farandole/internal/deadline.h"
#include "tcp/address.h"
#include "tcp/handshake.h"

struct pollfd;

namespace farandole::tcp {

/// Parameters of all attempts to connect to one peer process.
struct ConnectOptions {
  JobKey key{};
  Introduction introduction;          ///< sent to the peer
  int target_process = 0;             ///< number of the peer process
  std::optional<Address> source;      ///< local address to connect from
  Seconds peer_timeout{60};           ///< FARANDOLE_PEER_TIMEOUT, for the connection that results
  Clock::duration connect_timeout{};  ///< limit for connect(2), from the start of an attempt
  Clock::duration answer_timeout{};   ///< limit for connect(2) and handshake, from the start of an attempt
  Clock::duration first_pause{};      ///< pause between a failure at the last address and the next attempt
  Clock::duration max_pause{};        ///< maximum of the pause, which doubles
};

/// Connects to a peer process: attempts its addresses in order, with a growing pause after the last address, until a
/// handshake succeeds. An attempt is a non-blocking connect(2) followed by a Handshake. A peer answers only when a
/// thread calls Acceptor::advance there, so a peer that computes may leave an attempt waiting for a long time;
/// `answer_timeout` limits this wait. Non-blocking: the owner calls `advance` regularly. Not thread-safe.
class Connector {
 public:
  enum class State {
    kWaiting,    ///< an attempt is in progress, or the next attempt is not due
    kConnected,  ///< the peer has accepted: call `take_socket` next
    kFailed,     ///< an attempt has just failed, see `failure`; the next `advance` continues
  };
  /// Why an attempt failed.
  struct Failure {
    enum class Kind {
      kUnreachable,   ///< the peer's host does not answer, or there is no route to it
      kNotListening,  ///< the host answers, but no program listens at the port
      kSilent,        ///< a program accepts the connection, but sends no answer in time
      kBroken,        ///< the handshake failed
      kDeclined,      ///< the peer belongs to the job and rejects the connection, see `verdict`
    };
    Kind kind = Kind::kUnreachable;
    Address at;
    std::string text;                      ///< "Connection refused"
    Verdict verdict = Verdict::kAccepted;  ///< of kind kDeclined

    /// Returns "10.0.0.1:4711: Connection refused".
    std::string describe() const;
  };

  /// @param addresses  in the order in which to try them; empty: see `set_addresses`
  explicit Connector(const ConnectOptions& options, std::vector<Address> addresses = {});

  /// Sets the addresses to try. No attempt is made while there are none; an attempt in progress continues.
  void set_addresses(std::vector<Address> addresses);
  const std::vector<Address>& addresses() const { return addresses_; }

  /// Advances the attempt in progress, or starts the next attempt if it is due.
  State advance(Clock::time_point now);
  /// Returns the connected socket, in state kConnected. The peer's next byte is the first byte after the handshake.
  UniqueDescriptor take_socket();
  /// True if an attempt is in progress.
  bool is_attempting() const { return handshake_.has_value(); }
  /// True if an attempt is in progress and the peer's kernel has established the connection.
  bool is_established() const { return handshake_ && handshake_->is_connected(); }
  /// Cancels the attempt in progress, if any. The next attempt is due at `next`.
  void cancel(Clock::time_point next);

  /// The last failure; empty if no attempt has failed.
  const std::optional<Failure>& failure() const { return failure_; }
  /// Time of the first failure since the peer last gave a sign of life: a verdict, or an established connection that
  /// waited for at least connect_timeout, as happens while a process computes. Empty if no attempt has failed since.
  /// Verdict::kTaken is not a sign of life: the connection that the peer reports arrives soon, or was lost on its way.
  const std::optional<Clock::time_point>& failing_since() const { return failing_since_; }
  /// Time of the first failure of kind kNotListening after which no attempt, at any address, ended in another way.
  /// Empty if the last attempt ended in another way.
  const std::optional<Clock::time_point>& refused_since() const { return not_listening_since_; }
  /// Adds the socket and events to wait for with poll(2).
  void add_to(std::vector<pollfd>& sockets) const;

 private:
  State fail(Failure::Kind kind, std::string text, Clock::time_point now);

  const ConnectOptions options_;
  std::vector<Address> addresses_;
  std::size_t next_address_ = 0;
  std::optional<Handshake> handshake_;
  Address address_;  // address of the attempt in progress, or of the last attempt
  Clock::time_point start_{};
  Clock::time_point next_attempt_{};
  Clock::duration pause_;
  std::optional<Failure> failure_;
  std::optional<Clock::time_point> failing_since_;
  std::optional<Clock::time_point> not_listening_since_;
};

}  // namespace farandole::tcp
