// SPDX-License-Identifier: Apache-2.0
#include "tcp/handshake.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <type_traits>

#include "tcp/address.h"

namespace farandole::tcp {
namespace {

constexpr std::array<char, 8> kMagic{'f', 'a', 'r', 'a', 'n', 'd', 'o', 'l'};
constexpr std::uint32_t kVersion = 3;
// Last byte from the initiator. Without a confirmation the responder might use a connection that the initiator has
// cancelled.
constexpr std::uint8_t kConfirmation = 1;
constexpr const char* kWrongProofText =
    "a proof that the key of this job does not make, or not for the port that was called";

static_assert(crypto_auth_hmacsha256_KEYBYTES == std::tuple_size_v<JobKey>);

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOTCONN;
}

/// Returns the port that the initiator connected to, as this end sees it; 0 if the socket has no ports, or is no longer
/// connected.
std::uint64_t responder_port(const UniqueDescriptor& socket, bool is_initiator) {
  sockaddr_storage end{};
  socklen_t length = sizeof end;
  auto& address = reinterpret_cast<sockaddr&>(end);
  const int result =
      is_initiator ? getpeername(socket.get(), &address, &length) : getsockname(socket.get(), &address, &length);
  const bool has_port = result == 0 && (address.sa_family == AF_INET || address.sa_family == AF_INET6);
  return has_port ? from_sockaddr(address).port : 0;
}

}  // namespace

Handshake Handshake::initiate(UniqueDescriptor socket, const JobKey& key, const Introduction& own, int target_process) {
  return {std::move(socket), key, own, target_process, /*is_initiator=*/true};
}

Handshake Handshake::respond(UniqueDescriptor socket, const JobKey& key, const Introduction& own) {
  return {std::move(socket), key, own, own.process, /*is_initiator=*/false};
}

Handshake::Handshake(UniqueDescriptor socket, const JobKey& key, const Introduction& own, int target_process,
                     bool is_initiator)
    : socket_(std::move(socket)), key_(key), is_initiator_(is_initiator), start_(Clock::now()) {
  own_opening_ = {kMagic, kVersion, target_process, own, random_256_bits()};
  enqueue(own_opening_);
}

template <class Part>
void Handshake::enqueue(const Part& part) {
  static_assert(std::is_trivially_copyable_v<Part>);
  outgoing_.append(reinterpret_cast<const char*>(&part), sizeof part);
}

template <class Part>
Part Handshake::parse_received() const {
  static_assert(std::is_trivially_copyable_v<Part> && sizeof(Part) <= sizeof(incoming_));
  Part part;
  std::memcpy(&part, incoming_.data(), sizeof part);
  return part;
}

Handshake::State Handshake::advance() {
  while (state_ == State::kUnderway && flush() && fill()) process_part();
  return state_;
}

bool Handshake::is_overdue(Clock::time_point now) const {
  return state_ == State::kUnderway && !is_proven_ && now - start_ >= kDeadline;
}

short Handshake::awaited_events() const {
  return outgoing_.empty() ? POLLIN : POLLOUT;
}

