// SPDX-License-Identifier: Apache-2.0
// Mutual authentication at the beginning of a connection: each end proves that it has the job's key before the peer
// reads anything else.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "farandole/internal/deadline.h"
#include "sockets/descriptor.h"
#include "tcp/job_key.h"

namespace farandole::tcp {

using sockets::UniqueDescriptor;

/// Purpose of a connection.
enum class Purpose : std::uint16_t {
  kMessages = 1,    ///< carries one of the Links between two processes
  kRendezvous = 2,  ///< joins the job at process 0
};

/// Claims of one end about itself. See Handshake::peer for when the other end may believe the claims.
struct Introduction {
  std::uint64_t job = 0;  ///< number of the job
  std::int32_t process = 0;
  std::int32_t processes = 0;
  std::uint32_t start = 0;  ///< identifies a start of the job, see TcpNetwork::set_start; kRendezvous: 0
  Purpose purpose = Purpose::kMessages;
  std::uint16_t connection = 0;  ///< index of the connection, set by the initiator; responder: 0
  bool operator==(const Introduction&) const = default;
};

/// Answer of the responder to an initiator that has proved to be of the job.
enum class Verdict : std::uint8_t {
  kAccepted = 1,
  kCrossed = 2,  ///< simultaneous connect: the responder's own attempt is kept
  kTaken = 3,    ///< the two processes have this connection already
  kMisfit = 4,   ///< the number of processes differs, or the initiator's number is invalid or the responder's own
};

/// One end of the handshake on a new, non-blocking stream socket. The initiator is the end that has connected, the
/// responder the end that has accepted.
///
///     initiator  opening →          ← opening         responder
///                proof   →          ← verdict, proof
///                confirmation →
///
/// 1. Both send an opening of fixed length: a fresh nonce and an Introduction.
/// 2. The initiator proves that it has the key, by an HMAC-SHA-256 over both openings.
/// 3. The responder's owner decides on the verdict; the responder sends the verdict and its own HMAC, over both
///    openings and the verdict.
/// 4. If the verdict is kAccepted, the initiator confirms. The responder uses the connection only after the
///    confirmation, as the initiator may have cancelled meanwhile.
///
/// The nonces prevent replay. An HMAC includes the role of its maker, which prevents reflection. An HMAC also includes
/// the port that the initiator has connected to, which prevents relaying: a program without the key cannot listen at
/// another port of the host and pass the messages on (initiators try several ports for the rendezvous).
///
/// Reads no byte beyond the handshake. Not thread-safe.
class Handshake {
 public:
  enum class State {
    kUnderway,
    kProven,   ///< responder: the initiator has the key; next is `decide`
    kDone,     ///< both ends are of the job, and the responder has accepted
    kRefused,  ///< both ends are of the job, and the responder has rejected, see `verdict`
    kFailed,   ///< see `problem`: the peer is a stranger, or the connection has ended
  };
  /// Time within which the peer must prove to be of the job.
  static constexpr std::chrono::seconds kDeadline{5};

  /// Makes the initiator. `socket` is connected, or connect(2) is in progress.
  /// @param target_process  number of the process that the initiator wants to reach
  static Handshake initiate(UniqueDescriptor socket, const JobKey& key, const Introduction& own, int target_process);
  /// Makes the responder.
  static Handshake respond(UniqueDescriptor socket, const JobKey& key, const Introduction& own);
  Handshake(Handshake&&) noexcept = default;
  Handshake& operator=(Handshake&&) noexcept = default;

  /// Sends and reads as far as the socket allows. Non-blocking; the peer cannot make this function throw.
  State advance();
  State state() const { return state_; }
  /// Sets the verdict. Responder only, in state kProven.
  void decide(Verdict verdict);
  /// The peer's introduction. The responder may believe the introduction from state kProven on, the initiator in states
  /// kDone and kRefused.
  const Introduction& peer() const { return peer_opening_.introduction; }
  /// The responder's verdict, in states kDone and kRefused.
  Verdict verdict() const { return verdict_; }
  /// Why the handshake failed, in state kFailed: "the connection was closed during the handshake".
  const std::string& problem() const { return problem_; }
  /// In state kFailed: true if the peer lacks the key, or sent data that no process of a job sends; false if the
  /// connection ended, or if the peer is another process of the job, or serves another purpose.
  bool is_stranger() const { return is_stranger_; }
  /// True once the peer has proved to be of the job.
  bool is_proven() const { return is_proven_; }
  /// True if the peer has not proved to be of the job within kDeadline.
  bool is_overdue(Clock::time_point now) const;
  Clock::time_point start() const { return start_; }

  int descriptor() const { return socket_.get(); }
  /// The event to wait for with poll(2): POLLIN or POLLOUT.
  short awaited_events() const;
  /// True once the socket has accepted data, which shows that the connection is established.
  bool is_connected() const { return is_connected_; }
  /// Returns the socket, in state kDone. The peer's next byte is the first byte after the handshake.
  UniqueDescriptor take_socket() { return std::move(socket_); }

 private:
  /// First message of each end. The layout is the same in all versions, up to and including `version`.
  struct Opening {
    std::array<char, 8> magic{};
    std::uint32_t version = 0;
    std::int32_t target_process = -1;  ///< initiator: number of the process to reach; responder: its own number
    Introduction introduction;
    std::array<unsigned char, 32> nonce{};
  };
  static_assert(sizeof(Opening) == 72);
  using Proof = std::array<unsigned char, 32>;
  struct Answer {
    Verdict verdict = Verdict::kAccepted;
    Proof proof{};
  };
  static_assert(sizeof(Answer) == 33);
  enum class AwaitedPart { kOpening, kProof, kDecision, kAnswer, kConfirmation, kNothing };

  Handshake(UniqueDescriptor socket, const JobKey& key, const Introduction& own, int target_process, bool is_initiator);
  std::size_t awaited_bytes() const;
  bool flush();
  bool fill();
  void process_part();
  void process_opening();
  void process_proof();
  void process_answer();
  Proof make_proof(bool by_initiator, Verdict verdict) const;
  template <class Part>
  void enqueue(const Part& part);
  template <class Part>
  Part parse_received() const;
  void fail(std::string problem, bool is_stranger);

  UniqueDescriptor socket_;
  JobKey key_{};
  bool is_initiator_ = false;
  bool is_connected_ = false;
  bool is_proven_ = false;
  Clock::time_point start_;
  Opening own_opening_, peer_opening_;
  AwaitedPart awaited_part_ = AwaitedPart::kOpening;
  State state_ = State::kUnderway;
  Verdict verdict_ = Verdict::kAccepted;
  std::string problem_;
  bool is_stranger_ = false;
  std::string outgoing_;  // queued bytes that the socket has not accepted
  std::array<std::byte, sizeof(Opening)> incoming_{};
  std::size_t received_bytes_ = 0;  // received bytes of the awaited part
};

}  // namespace farandole::tcp
