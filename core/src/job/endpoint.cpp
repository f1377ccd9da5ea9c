// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/endpoint.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/internal/deadline.h"
#include "job/job.h"

namespace farandole {
namespace {

Doorbell& doorbell_of(Job& job, int rank) {
  return job.memory().header().slots[static_cast<std::size_t>(job.topology().rank(rank).replica)].doorbell;
}

}  // namespace

Endpoint::Endpoint(Job& job, int rank, std::optional<int> chosen_device)
    : job_(job),
      rank_(rank),
      chosen_device_(chosen_device),
      progress_(job, doorbell_of(job, rank)),
      faults_(job, rank),
      late_ranks_(job, rank) {}

std::shared_ptr<Endpoint> Endpoint::share() {
  return {job_.shared_from_this(), this};
}

const Topology& Endpoint::topology() const {
  return job_.topology();
}
const Settings& Endpoint::settings() const {
  return job_.settings();
}
const std::string& Endpoint::tuning_text() const {
  return job_.tuning_text();
}
Transport& Endpoint::route(int peer) const {
  return job_.route(peer);
}
SharedMemory& Endpoint::memory() const {
  return job_.memory();
}
bool Endpoint::shares_memory(int host_index) const {
  return job_.shares_memory(host_index);
}

std::unique_ptr<VendorCollectives> Endpoint::vendor_collectives(std::span<const int> ranks,
                                                                std::uint16_t communicator) const {
  if (job_.group() == nullptr) return nullptr;
  std::set<int> processes;
  for (const int rank : ranks) processes.insert(topology().rank(rank).process);
  if (processes.size() != ranks.size()) return nullptr;
  return job_.group()->vendor_collectives(std::vector<int>(processes.begin(), processes.end()), communicator);
}

void Endpoint::report_calls(int peer, const CommunicatorKey& communicator, const CallReport& report) {
  job_.peers().report_calls(peer, communicator, report);
}

void EndpointFaults::check() const {
  job_.fault().check();
}
void EndpointFaults::check_world() const {
  job_.fault().check_world();
}
void EndpointFaults::check_process() const {
  job_.fault().check_process();
}
bool EndpointFaults::is_forked_child() const {
  return job_.fault().is_forked_child();
}
bool EndpointFaults::exist() const {
  return job_.fault().exists();
}
void EndpointFaults::poison(ErrorKind kind, const std::string& text) {
  job_.poison(rank_, kind, text, /*announce=*/true);
}
void EndpointFaults::give_up(std::string_view how) {
  poison(ErrorKind::kPeerLost, fmt::format("{} {}", job_.topology().describe(rank_), how));
}
std::optional<int> EndpointFaults::finder() const {
  return job_.fault().finder();
}
void EndpointFaults::poll() {
  job_.peers().poll();
}
void EndpointFaults::find_dead_peers() {
  // Time from the closing of a dying process's connections until its death is visible.
  constexpr auto kProcessExit = std::chrono::milliseconds(20);
  try {
    for (const auto end = Clock::now() + kProcessExit; !exist() && Clock::now() < end;) {
      poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const std::exception&) {
    // The caller raises its own error in any case.
  }
}

void EndpointProgress::ring() {
  doorbell_.ring();
  if (ProgressThread* thread = job_.progress_thread()) thread->notify();
}

Waiter::Options EndpointProgress::waiting() const {
  Waiter::Options options = job_.waiting();
  options.polled = options.polled || is_polled_.load(std::memory_order_relaxed);
  return options;
}

void EndpointProgress::attach(const std::weak_ptr<Progressable>& work) {
  if (ProgressThread* thread = job_.progress_thread()) thread->attach(work);
  const std::lock_guard lock(attached_mutex_);
  std::erase_if(attached_, [](const auto& other) { return other.expired(); });
  attached_.push_back(work);
}

std::shared_ptr<Progressable> EndpointProgress::shared_work(
    const std::function<std::shared_ptr<Progressable>()>& make) {
  const std::lock_guard lock(shared_mutex_);
  if (!shared_) {
    shared_ = make();
    attach(shared_);
  }
  return shared_;
}

std::shared_ptr<Progressable> EndpointProgress::shared_work() {
  const std::lock_guard lock(shared_mutex_);
  return shared_;
}

std::vector<std::shared_ptr<Progressable>> EndpointProgress::attached(std::size_t at_least) {
  std::vector<std::shared_ptr<Progressable>> locked;
  const std::lock_guard lock(attached_mutex_);
  if (attached_.size() < at_least) return locked;
  for (const auto& weak : attached_) {
    if (auto work = weak.lock()) locked.push_back(std::move(work));
  }
  return locked;
}

void EndpointProgress::advance_attached() {
  constexpr std::size_t kMoreThanTheCallers = 2;
  for (const auto& work : attached(kMoreThanTheCallers)) work->advance();
}

void EndpointProgress::advance_all() {
  for (const auto& work : attached(1)) work->advance();
}

void EndpointProgress::close_attached() {
  for (const auto& work : attached(1)) work->close();
}

bool EndpointProgress::usable_from_any_thread() const {
  return job_.progress_thread() != nullptr;
}

void EndpointProgress::wake() {
  if (ProgressThread* thread = job_.progress_thread()) thread->wake();
}

bool EndpointProgress::is_running() const {
  ProgressThread* const thread = job_.progress_thread();
  return thread != nullptr && thread->is_running();
}

void EndpointProgress::begin_operation() {
  if (ProgressThread* thread = job_.progress_thread()) thread->gate().begin();
}

void EndpointProgress::end_operation() {
  if (ProgressThread* thread = job_.progress_thread()) thread->gate().end();
}

bool EndpointProgress::is_quiet() const {
  ProgressThread* const thread = job_.progress_thread();
  return thread == nullptr || thread->gate().is_quiet();
}

void EndpointProgress::wait_until_quiet() const {
  if (ProgressThread* thread = job_.progress_thread()) thread->gate().wait_until_quiet();
}

bool EndpointProgress::shares_vendor_with_program() const {
  return job_.group() != nullptr && job_.group()->thread_use() == ThreadUse::kOneThreadAtATime;
}

LateRanks::LateRanks(Job& job, int rank) : job_(job), rank_(rank), entered_(kMaxCommunicators) {}

std::uint64_t LateRanks::entered(std::uint32_t communicator) const {
  return communicator < kMaxCommunicators ? entered_[communicator].load(std::memory_order_relaxed) : 0;
}

void LateRanks::ask(std::uint16_t communicator, std::uint64_t sequence, std::span<const int> awaited,
                    std::span<const int> others) {
  job_.peers().ask(rank_, communicator, sequence, awaited, others);
}

std::string LateRanks::describe_missing(std::uint16_t communicator, std::uint64_t sequence,
                                        std::span<const int> members) const {
  return job_.peers().stragglers().describe_missing(communicator, sequence, members);
}

void LateRanks::search_cycle() {
  job_.peers().search_cycle(rank_);
}

void LateRanks::set_has_left(bool left) {
  if (job_.fault().is_forked_child()) return;
  job_.peers().stragglers().set_has_left(rank_, left);
  job_.ring_all();
}

bool LateRanks::has_left(int rank) const {
  return job_.peers().stragglers().has_left(rank, kGoodbye);
}

}  // namespace farandole
