// SPDX-License-Identifier: Apache-2.0
// The first bytes of a connection: each end proves that it has the job's key before the other end reads anything else.
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

/// What a connection is for.
enum class Purpose : std::uint16_t {
  kMessages = 1,    ///< a Link between two processes, one of several
  kRendezvous = 2,  ///< a process calls the one at which the job meets
};

/// What one end says of itself; the other end may believe it once the handshake is done.
struct Introduction {
  std::uint64_t job = 0;  ///< number of the job
  std::int32_t process = 0;
  std::int32_t processes = 0;
  std::uint32_t start = 0;  ///< of the job, which may be started again: see TcpNetwork::set_start; kRendezvous: 0
  Purpose purpose = Purpose::kMessages;
  std::uint16_t connection = 0;  ///< of those between the two processes, that the caller makes; of the called end: 0
  bool operator==(const Introduction&) const = default;
};

/// What the called end answers a caller that has proved to be of the job.
enum class Verdict : std::uint8_t {
  kAccepted = 1,
  kCrossed = 2,  ///< the called end is calling the caller at the same time, and its own call is the one that counts
  kTaken = 3,    ///< there is a connection already
  kMisfit = 4,   ///< the two do not agree on the number of processes, or there is no process of the caller's number
};

/// One end of a new connection, on a non-blocking stream socket. Both ends send an opening (a fixed length: a nonce and
/// the introduction); the caller proves by an HMAC-SHA-256 over both openings that it has the key; the called end
/// decides, and proves the same together with its verdict; the caller confirms. The nonces are fresh, so what was
/// recorded proves nothing later, and each proof says which end has made it, so that it can not be sent back. It also
/// says which port was called, so that a program without the key can not listen at another port of the host and pass on
/// what both ends say until it is between them: the rendezvous is called at several ports.
///
///     caller   opening →            ← opening   called end
///              proof   →            ← verdict, proof
///              confirm →
///
/// No byte beyond the handshake is read. Not thread-safe.
class Handshake {
 public:
  enum class State {
    kUnderway,
    kProven,   ///< called end: the caller is of the job; `decide` comes next
    kDone,     ///< both ends are of the job, and the connection is accepted
    kRefused,  ///< both ends are of the job, and the called end has decided otherwise: `verdict`
    kFailed,   ///< `problem` says why: the other end is a stranger, or it has gone
  };
  /// How long an end that has not proved to be of the job is listened to.
  static constexpr std::chrono::seconds kDeadline{5};

  /// The end that has called: `socket` is connected, or is about to be.
  static Handshake call(UniqueDescriptor socket, const JobKey& key, const Introduction& mine, int called);
  /// The end that was called.
  static Handshake answer(UniqueDescriptor socket, const JobKey& key, const Introduction& mine);
  Handshake(Handshake&&) noexcept = default;
  Handshake& operator=(Handshake&&) noexcept = default;

  /// Goes as far as the socket lets it. Never blocks, never throws for what the other end does.
  State advance();
  State state() const { return state_; }
  /// Called end, in state kProven.
  void decide(Verdict verdict);
  /// Of the other end; believed from kProven on, at the caller from kDone on.
  const Introduction& peer() const { return peer_opening_.introduction; }
  /// kDone and kRefused.
  Verdict verdict() const { return verdict_; }
  /// kFailed: "an HMAC that the key of this job does not make"
  const std::string& problem() const { return problem_; }
  /// kFailed: true if the other end does not have the key, or sends what no process of a job sends; false if the
  /// connection has ended.
  bool is_stranger() const { return is_stranger_; }
  /// True once the other end has proved to be of the job.
  bool is_proven() const { return is_proven_; }
  /// True if it has not, and kDeadline has passed.
  bool is_overdue(Clock::time_point now) const;
  Clock::time_point start() const { return start_; }

  int descriptor() const { return socket_.get(); }
  /// For poll(2): POLLIN or POLLOUT.
  short awaited_events() const;
  /// True once the socket has taken something, so that it is connected.
  bool is_connected() const { return is_connected_; }
  /// kDone: what comes next on the socket is the peer's first byte after the handshake.
  UniqueDescriptor take_socket() { return std::move(socket_); }

 private:
  /// What each end sends first. The same for all versions up to `version`.
  struct Opening {
    std::array<char, 8> magic{};
    std::uint32_t version = 0;
    std::int32_t called = -1;  ///< the process that the caller wants; the called end: its own number
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

  Handshake(UniqueDescriptor socket, const JobKey& key, const Introduction& mine, int called, bool is_initiator);
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
  std::string outgoing_;  // what the socket has not taken yet
  std::array<std::byte, sizeof(Opening)> incoming_{};
  std::size_t received_bytes_ = 0;  // of the part that is awaited
};

}  // namespace farandole::tcp
