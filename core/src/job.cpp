// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "agreement.h"
#include "farandole/internal/forked_children.h"
#include "farandole/internal/log.h"
#include "farandole/internal/stall_monitor.h"
#include "from_peers.h"
#include "private_file.h"

namespace farandole {
namespace {

// What a process has said last may be seen after its death. Counts only in the last moments of a job.
constexpr auto kLastWords = std::chrono::milliseconds(100);
// A process that waits for its peers to leave asks them how far they are, for its warning.
constexpr double kFirstQuestion = 0.25;  // of the time until the first warning
constexpr auto kNextQuestion = std::chrono::seconds(1);

constexpr const char* kEnded =
    "the World of this communicator has ended: keep the World for as long as its communicators are used";

ControlMessage make_control_message(ControlMessage::Kind kind, int process, int rank, std::string_view text = {}) {
  ControlMessage control;
  control.kind = kind;
  control.process = process;
  control.rank = rank;
  text.copy(control.text, sizeof control.text - 1);
  return control;
}

void mark_in_child(Job& job) {
  job.become_forked_child();
}
using JobsInChildren = ForkedChildren<Job, mark_in_child>;

}  // namespace

std::string text_of(const ControlMessage& control) {
  return {control.text, strnlen(control.text, sizeof control.text)};
}

Job::Job(const WorldOptions& options)
    : one_world_(std::in_place, options.alone), settings_(Settings::from_environment()) {
  if (options.replicas < 1 || options.replicas > kMaxReplicas) {
    throw InvalidArgument(fmt::format("replicas is {}; it must be 1 … {}", options.replicas, kMaxReplicas));
  }
  name_in_log(fmt::format("pid {}", getpid()));
  join(options);
  exchange_peer_info(options);
  const int first = topology_->first_rank_of(process_);
  name_in_log(fmt::format("rank {} {}", first, topology_->process(process_).hostname));
  inproc_ = std::make_unique<InprocTransport>(first, options.replicas,
                                              [this, first](int rank) { endpoint(rank - first).ring(); });
  for (int i = 0; i < options.replicas; ++i) endpoints_.push_back(std::make_unique<Endpoint>(*this, first + i));
  waiting_ = waiting_options(/*progress_thread=*/false);
  const ThreadUse threads = group_ ? group_->thread_use() : ThreadUse::kAnyThread;
  if (threads != ThreadUse::kMainThreadOnly) {
    progress_ = std::make_unique<ProgressThread>(waiting_options(/*progress_thread=*/true), memory_->header().progress,
                                                 /*rests=*/threads == ThreadUse::kOneThreadAtATime);
  }
  one_world_->set_place(topology_->describe(first));
  JobsInChildren::add(this);
}

void Job::name_in_log(std::string_view who) const {
  if (one_world_->names_the_log()) configure_log(parse_log_level(settings_.log_level), who);
}

Job::~Job() {
  JobsInChildren::remove(this);
}

void Job::end() {
  try {
    if (std::uncaught_exceptions() > exceptions_at_start_) endpoints_.front()->give_up("failed with an exception");
    // Ranks of this process may wait for each other: while one is closed the progress thread moves the rest on.
    if (progress_ && endpoints_.size() > 1) progress_->wake();
    for (const auto& endpoint : endpoints_) endpoint->close_attached();
    progress_.reset();
    if (group_ != nullptr && !faulted_) leave();
  } catch (const std::exception& error) {
    log(LogLevel::kError, std::string("leaving the job failed: ") + error.what());
  }
  retire();
}

/// A fault that the job had before stays what is raised.
void Job::retire() {
  {
    const std::lock_guard lock(fault_mutex_);
    has_ended_ = true;
    if (!faulted_) {
      fault_kind_ = ErrorKind::kInvalidArgument;
      fault_text_ = kEnded;
      faulted_.store(true, std::memory_order_seq_cst);
    }
  }
  group_.reset();
  memory_->unmap_peers();
  one_world_.reset();
}

Transport& Job::route(int peer) {
  if (is_here(peer)) return *inproc_;
  if (group_ == nullptr) check_fault();
  return group_->transport();
}

/// Waits for the other processes, but neither in silence nor for one that has died.
void Job::leave() {
  StallMonitor stall(settings_.warn_after, settings_.timeout);
  next_question_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(kFirstQuestion * settings_.warn_after);
  shutdown_->begin();
  for (;; group_->rest()) {
    poll_health();
    if (has_fault()) {
      const std::lock_guard lock(fault_mutex_);
      throw_error(fault_kind_, "while leaving the job: " + fault_text_);
    }
    if (shutdown_->advance() && group_->is_flushed()) break;
    ask_before_leaving(Clock::now());
    stall.check([&] {
      return fmt::format("leaving the job: waiting for {:.1f} s; {}", stall.waited().count(), describe_remaining());
    });
  }
  group_->leave();
}

void Job::ask_before_leaving(Clock::time_point now) {
  if (now < next_question_) return;
  next_question_ = now + kNextQuestion;
  std::vector<int> awaited;
  for (const int p : shutdown_->waits_for()) awaited.push_back(topology_->first_rank_of(p));
  ask(topology_->first_rank_of(process_), ControlMessage::kNoCommunicator, 1, awaited, {});
}

/// The first ranks of processes that this one waits for and that do not leave; if those do, one that they wait for.
std::vector<int> Job::remaining() const {
  std::vector<int> ranks;
  for (const int p : shutdown_->waits_for()) {
    const int rank = topology_->first_rank_of(p);
    if (!stragglers_->has_left(rank, Seconds(0))) ranks.push_back(rank);
  }
  if (ranks.empty() && remaining_elsewhere_ >= 0 && !stragglers_->has_left(remaining_elsewhere_, Seconds(0))) {
    ranks.push_back(remaining_elsewhere_);
  }
  return ranks;
}

std::string Job::describe_remaining() const {
  std::string text;
  for (const int rank : remaining()) text += (text.empty() ? "still in it: " : "; ") + topology_->describe(rank);
  return text.empty() ? "the processes that it waits for leave, too, and wait themselves" : text;
}

/// Launchers bind each process to cores of its own, so the cores of all of them count.
bool Job::is_oversubscribed(int threads_per_rank) const {
  return ranks_here_ * threads_per_rank > static_cast<int>(cores_here_.count());
}

Waiter::Options Job::waiting_options(bool progress_thread) const {
  return {.oversubscribed = is_oversubscribed(progress_thread ? 2 : 1),
          .polled = group_ != nullptr && group_->transport().is_polled()};
}

void Job::become_forked_child() {
  is_forked_child_ = true;
  faulted_.store(true, std::memory_order_seq_cst);
}

void Job::check_process() const {
  if (is_forked_child_) {
    throw InvalidArgument(describe_forked_child(topology_->describe(topology_->first_rank_of(process_))));
  }
}

void Job::check_fault() const {
  if (!faulted_.load(std::memory_order_acquire)) return;
  check_process();
  const std::lock_guard lock(fault_mutex_);
  throw_error(fault_kind_, fault_text_);
}

void Job::check_world() const {
  if (!faulted_.load(std::memory_order_acquire)) return;
  check_process();
  const std::lock_guard lock(fault_mutex_);
  if (has_ended_) throw InvalidArgument(kEnded);
}

void Job::poison(int rank, ErrorKind kind, const std::string& text, bool tell) {
  if (is_forked_child_) return;
  {
    const std::lock_guard lock(fault_mutex_);
    if (faulted_) return;
    fault_kind_ = kind;
    fault_text_ = text;
    // First: a thread that sees the fault may release memory that a stopped peer still writes.
    memory_->quarantine();
    faulted_.store(true, std::memory_order_seq_cst);
  }
  if (tell && group_) {
    ControlMessage control = make_control_message(ControlMessage::Kind::kFault, process_, rank, text);
    control.error_kind = static_cast<std::uint32_t>(kind);
    try {
      post_to_others(control);
    } catch (const Error& error) {
      log(LogLevel::kError, std::string("the other ranks could not be told of a fault: ") + error.what());
    }
  }
  for (const auto& endpoint : endpoints_) endpoint->ring();
  write_flight_records(text);
}

void Job::post_to_others(const ControlMessage& control) {
  std::exception_ptr first;
  for (int p = 0; p < topology_->process_count(); ++p) {
    if (p == process_) continue;
    try {
      group_->post(p, control);
    } catch (...) {
      // One may be gone; the rest must hear of it all the same.
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void Job::write_flight_records(const std::string& text) const {
  if (settings_.flight_directory == "off") return;
  for (const auto& endpoint : endpoints_) {
    const std::string problem =
        write_private_file(settings_.flight_directory, fmt::format("rank-{}.farandole-flight.json", endpoint->rank()),
                           endpoint->recorder().to_json_lines());
    if (!problem.empty()) log(LogLevel::kError, "the flight record could not be written: " + problem);
  }
  log(LogLevel::kError,
      fmt::format("{}; the last collectives of each rank are in {}", text, settings_.flight_directory));
}

void Job::poll_health() {
  if (group_ == nullptr || is_forked_child_) return;
  const std::unique_lock lock(look_mutex_, std::try_to_lock);
  if (!lock) return;
  read_control_messages();
  const auto now = Clock::now();
  if (now < next_liveness_) return;
  next_liveness_ = now + kLivenessInterval;
  if (const auto lost = find_lost(now)) {
    poison(endpoints_.front()->rank(), ErrorKind::kPeerLost,
           topology_->describe(topology_->first_rank_of(*lost)) + " died", true);
  }
}

void Job::read_control_messages() {
  while (const auto control = group_->poll()) handle(*control);
}

std::optional<int> Job::find_lost(Clock::time_point now) {
  const std::set<int>& dead = liveness_->dead(now);
  const auto is_lost = [&](int p) { return shutdown_->must_be_alive(p) && (dead.contains(p) || group_->is_gone(p)); };
  const auto find = [&]() -> std::optional<int> {
    if (dead.empty() && !group_->tells_who_is_gone()) return std::nullopt;
    for (int p = 0; p < topology_->process_count(); ++p) {
      if (p != process_ && is_lost(p)) return p;
    }
    return std::nullopt;
  };
  const auto lost = find();
  if (!lost) {
    lost_since_.reset();
    return std::nullopt;
  }
  // What it said before it died tells more than that it died.
  read_control_messages();
  if (!is_lost(*lost)) return std::nullopt;
  if (!shutdown_->is_in_last_round()) return lost;
  if (!lost_since_) lost_since_ = now;
  return now - *lost_since_ >= kLastWords ? lost : std::nullopt;
}

void Job::handle(const ControlMessage& control) {
  check_control_message(control, *topology_);
  switch (control.kind) {
    case ControlMessage::Kind::kFault:
      poison(control.rank, static_cast<ErrorKind>(control.error_kind), text_of(control), false);
      break;
    case ControlMessage::Kind::kLeave:
    case ControlMessage::Kind::kAllLeave:
      shutdown_->handle(control);
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
      if (control.rank >= 0) stragglers_->answered(control.rank, control.communicator, control.sequence);
      break;
    case ControlMessage::Kind::kMissing:
      if (control.rank >= 0) stragglers_->named(control.rank, control.communicator);
      break;
  }
}

void Job::answer(const ControlMessage& query) {
  if (shutdown_->has_begun()) {
    const std::vector<int> ranks = remaining();
    group_->post(query.process,
                 make_control_message(ControlMessage::Kind::kIsLeaving, process_, ranks.empty() ? -1 : ranks.front()));
    return;
  }
  const auto post = [&](ControlMessage::Kind kind, int rank, std::uint64_t sequence) {
    ControlMessage reply = make_control_message(kind, process_, rank);
    reply.communicator = query.communicator;
    reply.sequence = sequence;
    group_->post(query.process, reply);
  };
  for (const int rank : stragglers_->missing(query.communicator)) post(ControlMessage::Kind::kMissing, rank, 0);
  for (const auto& endpoint : endpoints_) {
    post(ControlMessage::Kind::kReply, endpoint->rank(), stragglers_->entered(endpoint->rank(), query.communicator));
  }
}

void Job::ask(int rank, std::uint32_t communicator, std::uint64_t sequence, std::span<const int> awaited,
              std::span<const int> others) {
  if (group_ == nullptr || is_forked_child_) return;
  ControlMessage control = make_control_message(ControlMessage::Kind::kQuery, process_, rank);
  control.communicator = communicator;
  for (const int process : stragglers_->ask(communicator, sequence, awaited, others)) group_->post(process, control);
}

void Job::set_left(int rank, bool left) {
  if (is_forked_child_) return;
  stragglers_->set_left(rank, left);
  for (const auto& endpoint : endpoints_) endpoint->ring();
}

void Job::process_has_left(int process) {
  stragglers_->process_has_left(process);
  for (const auto& endpoint : endpoints_) endpoint->ring();
}

}  // namespace farandole
