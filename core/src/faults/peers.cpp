// SPDX-License-Identifier: Apache-2.0
#include "faults/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include "farandole/internal/first_error.h"
#include "farandole/internal/fixed_text.h"
#include "farandole/internal/log.h"
#include "farandole/internal/stall_monitor.h"
#include "faults/peer_message_checks.h"
#include "job/job.h"

namespace farandole {
namespace {

// Time to wait for the last messages of a dead process, which may arrive after its death has been seen. Needed in the
// last round of a clean shutdown only.
constexpr auto kLastWords = std::chrono::milliseconds(100);
// Times at which a leaving process asks the awaited peers whether they are leaving, too. Its warning names the peers
// that are not.
constexpr double kFirstQuestion = 0.25;  // share of the time until the first warning
constexpr auto kNextQuestion = std::chrono::seconds(1);

ControlMessage make_control_message(ControlMessage::Kind kind, int process, int rank, std::string_view text = {}) {
  ControlMessage control;
  control.kind = kind;
  control.process = process;
  control.rank = rank;
  write_text(control.text, text);
  return control;
}

}  // namespace

Peers::Peers(Job& job)
    : job_(job),
      topology_(job.topology()),
      process_(job.process()),
      stragglers_(topology_, process_,
                  [&job](int rank, std::uint32_t communicator) {
                    return job.endpoint(job.topology().rank(rank).replica).late_ranks().entered(communicator);
                  }),
      cycles_(topology_, process_, job.settings().faults.warn_after, environment()),
      liveness_(job.settings().faults.liveness),
      shutdown_(topology_, process_, [&job](int p, const ControlMessage& control) { job.group()->post(p, control); }) {}

ProcessGroup& Peers::group() const {
  return *job_.group();
}

void Peers::watch(std::span<const ProcessIdentity> identities) {
  if (job_.group() == nullptr) return;
  const int host = topology_.process(process_).host_index;
  std::string problem;
  int neighbours = 0, unwatched = 0;
  bool is_first = true;
  for (int p = 0; p < topology_.process_count(); ++p) {
    if (p == process_ || topology_.process(p).host_index != host) continue;
    is_first = is_first && p > process_;
    ++neighbours;
    const std::string why = liveness_.watch(p, identities[static_cast<std::size_t>(p)]);
    if (!why.empty()) ++unwatched;
    if (problem.empty()) problem = why;
  }
  if (!problem.empty() && !group().detects_gone_processes()) {
    // A warning by the first process of each host only; the host's other processes usually have the same reason.
    log(is_first ? LogLevel::kWarning : LogLevel::kInfo,
        fmt::format(
            "if one of {} of the {} other processes of this host dies, ranks that wait for it are not told, and "
            "wait until the launcher or FARANDOLE_TIMEOUT ends the job: {}",
            unwatched, neighbours, problem));
  }
  group().while_waiting([this] { throw_if_a_process_has_died(); });
}

/// Used while the job is being joined. Reads control messages only after a process has died, and then throws the first
/// fault among them, or else a PeerLost.
void Peers::throw_if_a_process_has_died() {
  const auto now = Clock::now();
  if (now < next_liveness_) return;
  next_liveness_ = now + kLivenessInterval;
  const std::set<int>& dead = liveness_.dead(now);
  if (dead.empty()) return;
  while (const auto control = group().poll()) {
    if (control->kind == ControlMessage::Kind::kFault)
      throw_error(static_cast<ErrorKind>(control->error_kind), text_of(control->text));
  }
  throw PeerLost(fmt::format("joining the job: {} died; its own output may say why",
                             topology_.describe(topology_.first_rank_of(*dead.begin()))));
}

void Peers::poll() {
  if (job_.group() == nullptr || job_.fault().is_forked_child()) return;
  const std::unique_lock lock(poll_mutex_, std::try_to_lock);
  if (!lock) return;
  read_control_messages();
  const auto now = Clock::now();
  if (now < next_liveness_) return;
  next_liveness_ = now + kLivenessInterval;
  if (const auto lost = find_lost(now)) {
    const std::string why = liveness_.dead(now).contains(*lost) ? std::string() : group().unreachable_reason(*lost);
    job_.poison(topology_.first_rank_of(process_), ErrorKind::kPeerLost,
                topology_.describe(topology_.first_rank_of(*lost)) + (why.empty() ? " died" : " is lost: " + why),
                true);
  }
}

void Peers::read_control_messages() {
  while (const auto control = group().poll()) handle(*control);
}

std::optional<int> Peers::find_lost(Clock::time_point now) {
  const std::set<int>& dead = liveness_.dead(now);
  const auto is_lost = [&](int p) { return shutdown_.must_be_alive(p) && (dead.contains(p) || group().is_gone(p)); };
  const auto find = [&]() -> std::optional<int> {
    if (dead.empty() && !group().detects_gone_processes()) return std::nullopt;
    for (int p = 0; p < topology_.process_count(); ++p) {
      if (p != process_ && is_lost(p)) return p;
    }
    return std::nullopt;
  };
  const auto lost = find();
  if (!lost) {
    lost_since_.reset();
    return std::nullopt;
  }
  // The last message of the dead process may be a fault, whose text says more than "died", or kLeave, after which the
  // process may end.
  read_control_messages();
  if (!is_lost(*lost)) return std::nullopt;
  if (!shutdown_.is_in_last_round()) return lost;
  if (!lost_since_) lost_since_ = now;
  return now - *lost_since_ >= kLastWords ? lost : std::nullopt;
}

void Peers::handle(const ControlMessage& control) {
  check_control_message(control, topology_);
  switch (control.kind) {
    case ControlMessage::Kind::kFault:
      job_.poison(control.rank, static_cast<ErrorKind>(control.error_kind), text_of(control.text), false);
      break;
    case ControlMessage::Kind::kLeave:
    case ControlMessage::Kind::kAllLeave:
      shutdown_.handle(control);
      process_has_left(control.process);
      break;
    case ControlMessage::Kind::kIsLeaving:
      remaining_elsewhere_ = control.rank;
      process_has_left(control.process);
      break;
    case ControlMessage::Kind::kQuery:
      answer(control);
      break;
    case ControlMessage::Kind::kReply:
      if (control.rank >= 0) stragglers_.answered(control.rank, control.communicator, control.sequence);
      break;
    case ControlMessage::Kind::kMissing:
      if (control.rank >= 0) stragglers_.named(control.rank, control.communicator);
      break;
    case ControlMessage::Kind::kWaitProbe:
      receive_probe(control);
      break;
    case ControlMessage::Kind::kCalls:
      receive_calls(control);
      break;
  }
}

void Peers::answer(const ControlMessage& query) {
  if (shutdown_.has_begun()) {
    const std::vector<int> ranks = remaining();
    group().post(query.process,
                 make_control_message(ControlMessage::Kind::kIsLeaving, process_, ranks.empty() ? -1 : ranks.front()));
    return;
  }
  const auto post = [&](ControlMessage::Kind kind, int rank, std::uint64_t sequence) {
    ControlMessage reply = make_control_message(kind, process_, rank);
    reply.communicator = query.communicator;
    reply.sequence = sequence;
    group().post(query.process, reply);
  };
  for (const int rank : stragglers_.missing(query.communicator)) post(ControlMessage::Kind::kMissing, rank, 0);
  const int first = topology_.first_rank_of(process_);
  for (int rank = first; rank < first + job_.replicas(); ++rank) {
    post(ControlMessage::Kind::kReply, rank, stragglers_.entered(rank, query.communicator));
  }
}

void Peers::announce_fault(int rank, ErrorKind kind, const std::string& text) {
  ControlMessage control = make_control_message(ControlMessage::Kind::kFault, process_, rank, text);
  control.error_kind = static_cast<std::uint32_t>(kind);
  try {
    post_to_all(control);
  } catch (const Error& error) {
    log(LogLevel::kError, std::string("the other ranks could not be told of a fault: ") + error.message());
  }
}

void Peers::post_to_all(const ControlMessage& control) {
  FirstError error;  // a process may be gone; the others must receive the message nevertheless
  for (int p = 0; p < topology_.process_count(); ++p) {
    if (p != process_) error.run([&] { group().post(p, control); });
  }
  error.check();
}

void Peers::ask(int rank, std::uint32_t communicator, std::uint64_t sequence, std::span<const int> awaited,
                std::span<const int> others) {
  if (job_.group() == nullptr || job_.fault().is_forked_child()) return;
  ControlMessage control = make_control_message(ControlMessage::Kind::kQuery, process_, rank);
  control.communicator = communicator;
  for (const int process : stragglers_.ask(communicator, sequence, awaited, others)) group().post(process, control);
}

namespace {

/// The head of a report in the text of a control message; the calls follow.
struct CallReportHead {
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(CallReportHead) + CallReport::kMaxBytes <
              sizeof(ControlMessage::text));  // its last byte stays zero

}  // namespace

void Peers::report_calls(int rank, const CommunicatorKey& communicator, const CallReport& report) {
  const RankInfo& to = topology_.rank(rank);
  if (to.process == process_) return job_.endpoint(to.replica).call_reports().put(communicator, report);
  if (job_.group() == nullptr || job_.fault().is_forked_child()) return;
  ControlMessage control = make_control_message(ControlMessage::Kind::kCalls, process_, rank);
  control.communicator = communicator.id;
  control.sequence = report.first;
  const CallReportHead head{communicator.generation, std::min(report.calls.size(), CallReport::kMaxBytes)};
  std::memcpy(control.text, &head, sizeof head);
  std::memcpy(control.text + sizeof head, report.calls.data(), head.bytes);
  group().post(to.process, control);
}

void Peers::receive_calls(const ControlMessage& control) {
  CallReportHead head;
  std::memcpy(&head, control.text, sizeof head);
  const RankInfo& to = topology_.rank(control.rank);
  if (to.process != process_ || head.bytes > CallReport::kMaxBytes) return;
  const auto* const calls = reinterpret_cast<const std::byte*>(control.text) + sizeof head;
  job_.endpoint(to.replica)
      .call_reports()
      .put({static_cast<std::uint16_t>(control.communicator), head.generation},
           {control.sequence, {calls, calls + head.bytes}});
}

void Peers::search_cycle(int rank) {
  if (!job_.fault().is_forked_child()) cycles_.search(rank);
}

WaitCycles::Environment Peers::environment() {
  const auto endpoint = [this](int rank) -> Endpoint& { return job_.endpoint(topology_.rank(rank).replica); };
  WaitCycles::Environment here;
  here.blocked = [endpoint](int rank) -> BlockedCalls& { return endpoint(rank).late_ranks().blocked(); };
  here.entered = [this](int rank, std::uint32_t communicator) { return stragglers_.entered(rank, communicator); };
  here.missing = [this](std::uint32_t communicator, std::uint64_t sequence, const std::vector<int>& members) {
    return stragglers_.missing(communicator, sequence, members);
  };
  here.post = [this](int rank, std::uint32_t communicator, std::uint64_t sequence, const WaitProbe& probe) {
    ControlMessage control = make_control_message(ControlMessage::Kind::kWaitProbe, process_, rank);
    control.communicator = communicator;
    control.sequence = sequence;
    static_assert(sizeof probe < sizeof control.text);  // its last byte stays zero
    std::memcpy(control.text, &probe, sizeof probe);
    group().post(topology_.rank(rank).process, control);
  };
  here.found = [endpoint](int rank, const std::string& text, bool is_certain) {
    is_certain ? endpoint(rank).faults().poison(ErrorKind::kMismatch, text) : log(LogLevel::kWarning, text);
  };
  return here;
}

void Peers::receive_probe(const ControlMessage& control) {
  WaitProbe probe;
  std::memcpy(&probe, control.text, sizeof probe);
  const bool is_possible =
      topology_.rank(control.rank).process == process_ && probe.origin < static_cast<std::uint32_t>(topology_.size());
  if (is_possible) cycles_.receive(control.rank, control.communicator, control.sequence, probe);
}

void Peers::process_has_left(int process) {
  stragglers_.process_has_left(process);
  job_.ring_all();
}

void Peers::leave() {
  const Settings& settings = job_.settings();
  StallMonitor stall(settings.faults.warn_after, settings.faults.timeout);
  next_question_ =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(kFirstQuestion * settings.faults.warn_after);
  shutdown_.begin();
  for (;; group().rest()) {
    poll();
    job_.fault().check("while leaving the job: ");
    if (shutdown_.advance() && group().is_flushed()) break;
    ask_before_leaving(Clock::now());
    stall.check([&] {
      return fmt::format("leaving the job: waiting for {:.1f} s; {}", stall.waited().count(), describe_remaining());
    });
  }
  group().leave();
}

void Peers::ask_before_leaving(Clock::time_point now) {
  if (now < next_question_) return;
  next_question_ = now + kNextQuestion;
  std::vector<int> awaited;
  for (const int p : shutdown_.waits_for()) awaited.push_back(topology_.first_rank_of(p));
  ask(topology_.first_rank_of(process_), ControlMessage::kNoCommunicator, 1, awaited, {});
}

/// First ranks of the awaited processes that are not leaving. If all awaited processes are leaving, a rank that one of
/// them awaits.
std::vector<int> Peers::remaining() const {
  std::vector<int> ranks;
  for (const int p : shutdown_.waits_for()) {
    const int rank = topology_.first_rank_of(p);
    if (!stragglers_.has_left(rank, Seconds(0))) ranks.push_back(rank);
  }
  if (ranks.empty() && remaining_elsewhere_ >= 0 && !stragglers_.has_left(remaining_elsewhere_, Seconds(0))) {
    ranks.push_back(remaining_elsewhere_);
  }
  return ranks;
}

std::string Peers::describe_remaining() const {
  std::string text;
  for (const int rank : remaining()) text += (text.empty() ? "still in it: " : "; ") + topology_.describe(rank);
  return text.empty() ? "the processes that this process waits for are leaving, too, and wait themselves" : text;
}

}  // namespace farandole
