// SPDX-License-Identifier: Apache-2.0
// How a process calls another one, until the other end takes the call up.
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

/// What holds for all calls of one process to another one.
struct ConnectOptions {
  JobKey key{};
  Introduction mine;                ///< of the caller
  int called = 0;                   ///< the process that shall take the call up
  std::optional<Address> source;    ///< own address that calls go out from
  Seconds peer_timeout{60};         ///< of the connection: FARANDOLE_PEER_TIMEOUT
  Clock::duration connect_time{};   ///< from the start of a call: how long its address may leave it unconnected
  Clock::duration answer_time{};    ///< from the start of a call: how long the handshake may take
  Clock::duration first_pause{};    ///< from the failure at the last address to the next call of the first one; then
  Clock::duration longest_pause{};  ///< twice that, and so on, up to this
};

/// The calls of a process to another one: at one address after the other, again and again, until one is taken up.
/// Nothing blocks. Not thread-safe.
class Connector {
 public:
  enum class State {
    kWaiting,    ///< a call is under way, or the next one is not due yet
    kConnected,  ///< the call was taken up: `take_socket` comes next
    kFailed,     ///< a call has just ended without a connection: `failure`; the next `advance` goes on
  };
  /// How a call has ended that has brought no connection.
  struct Failure {
    enum class Kind {
      kUnreachable,   ///< the kernel of the other end does not answer, or there is no way to it
      kNotListening,  ///< no program listens there
      kSilent,        ///< a program listens there, and has not answered in time
      kBroken,        ///< the handshake has failed
      kDeclined,      ///< the other end is of the job, and has decided otherwise
    };
    Kind kind = Kind::kUnreachable;
    Address at;
    std::string text;                      ///< "Connection refused"
    Verdict verdict = Verdict::kAccepted;  ///< kDeclined

    /// "10.0.0.1:4711: Connection refused"
    std::string describe() const;
  };

  /// @param addresses  in the order in which they are called
  explicit Connector(const ConnectOptions& options, std::vector<Address> addresses = {});

  /// Until there are some no call is made. A call that is under way goes on.
  void set_addresses(std::vector<Address> addresses);
  const std::vector<Address>& addresses() const { return addresses_; }

  /// Goes on with the call, or begins the next one where it is due.
  State advance(Clock::time_point now);
  /// kConnected. The peer's next byte is the first one after the handshake.
  UniqueDescriptor take_socket();
  bool is_calling() const { return handshake_.has_value(); }
  /// True if a call is under way, and the kernel of the other end has taken it.
  bool is_through() const { return handshake_ && handshake_->is_connected(); }
  /// Ends the call that is under way, if there is one; the next one is due at `next`.
  void cancel(Clock::time_point next);

  /// Of the last call that has failed.
  const std::optional<Failure>& failure() const { return failure_; }
  /// The first failure since the other end has last shown that it is there: by a verdict, or because it has let a
  /// connected call wait for connect_time and more, as a process does that computes. None: it has not failed since.
  /// Verdict::kTaken shows nothing: the connection that it speaks of comes at once, or has been lost on its way.
  const std::optional<Clock::time_point>& failing_since() const { return failing_since_; }
  /// The first of the calls since which no program has listened at any address that was called. None: the last one has
  /// ended in another way.
  const std::optional<Clock::time_point>& refused_since() const { return refused_since_; }
  /// Adds what to look for with poll(2).
  void add_to(std::vector<pollfd>& sockets) const;

 private:
  State fail(Failure::Kind kind, std::string text, Clock::time_point now);

  const ConnectOptions options_;
  std::vector<Address> addresses_;
  std::size_t next_address_ = 0;
  std::optional<Handshake> handshake_;
  Address address_;  // of the call
  Clock::time_point start_{};
  Clock::time_point next_attempt_{};
  Clock::duration pause_;
  std::optional<Failure> failure_;
  std::optional<Clock::time_point> failing_since_;
  std::optional<Clock::time_point> refused_since_;
};

}  // namespace farandole::tcp
