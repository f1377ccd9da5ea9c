// SPDX-License-Identifier: Apache-2.0
#include "tcp/rendezvous_host.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/log.h"
#include "sockets/binomial_tree.h"
#include "sockets/error_message.h"
#include "tcp/job_key.h"

namespace farandole::tcp::rendezvous {
namespace {

// A process that was met and goes before all have met has had its reasons, which its peers may be about to find, too.
constexpr auto kGoneTime = std::chrono::milliseconds(300);
constexpr auto kRefusalTime = std::chrono::seconds(1);
// Processes that are started together come within so long of each other.
constexpr auto kLateTime = std::chrono::milliseconds(500);
// How often those that wait are told which processes have not come: in time for their own warnings and errors.
constexpr Seconds kBetweenWords{1};
constexpr double kPartOfWait = 0.2;

Introduction introduction_of(const Slot& slot) {
  return {slot.job, /*process=*/0, slot.processes, /*start=*/0, Purpose::kRendezvous};
}

Clock::duration between_words(const Slot& slot) {
  Seconds pause = std::min(kBetweenWords, kPartOfWait * slot.warn_after);
  if (slot.timeout.count() > 0) pause = std::min(pause, kPartOfWait * slot.timeout);
  return std::chrono::duration_cast<Clock::duration>(pause);
}

}  // namespace

Host::Host(const Slot& slot, TcpNetwork& network, const Request& own, UniqueDescriptor listener)
    : slot_(slot),
      network_(network),
      callers_(std::move(listener), slot.key, introduction_of(slot), slot.peer_timeout),
      kept_(kMaxBytes * static_cast<std::size_t>(slot.processes)),
      requests_(static_cast<std::size_t>(slot.processes)) {
  requests_[0] = own;
}

void Host::accept() {
  callers_.advance([](const Introduction&) { return Verdict::kAccepted; },
                   [this](const Introduction& caller, UniqueDescriptor socket) {
                     const std::string name = fmt::format("process {}", caller.process);
                     guests_.push_back({caller, std::make_unique<sockets::Link>(std::move(socket), name, kept_)});
                   });
}

bool Host::advance() {
  accept();
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    guest = guest->has_met || hear(*guest) ? std::next(guest) : guests_.erase(guest);
  }
  if (has_answered_) return is_flushed();
  const auto now = Clock::now();
  if (met_ < slot_.processes) {
    look_for_gone(now);
    tell_missing(now);
    return false;
  }
  answer();
  return is_flushed();
}

/// False if the caller is not worth waiting for.
bool Host::hear(Guest& guest) {
  std::optional<Request> request;
  try {
    if (const auto bytes = guest.link->take(kRequest)) request = parse_request(*bytes);
  } catch (const TransportError& error) {
    log(LogLevel::kWarning, fmt::format("the rendezvous has no use for what process {} says: {}",
                                        guest.introduction.process, error.what()));
    return false;
  }
  if (!request) return !guest.link->is_closed();
  if (request->id == request_of(0).id) {
    has_found_itself_ = true;
    return false;
  }
  meet(guest, *request);
  return true;
}

/// The process says that it is one of the job's; the request, with the key, that it may.
void Host::meet(Guest& guest, const Request& request) {
  const auto& [job, process, processes, start, purpose, connection] = guest.introduction;
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
  auto& known = requests_[static_cast<std::size_t>(process)];
  if (known) {
    throw InvalidArgument(
        fmt::format("joining the job: two processes have the number {}: {} and {}; give each its own (FARANDOLE_RANK, "
                    "RANK), and each job its own address (FARANDOLE_RENDEZVOUS, MASTER_PORT) or FARANDOLE_JOB",
                    process, describe(process, known->build), describe(process, request.build)));
  }
  known = request;
  guest.has_met = true;
  ++met_;
}

/// No process takes the place of a process that has been met.
void Host::look_for_gone(Clock::time_point now) {
  for (const Guest& guest : guests_) {
    if (!gone_ && guest.has_met && guest.link->is_closed()) gone_ = guest.introduction.process;
  }
  if (!gone_) return;
  if (gone_deadline_.is_never()) gone_deadline_ = Deadline::after(kGoneTime);
  if (!gone_deadline_.passed(now)) return;
  throw PeerLost(fmt::format("joining the job: {} has gone before all had met ({}); its own output may say why",
                             describe(*gone_, request_of(*gone_).build), describe_missing()));
}

void Host::tell_missing(Clock::time_point now) {
  if (next_word_ == Clock::time_point{}) next_word_ = now + between_words(slot_);
  if (now < next_word_) return;
  next_word_ = now + between_words(slot_);
  const std::string text = describe_missing();
  for (const Guest& guest : guests_) guest.link->post(kMissing, text.data(), text.size());
}

/// All have come: each is told where its neighbours in the tree listen.
void Host::answer() {
  std::vector<BuildClaim> builds;
  for (const auto& request : requests_) builds.push_back(request->build);
  check_same_build(builds);
  has_answered_ = true;
  std::uint32_t start = 0;
  std::memcpy(&start, random_256_bits().data(), sizeof start);
  network_.set_start(start);
  for (const Guest& guest : guests_) {
    if (!guest.has_met) continue;
    std::vector<Neighbour> neighbours;
    for (const int p : sockets::BinomialTree(guest.introduction.process, slot_.processes).neighbours()) {
      neighbours.push_back({p, request_of(p).addresses});
    }
    guest.link->post(kStart, &start, sizeof start);
    guest.link->post(kNeighbours, neighbours.data(), neighbours.size() * sizeof(Neighbour));
  }
  for (const int p : sockets::BinomialTree(0, slot_.processes).children()) {
    network_.set_addresses(p, request_of(p).addresses);
  }
}

bool Host::is_flushed() {
  return std::all_of(guests_.begin(), guests_.end(), [](const Guest& guest) { return guest.link->is_flushed(); });
}

void Host::refuse(const Error& error) {
  const std::string refusal = sockets::encode_error(error);
  const Deadline late = Deadline::after(kLateTime);
  const Deadline deadline = Deadline::after(kRefusalTime);
  const auto are_all_here = [this] { return guests_.size() + 1 >= static_cast<std::size_t>(slot_.processes); };
  try {
    while (!deadline.passed()) {
      accept();
      for (Guest& guest : guests_) {
        if (!std::exchange(guest.is_refused, true)) guest.link->post(kRefusal, refusal.data(), refusal.size());
      }
      if (is_flushed() && (are_all_here() || late.passed())) return;
      std::vector<pollfd> sockets;
      add_to(sockets);
      ::poll(sockets.data(), sockets.size(), 1);
    }
  } catch (const TransportError& problem) {
    log(LogLevel::kError,
        fmt::format("not all processes of the job were told why it does not start: {}", problem.what()));
  }
}

std::vector<int> Host::missing() const {
  std::vector<int> processes;
  for (int p = 0; p < slot_.processes; ++p) {
    if (!requests_[static_cast<std::size_t>(p)]) processes.push_back(p);
  }
  return processes;
}

std::string Host::describe_missing() const {
  return rendezvous::describe_missing(missing());
}

void Host::add_to(std::vector<pollfd>& sockets) const {
  callers_.add_to(sockets);
  for (const Guest& guest : guests_) sockets.push_back({guest.link->descriptor(), POLLIN, 0});
}

}  // namespace farandole::tcp::rendezvous
