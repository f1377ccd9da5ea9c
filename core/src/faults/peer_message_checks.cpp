// SPDX-License-Identifier: Apache-2.0
#include "faults/peer_message_checks.h"

#include <fmt/format.h>

#include <cstring>

#include "farandole/core/error.h"
#include "faults/clean_shutdown.h"

namespace farandole {
namespace {

[[noreturn]] void refuse(int process, const std::string& what) {
  throw TransportError(fmt::format("process {} has sent what no process of this job sends: {}", process, what));
}

template <std::size_t kBytes>
bool is_terminated(const char (&text)[kBytes]) {
  return strnlen(text, kBytes) < kBytes;
}

}  // namespace

ControlMessage parse_control_message(std::span<const std::byte> bytes, int sender) {
  ControlMessage control;
  if (bytes.size() != sizeof control) {
    refuse(sender, fmt::format("a control message of {} bytes; they have {}, if all run the same version of Farandole",
                               bytes.size(), sizeof control));
  }
  std::memcpy(&control, bytes.data(), sizeof control);
  if (control.kind > ControlMessage::Kind::kCalls) {
    refuse(sender, fmt::format("a control message of kind {}", static_cast<std::uint32_t>(control.kind)));
  }
  if (control.process != sender)
    refuse(sender, fmt::format("a control message in the name of process {}", control.process));
  // kIsLeaving may have no rank to name: -1.
  if (control.rank < (control.kind == ControlMessage::Kind::kIsLeaving ? -1 : 0))
    refuse(sender, fmt::format("a control message about rank {}", control.rank));
  if (control.communicator > ControlMessage::kNoCommunicator) {
    refuse(sender, fmt::format("a control message about communicator {}", control.communicator));
  }
  if (control.error_kind > static_cast<std::uint32_t>(ErrorKind::kInternal)) {
    refuse(sender, fmt::format("a control message of an error of kind {}", control.error_kind));
  }
  if (!is_terminated(control.text)) refuse(sender, "a control message whose text has no end");
  return control;
}

void check_control_message(const ControlMessage& control, const Topology& topology) {
  const bool is_rank = control.rank < topology.size();
  // A query or reply must be about a rank of the sender.
  const bool is_own = control.kind == ControlMessage::Kind::kQuery || control.kind == ControlMessage::Kind::kReply;
  if (!is_rank || (is_own && topology.rank(control.rank).process != control.process)) {
    refuse(control.process, fmt::format("a control message about rank {} of {}", control.rank, topology.size()));
  }
  const bool is_round = control.kind == ControlMessage::Kind::kLeave || control.kind == ControlMessage::Kind::kAllLeave;
  if (is_round && control.sequence >= CleanShutdown::kRounds) {
    refuse(control.process, fmt::format("a control message about round {} of leaving", control.sequence));
  }
}

void check_claim(int process, const HostProof::Claim& claim, int replicas) {
  if (replicas < 1 || replicas > kMaxReplicas) {
    refuse(process, fmt::format("that it has {} replicas; a process has 1 … {}", replicas, kMaxReplicas));
  }
  if (claim.pid <= 0) refuse(process, fmt::format("that its process id is {}", claim.pid));
  if (!is_terminated(claim.hostname)) refuse(process, "a host name that has no end");
}

}  // namespace farandole
