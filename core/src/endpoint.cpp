// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/endpoint.h"

#include <fmt/format.h>

#include <set>

#include "job.h"

namespace farandole {

Endpoint::Endpoint(Job& job, int rank)
    : job_(job),
      rank_(rank),
      doorbell_(job.memory().header().slots[static_cast<std::size_t>(job.topology().rank(rank).replica)].doorbell),
      entered_(kMaxCommunicators),
      ids_(kMaxCommunicators, 0) {}

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
Waiter::Options Endpoint::waiting() const {
  Waiter::Options options = job_.waiting();
  options.polled = options.polled || is_polled_.load(std::memory_order_relaxed);
  return options;
}

std::unique_ptr<VendorCollectives> Endpoint::vendor_collectives(std::span<const int> ranks,
                                                                std::uint16_t communicator) const {
  if (job_.group() == nullptr) return nullptr;
  std::set<int> processes;
  for (const int rank : ranks) processes.insert(topology().rank(rank).process);
  if (processes.size() != ranks.size()) return nullptr;
  return job_.group()->vendor_collectives(std::vector<int>(processes.begin(), processes.end()), communicator);
}

void Endpoint::ring() {
  doorbell_.ring();
  if (ProgressThread* progress = job_.progress_thread()) progress->notify();
}

void Endpoint::attach(const std::weak_ptr<Progressable>& work) {
  if (ProgressThread* progress = job_.progress_thread()) progress->attach(work);
  const std::lock_guard lock(attached_mutex_);
  std::erase_if(attached_, [](const auto& entry) { return entry.expired(); });
  attached_.push_back(work);
}

bool Endpoint::usable_from_any_thread() const {
  return job_.progress_thread() != nullptr;
}

void Endpoint::wake_progress() {
  if (ProgressThread* progress = job_.progress_thread()) progress->wake();
}

bool Endpoint::has_running_progress() const {
  ProgressThread* const progress = job_.progress_thread();
  return progress != nullptr && progress->is_running();
}

void Endpoint::begin_operation() {
  if (ProgressThread* progress = job_.progress_thread()) progress->gate().begin();
}

void Endpoint::end_operation() {
  if (ProgressThread* progress = job_.progress_thread()) progress->gate().end();
}

bool Endpoint::is_quiet() const {
  ProgressThread* progress = job_.progress_thread();
  return progress == nullptr || progress->gate().is_quiet();
}

void Endpoint::wait_until_quiet() const {
  if (ProgressThread* progress = job_.progress_thread()) progress->gate().wait_until_quiet();
}

bool Endpoint::shares_vendor_with_program() const {
  return job_.group() != nullptr && job_.group()->thread_use() == ThreadUse::kOneThreadAtATime;
}

std::vector<std::shared_ptr<Progressable>> Endpoint::attached(std::size_t at_least) {
  std::vector<std::shared_ptr<Progressable>> held;
  const std::lock_guard lock(attached_mutex_);
  if (attached_.size() < at_least) return held;
  for (const auto& entry : attached_) {
    if (auto work = entry.lock()) held.push_back(std::move(work));
  }
  return held;
}

void Endpoint::advance_attached() {
  constexpr std::size_t kMoreThanTheCallers = 2;
  for (const auto& work : attached(kMoreThanTheCallers)) work->advance();
}

void Endpoint::close_attached() {
  for (const auto& work : attached(1)) work->close();
}

bool Endpoint::is_forked_child() const {
  return job_.is_forked_child();
}
void Endpoint::check_process() const {
  job_.check_process();
}
void Endpoint::check_fault() const {
  job_.check_fault();
}
void Endpoint::check_world() const {
  job_.check_world();
}
bool Endpoint::has_fault() const {
  return job_.has_fault();
}
void Endpoint::poison(ErrorKind kind, const std::string& text) {
  job_.poison(rank_, kind, text, true);
}
void Endpoint::give_up(std::string_view how) {
  poison(ErrorKind::kPeerLost, fmt::format("{} {}", topology().describe(rank_), how));
}
void Endpoint::poll_health() {
  job_.peers().poll();
}

void Endpoint::enter(std::uint16_t communicator, std::uint64_t sequence) {
  entered_[communicator].store(sequence, std::memory_order_relaxed);
}
void Endpoint::ask(std::uint16_t communicator, std::uint64_t sequence, std::span<const int> awaited,
                   std::span<const int> others) {
  job_.peers().ask(rank_, communicator, sequence, awaited, others);
}
void Endpoint::search_cycle() {
  job_.peers().search_cycle(rank_);
}
void Endpoint::set_left(bool left) {
  job_.set_left(rank_, left);
}
bool Endpoint::has_left(int rank, Seconds ago) const {
  return job_.peers().stragglers().has_left(rank, ago);
}

std::string Endpoint::describe_missing(std::uint16_t communicator, std::uint64_t sequence,
                                       std::span<const int> members) const {
  return job_.peers().stragglers().describe_missing(communicator, sequence, members);
}

std::vector<std::uint8_t> Endpoint::used_ids() const {
  const std::lock_guard lock(ids_mutex_);
  return ids_;
}
void Endpoint::take_id(std::uint16_t id) {
  const std::lock_guard lock(ids_mutex_);
  ids_[id] = 1;
}
void Endpoint::release_id(std::uint16_t id) {
  const std::lock_guard lock(ids_mutex_);
  ids_[id] = 0;
}

}  // namespace farandole