/// Returns true once the socket has accepted all queued bytes.
bool Handshake::flush() {
  while (!outgoing_.empty()) {
    const ssize_t sent = send(socket_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      if (!would_block(errno)) fail(std::generic_category().message(errno), /*is_stranger=*/false);
      return false;
    }
    is_connected_ = true;
    outgoing_.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

std::size_t Handshake::awaited_bytes() const {
  // By AwaitedPart.
  constexpr std::array<std::size_t, 6> kBytes{sizeof(Opening), sizeof(Proof),        0,
                                              sizeof(Answer),  sizeof kConfirmation, 0};
  return kBytes[static_cast<std::size_t>(awaited_part_)];
}

/// Returns true once the awaited part is complete; reads no byte beyond it.
bool Handshake::fill() {
  while (received_bytes_ < awaited_bytes()) {
    const ssize_t got = recv(socket_.get(), incoming_.data() + received_bytes_, awaited_bytes() - received_bytes_, 0);
    if (got < 0 && would_block(errno)) return false;
    if (got <= 0) {
      fail(got == 0 ? "the connection was closed during the handshake" : std::generic_category().message(errno),
           /*is_stranger=*/false);
      return false;
    }
    received_bytes_ += static_cast<std::size_t>(got);
  }
  received_bytes_ = 0;
  return true;
}

void Handshake::process_part() {
  switch (awaited_part_) {
    case AwaitedPart::kOpening:
      return process_opening();
    case AwaitedPart::kProof:
      return process_proof();
    case AwaitedPart::kAnswer:
      return process_answer();
    case AwaitedPart::kConfirmation:
      if (parse_received<std::uint8_t>() != kConfirmation) return fail("no confirmation", /*is_stranger=*/true);
      [[fallthrough]];
    case AwaitedPart::kNothing:
      state_ = verdict_ == Verdict::kAccepted ? State::kDone : State::kRefused;
      return;
    case AwaitedPart::kDecision:
      return;
  }
}

void Handshake::process_opening() {
  peer_opening_ = parse_received<Opening>();
  if (peer_opening_.magic != kMagic) return fail("something that is no handshake", /*is_stranger=*/true);
  if (peer_opening_.version != kVersion) {
    return fail(
        fmt::format("version {} of the handshake, where this process has version {}", peer_opening_.version, kVersion),
        /*is_stranger=*/true);
  }
  const Introduction& them = peer_opening_.introduction;
  const Introduction& us = own_opening_.introduction;
  if (them.job != us.job || them.start != us.start) {
    return fail("the handshake of another job, or of another start of this one", /*is_stranger=*/true);
  }
  // Not a stranger: an initiator that looks for the rendezvous may try a port at which another process of the job
  // listens.
  if (them.purpose != us.purpose) return fail("the handshake of a connection for another purpose", false);
  // Not a stranger: an initiator may try an address that another process of the job has, too.
  const int accepting_process = is_initiator_ ? them.process : us.process;
  if (own_opening_.target_process != accepting_process || peer_opening_.target_process != accepting_process) {
    return fail(
        fmt::format("process {} was called, and process {} answers",
                    is_initiator_ ? own_opening_.target_process : peer_opening_.target_process, accepting_process),
        /*is_stranger=*/false);
  }
  if (is_initiator_) enqueue(make_proof(/*by_initiator=*/true, Verdict::kAccepted));
  awaited_part_ = is_initiator_ ? AwaitedPart::kAnswer : AwaitedPart::kProof;
}

void Handshake::process_proof() {
  const Proof right = make_proof(/*by_initiator=*/true, Verdict::kAccepted);
  if (crypto_verify_32(parse_received<Proof>().data(), right.data()) != 0) {
    return fail(kWrongProofText, /*is_stranger=*/true);
  }
  is_proven_ = true;
  awaited_part_ = AwaitedPart::kDecision;
  state_ = State::kProven;
}

void Handshake::decide(Verdict verdict) {
  verdict_ = verdict;
  enqueue(Answer{verdict, make_proof(/*by_initiator=*/false, verdict)});
  awaited_part_ = verdict == Verdict::kAccepted ? AwaitedPart::kConfirmation : AwaitedPart::kNothing;
  state_ = State::kUnderway;
}

void Handshake::process_answer() {
  const auto answer = parse_received<Answer>();
  const Proof right = make_proof(/*by_initiator=*/false, answer.verdict);
  if (crypto_verify_32(answer.proof.data(), right.data()) != 0) return fail(kWrongProofText, /*is_stranger=*/true);
  is_proven_ = true;
  verdict_ = answer.verdict;
  if (verdict_ == Verdict::kAccepted) enqueue(kConfirmation);
  awaited_part_ = AwaitedPart::kNothing;
}

/// Computes the HMAC over the maker's role, the responder's verdict, the port that was connected to, and both openings.
Handshake::Proof Handshake::make_proof(bool by_initiator, Verdict verdict) const {
  struct Message {
    std::array<char, 7> role{};
    Verdict verdict{};
    std::uint64_t port = 0;
    Opening initiator, responder;
  } message;
  static_assert(sizeof message == 16 + 2 * sizeof(Opening));
  message.role =
      by_initiator ? std::array{'c', 'a', 'l', 'l', 'e', 'r', ' '} : std::array{'c', 'a', 'l', 'l', 'e', 'd', ' '};
  message.verdict = verdict;
  message.port = responder_port(socket_, is_initiator_);
  message.initiator = is_initiator_ ? own_opening_ : peer_opening_;
  message.responder = is_initiator_ ? peer_opening_ : own_opening_;
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
