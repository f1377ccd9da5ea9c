// SPDX-License-Identifier: Apache-2.0
#include "from_peers.h"

#include <fmt/format.h>

#include <cstring>

#include "clean_shutdown.h"
#include "farandole/core/error.h"

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

Notice parse_notice(std::span<const std::byte> bytes, int sender) {
  Notice notice;
  if (bytes.size() != sizeof notice) {
    refuse(sender, fmt::format("a notice of {} bytes; they have {}, if all run the same version of Farandole",
                               bytes.size(), sizeof notice));
  }
  std::memcpy(&notice, bytes.data(), sizeof notice);
  if (notice.kind > Notice::Kind::kMissing) {
    refuse(sender, fmt::format("a notice of kind {}", static_cast<std::uint32_t>(notice.kind)));
  }
  if (notice.process != sender) refuse(sender, fmt::format("a notice in the name of process {}", notice.process));
  // Who leaves may have nobody to name.
  if (notice.rank < (notice.kind == Notice::Kind::kIsLeaving ? -1 : 0))
    refuse(sender, fmt::format("a notice about rank {}", notice.rank));
  if (notice.communicator > Notice::kNoCommunicator) {
    refuse(sender, fmt::format("a notice about communicator {}", notice.communicator));
  }
  if (notice.error_kind > static_cast<std::uint32_t>(ErrorKind::kInternal)) {
    refuse(sender, fmt::format("a notice of an error of kind {}", notice.error_kind));
  }
  if (!is_terminated(notice.text)) refuse(sender, "a notice whose text has no end");
  return notice;
}

void check_notice(const Notice& notice, const Topology& topology) {
  const bool is_rank = notice.rank < topology.size();
  // How far they are each process says, and asks, for its own ranks.
  const bool is_own = notice.kind == Notice::Kind::kQuery || notice.kind == Notice::Kind::kReply;
  if (!is_rank || (is_own && topology.rank(notice.rank).process != notice.process)) {
    refuse(notice.process, fmt::format("a notice about rank {} of {}", notice.rank, topology.size()));
  }
  const bool is_round = notice.kind == Notice::Kind::kLeave || notice.kind == Notice::Kind::kAllLeave;
  if (is_round && notice.sequence >= CleanShutdown::kRounds) {
    refuse(notice.process, fmt::format("a notice about round {} of leaving", notice.sequence));
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
