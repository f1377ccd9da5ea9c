// SPDX-License-Identifier: Apache-2.0
#include "tcp/rendezvous_server.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "farandole/internal/log.h"
#include "sockets/announcement_interval.h"
#include "sockets/binomial_tree.h"
#include "sockets/frame.h"
#include "tcp/job_key.h"

namespace farandole::tcp::rendezvous {
namespace {

// Grace period after a process was lost: the process may have ended for a reason that its peers are about to report,
// too.
constexpr auto kLossGraceTime = std::chrono::milliseconds(300);
constexpr auto kRefusalTime = std::chrono::seconds(1);
// Processes that are started together connect within this time of each other.
constexpr auto kStartSkew = std::chrono::milliseconds(500);

Introduction introduction_of(const Slot& slot) {
  return {slot.job, /*process=*/0, slot.processes, /*start=*/0, Purpose::kRendezvous};
}

}  // namespace

Server::Server(const Slot& slot, TcpNetwork& network, const Request& own, UniqueDescriptor listener)
    : slot_(slot),
      network_(network),
      acceptor_(std::move(listener), slot.key, introduction_of(slot), slot.peer_timeout),
      kept_(kMaxMessageBytes * static_cast<std::size_t>(slot.processes)),
      requests_(static_cast<std::size_t>(slot.processes)) {
  requests_[0] = own;
}

void Server::accept() {
  acceptor_.advance([](const Introduction&) { return Verdict::kAccepted; },
                    [this](const Introduction& peer, UniqueDescriptor socket) {
                      const std::string name = fmt::format("process {}", peer.process);
                      members_.push_back({peer, std::make_unique<sockets::Link>(std::move(socket), name, kept_)});
                    });
}

bool Server::advance() {
  accept();
  for (auto member = members_.begin(); member != members_.end();) {
    member = member->has_joined || receive_request(*member) ? std::next(member) : members_.erase(member);
  }
  if (is_answered_) return is_flushed();
  const auto now = Clock::now();
  if (joined_count_ < slot_.processes) {
    check_for_lost(now);
    announce_missing(now);
    return false;
  }
  answer();
  return is_flushed();
}

/// Reads the request of a connected process. Returns false if the connection is of no use: closed, invalid, or made by
/// this process itself.
bool Server::receive_request(Member& member) {
  std::optional<Request> request;
  try {
    if (const auto bytes = member.link->take(kRequest)) request = parse_request(*bytes);
  } catch (const TransportError& error) {
    log(LogLevel::kWarning, fmt::format("the rendezvous has no use for what process {} says: {}",
                                        member.introduction.process, error.message()));
    return false;
  }
  if (!request) return !member.link->is_closed();
  if (request->id == request_of(0).id) {
    has_found_itself_ = true;
    return false;
  }
  admit(member, *request);
  return true;
}

/// Checks the numbers in a process's introduction, and registers the process with its request. The handshake has proved
/// that the process belongs to the job, but has not checked the numbers.
void Server::admit(Member& member, const Request& request) {
  const auto& [job, process, processes, start, purpose, connection] = member.introduction;
  if (processes != slot_.processes) {
    throw InvalidArgument(fmt::format(
        "joining the job: {} was started as one of {} processes, and {} as one of {}; start all with the same number "
        "(FARANDOLE_SIZE, WORLD_SIZE)",
        describe(0, request_of(0).build), slot_.processes, describe(process, request.build), processes));
  }
  if (process < 0 || process >= slot_.processes) {
    throw InvalidArgument(fmt::format("joining the job: {} has no number from 0 to {} (FARANDOLE_RANK, RANK)",
                                      describe(process, request.build), slot_.processes - 1));
  }
  auto& earlier = requests_[static_cast<std::size_t>(process)];
  if (earlier) {
    throw InvalidArgument(
        fmt::format("joining the job: two processes have the number {}: {} and {}; give each its own (FARANDOLE_RANK, "
                    "RANK), and each job its own address (FARANDOLE_RENDEZVOUS, MASTER_PORT) or FARANDOLE_JOB",
                    process, describe(process, earlier->build), describe(process, request.build)));
  }
  earlier = request;
  member.has_joined = true;
  ++joined_count_;
}

/// A lost process is not replaced: the rendezvous fails after the grace period.
void Server::check_for_lost(Clock::time_point now) {
  for (const Member& member : members_) {
    if (!lost_process_ && member.has_joined && member.link->is_closed()) lost_process_ = member.introduction.process;
  }
  if (!lost_process_) return;
  if (lost_deadline_.is_never()) lost_deadline_ = Deadline::after(kLossGraceTime);
  if (!lost_deadline_.passed(now)) return;
  throw PeerLost(fmt::format("joining the job: {} has gone before all had met ({}); its own output may say why",
                             describe(*lost_process_, request_of(*lost_process_).build), describe_missing()));
}

void Server::announce_missing(Clock::time_point now) {
  const Clock::duration interval = sockets::announcement_interval(slot_.warn_after, slot_.timeout);
  if (next_announcement_ == Clock::time_point{}) next_announcement_ = now + interval;
  if (now < next_announcement_) return;
  next_announcement_ = now + interval;
  const std::string text = describe_missing();
  for (const Member& member : members_) member.link->post(kMissing, text.data(), text.size());
}

/// Checks that all builds fit together, draws the number of this start, and sends each process the addresses of its
/// neighbours in the tree.
void Server::answer() {
  std::vector<BuildClaim> builds;
  for (const auto& request : requests_) builds.push_back(request->build);
  check_same_build(builds);
  is_answered_ = true;
  std::uint32_t start = 0;
  std::memcpy(&start, random_256_bits().data(), sizeof start);
  network_.set_start(start);
  for (const Member& member : members_) {
    if (!member.has_joined) continue;
    std::vector<Neighbour> neighbours;
    for (const int p : sockets::BinomialTree(member.introduction.process, slot_.processes).neighbours()) {
      neighbours.push_back({p, request_of(p).addresses});
    }
    member.link->post(kStart, &start, sizeof start);
    member.link->post(kNeighbours, neighbours.data(), neighbours.size() * sizeof(Neighbour));
  }
  for (const int p : sockets::BinomialTree(0, slot_.processes).children()) {
    network_.set_addresses(p, request_of(p).addresses);
  }
}

bool Server::is_flushed() {
  return std::all_of(members_.begin(), members_.end(), [](const Member& member) { return member.link->is_flushed(); });
}

void Server::refuse(const Error& error) {
  const std::string refusal = sockets::encode_error(error);
  const Deadline skew = Deadline::after(kStartSkew);
  const Deadline deadline = Deadline::after(kRefusalTime);
  const auto are_all_here = [this] { return members_.size() + 1 >= static_cast<std::size_t>(slot_.processes); };
  try {
    while (!deadline.passed()) {
      accept();
      for (Member& member : members_) {
        if (!std::exchange(member.is_refused, true)) member.link->post(kRefusal, refusal.data(), refusal.size());
      }
      if (is_flushed() && (are_all_here() || skew.passed())) return;
      std::vector<pollfd> sockets;
      add_to(sockets);
      ::poll(sockets.data(), sockets.size(), 1);
    }
  } catch (const TransportError& problem) {
    log(LogLevel::kError,
        fmt::format("not all processes of the job were told why it does not start: {}", problem.message()));
  }
}

std::vector<int> Server::missing() const {
  std::vector<int> processes;
  for (int p = 0; p < slot_.processes; ++p) {
    if (!requests_[static_cast<std::size_t>(p)]) processes.push_back(p);
  }
  return processes;
}

std::string Server::describe_missing() const {
  return rendezvous::describe_missing(missing());
}

void Server::add_to(std::vector<pollfd>& sockets) const {
  acceptor_.add_to(sockets);
  for (const Member& member : members_) sockets.push_back({member.link->descriptor(), POLLIN, 0});
}

}  // namespace farandole::tcp::rendezvous
