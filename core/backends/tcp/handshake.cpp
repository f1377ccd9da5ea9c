// SPDX-License-Identifier: Apache-2.0
#include "tcp/handshake.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>
#include <type_traits>

#include "tcp/address.h"

namespace farandole::tcp {
namespace {

constexpr std::array<char, 8> kMagic{'f', 'a', 'r', 'a', 'n', 'd', 'o', 'l'};
constexpr std::uint32_t kVersion = 3;
// What the caller sends last, so that the called end does not take up a connection that the caller has given up.
constexpr std::uint8_t kConfirmation = 1;
constexpr const char* kWrongProof =
    "a proof that the key of this job does not make, or not for the port that was called";

static_assert(crypto_auth_hmacsha256_KEYBYTES == std::tuple_size_v<JobKey>);

bool is_wait(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOTCONN;
}

/// The port that was called, as this end knows it; 0: a connection without ports, or none any more.
std::uint64_t called_port(const UniqueDescriptor& socket, bool is_caller) {
  sockaddr_storage end{};
  socklen_t length = sizeof end;
  auto& address = reinterpret_cast<sockaddr&>(end);
  const int result =
      is_caller ? getpeername(socket.get(), &address, &length) : getsockname(socket.get(), &address, &length);
  const bool has_port = result == 0 && (address.sa_family == AF_INET || address.sa_family == AF_INET6);
  return has_port ? from_sockaddr(address).port : 0;
}

}  // namespace

Handshake Handshake::call(UniqueDescriptor socket, const JobKey& key, const Introduction& mine, int called) {
  return {std::move(socket), key, mine, called, /*is_caller=*/true};
}

Handshake Handshake::answer(UniqueDescriptor socket, const JobKey& key, const Introduction& mine) {
  return {std::move(socket), key, mine, mine.process, /*is_caller=*/false};
}

Handshake::Handshake(UniqueDescriptor socket, const JobKey& key, const Introduction& mine, int called, bool is_caller)
    : socket_(std::move(socket)), key_(key), is_caller_(is_caller), start_(Clock::now()) {
  mine_ = {kMagic, kVersion, called, mine, random_256_bits()};
  queue(mine_);
}

template <class Part>
void Handshake::queue(const Part& part) {
  static_assert(std::is_trivially_copyable_v<Part>);
  outgoing_.append(reinterpret_cast<const char*>(&part), sizeof part);
}

template <class Part>
Part Handshake::taken() const {
  static_assert(std::is_trivially_copyable_v<Part> && sizeof(Part) <= sizeof(incoming_));
  Part part;
  std::memcpy(&part, incoming_.data(), sizeof part);
  return part;
}

Handshake::State Handshake::advance() {
  while (state_ == State::kUnderway && flush() && fill()) take();
  return state_;
}

bool Handshake::is_overdue(Clock::time_point now) const {
  return state_ == State::kUnderway && !is_proven_ && now - start_ >= kDeadline;
}

short Handshake::awaited_events() const {
  return outgoing_.empty() ? POLLIN : POLLOUT;
}

/// True once the socket has all that was queued.
bool Handshake::flush() {
  while (!outgoing_.empty()) {
    const ssize_t sent = send(socket_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      if (!is_wait(errno)) fail(std::generic_category().message(errno), /*is_stranger=*/false);
      return false;
    }
    is_connected_ = true;
    outgoing_.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

std::size_t Handshake::awaited_bytes() const {
  switch (awaits_) {
    case Awaits::kOpening:
      return sizeof(Opening);
    case Awaits::kProof:
      return sizeof(Proof);
    case Awaits::kAnswer:
      return sizeof(Answer);
    case Awaits::kConfirmation:
      return sizeof kConfirmation;
    case Awaits::kDecision:
    case Awaits::kNothing:
      break;
  }
  return 0;
}

/// True once all of the part that is awaited has come, and not a byte more was read.
bool Handshake::fill() {
  while (came_ < awaited_bytes()) {
    const ssize_t got = recv(socket_.get(), incoming_.data() + came_, awaited_bytes() - came_, 0);
    if (got < 0 && is_wait(errno)) return false;
    if (got <= 0) {
      fail(got == 0 ? "the connection was closed during the handshake" : std::generic_category().message(errno),
           /*is_stranger=*/false);
      return false;
    }
    came_ += static_cast<std::size_t>(got);
  }
  came_ = 0;
  return true;
}

void Handshake::take() {
  switch (awaits_) {
    case Awaits::kOpening:
      return take_opening();
    case Awaits::kProof:
      return take_proof();
    case Awaits::kAnswer:
      return take_answer();
    case Awaits::kConfirmation:
      if (taken<std::uint8_t>() != kConfirmation) return fail("no confirmation", /*is_stranger=*/true);
      [[fallthrough]];
    case Awaits::kNothing:
      state_ = verdict_ == Verdict::kAccepted ? State::kDone : State::kRefused;
      return;
    case Awaits::kDecision:
      return;
  }
}

void Handshake::take_opening() {
  theirs_ = taken<Opening>();
  if (theirs_.magic != kMagic) return fail("something that is no handshake", /*is_stranger=*/true);
  if (theirs_.version != kVersion) {
    return fail(
        fmt::format("version {} of the handshake, where this process has version {}", theirs_.version, kVersion),
        /*is_stranger=*/true);
  }
  const Introduction& them = theirs_.introduction;
  const Introduction& us = mine_.introduction;
  if (them.job != us.job || them.start != us.start) {
    return fail("the handshake of another job, or of another start of this one", /*is_stranger=*/true);
  }
  // A caller that looks for the rendezvous may have tried a port at which another process of the job listens.
  if (them.purpose != us.purpose) return fail("the handshake of a connection for another purpose", false);
  // A caller may have tried an address that another process of the job has, too.
  const int called = is_caller_ ? them.process : us.process;
  if (mine_.called != called || theirs_.called != called) {
    return fail(fmt::format("process {} was called, and process {} answers", is_caller_ ? mine_.called : theirs_.called,
                            called),
                /*is_stranger=*/false);
  }
  if (is_caller_) queue(prove(/*by_caller=*/true, Verdict::kAccepted));
  awaits_ = is_caller_ ? Awaits::kAnswer : Awaits::kProof;
}

void Handshake::take_proof() {
  const Proof right = prove(/*by_caller=*/true, Verdict::kAccepted);
  if (crypto_verify_32(taken<Proof>().data(), right.data()) != 0) {
    return fail(kWrongProof, /*is_stranger=*/true);
  }
  is_proven_ = true;
  awaits_ = Awaits::kDecision;
  state_ = State::kProven;
}

void Handshake::decide(Verdict verdict) {
  verdict_ = verdict;
  queue(Answer{verdict, prove(/*by_caller=*/false, verdict)});
  awaits_ = verdict == Verdict::kAccepted ? Awaits::kConfirmation : Awaits::kNothing;
  state_ = State::kUnderway;
}

void Handshake::take_answer() {
  const auto answer = taken<Answer>();
  const Proof right = prove(/*by_caller=*/false, answer.verdict);
  if (crypto_verify_32(answer.proof.data(), right.data()) != 0) {
    return fail(kWrongProof, /*is_stranger=*/true);
  }
  is_proven_ = true;
  verdict_ = answer.verdict;
  if (verdict_ == Verdict::kAccepted) queue(kConfirmation);
  awaits_ = Awaits::kNothing;
}

/// The HMAC over which end makes it, the called end's verdict, the port that was called, and both openings.
Handshake::Proof Handshake::prove(bool by_caller, Verdict verdict) const {
  struct Message {
    std::array<char, 7> role{};
    Verdict verdict{};
    std::uint64_t port = 0;
    Opening caller, called;
  } message;
  static_assert(sizeof message == 16 + 2 * sizeof(Opening));
  message.role =
      by_caller ? std::array{'c', 'a', 'l', 'l', 'e', 'r', ' '} : std::array{'c', 'a', 'l', 'l', 'e', 'd', ' '};
  message.verdict = verdict;
  message.port = called_port(socket_, is_caller_);
  message.caller = is_caller_ ? mine_ : theirs_;
  message.called = is_caller_ ? theirs_ : mine_;
  Proof proof;
  crypto_auth_hmacsha256(proof.data(), reinterpret_cast<const unsigned char*>(&message), sizeof message, key_.data());
  return proof;
}

void Handshake::fail(std::string problem, bool is_stranger) {
  state_ = State::kFailed;
  problem_ = std::move(problem);
  is_stranger_ = is_stranger;
}

}  // namespace farandole::tcp
