// SPDX-License-Identifier: Apache-2.0
#include "mpi_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/log.h"
#include "mpi_runtime.h"

namespace farandole::mpi {

MPI_Comm CommunicatorPool::take(const CommunicatorKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.key == key; });
  if (found == kept_.end()) return MPI_COMM_NULL;
  const MPI_Comm communicator = found->communicator;
  kept_.erase(found);
  return communicator;
}

void CommunicatorPool::put(CommunicatorKey key, MPI_Comm communicator) {
  const std::lock_guard lock(mutex_);
  kept_.push_back({std::move(key), communicator});
  if (kept_.size() <= kMaxKept) return;
  MPI_Comm_free(&kept_.front().communicator);
  kept_.pop_front();
}

void CommunicatorPool::free_all() {
  const std::lock_guard lock(mutex_);
  for (Kept& kept : kept_) MPI_Comm_free(&kept.communicator);
  kept_.clear();
}

namespace {

constexpr std::chrono::milliseconds kSettleTime{500};

std::mutex& process_wide_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// Pause between polls: yields at first, because other ranks may need this core, then sleeps, because ranks may be
/// minutes late.
class Backoff {
 public:
  void operator()() {
    if (yields_ < kYields) {
      ++yields_;
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  static constexpr int kYields = 2000;
  int yields_ = 0;
};

}  // namespace

int on_finalize(MPI_Comm, int, void* attribute, void*) {
  static_cast<MpiSession*>(attribute)->mpi_is_being_finalized();
  return MPI_SUCCESS;
}

MpiSession& MpiSession::open(const Runtime& runtime) {
  static std::mutex mutex;
  static auto& sessions = *new std::vector<std::unique_ptr<MpiSession>>;  // never destroyed, see the class
  const std::lock_guard guard(mutex);
  sessions.push_back(std::unique_ptr<MpiSession>(new MpiSession(runtime)));
  sessions.back()->watch_finalize();
  return *sessions.back();
}

MpiSession::MpiSession(const Runtime& runtime) : runtime_(runtime), pid_(getpid()) {
  messages_ = duplicate_parent();
  control_messages_ = duplicate_parent();
  check(MPI_Comm_rank(messages_, &process_), "MPI_Comm_rank");
  check(MPI_Comm_size(messages_, &process_count_), "MPI_Comm_size");
}

MPI_Comm MpiSession::duplicate_parent() const {
  MPI_Comm duplicate = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const auto guard = lock();
    check(MPI_Comm_idup(runtime_.parent, &duplicate, &request), "MPI_Comm_idup of the job's communicator");
  }
  wait(request, "MPI_Comm_idup of the job's communicator");
  const auto guard = lock();
  check(MPI_Comm_set_errhandler(duplicate, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return duplicate;
}

// MPI_Finalize first deletes the attributes of MPI_COMM_SELF, which calls `on_finalize`.
void MpiSession::watch_finalize() {
  const auto guard = lock();
  check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &keyval_, nullptr), "MPI_Comm_create_keyval");
  check(MPI_Comm_set_attr(MPI_COMM_SELF, keyval_, this), "MPI_Comm_set_attr on MPI_COMM_SELF");
}

void MpiSession::mpi_is_being_finalized() {
  if (state_.load() != State::kOpen) return;
  log(LogLevel::kError, "MPI_Finalize was called while a World is alive: destroy the World before MPI_Finalize");
  if (goodbye_) goodbye_();
  state_.store(State::kFinalized);
}

std::unique_lock<std::mutex> MpiSession::lock() const {
  if (runtime_.thread_level != MPI_THREAD_SERIALIZED) return {};
  return std::unique_lock(process_wide_mutex());
}

std::unique_lock<std::mutex> MpiSession::enter(std::string_view call) const {
  auto guard = lock();
  const State state = state_.load(std::memory_order_relaxed);
  if (state == State::kFinalized) {
    throw TransportError(
        fmt::format("process {}: {}: MPI was finalised while a World was alive: destroy the World before MPI_Finalize",
                    process_, call));
  }
  if (state == State::kLeft) {
    throw TransportError(fmt::format("process {}: {}: the job was left already", process_, call));
  }
  return guard;
}

bool MpiSession::is_usable() const {
  return state_.load(std::memory_order_relaxed) == State::kOpen && getpid() == pid_;
}

void MpiSession::wait(MPI_Request& request, std::string_view call, const std::function<void()>& while_waiting) const {
  for (Backoff backoff;; backoff()) {
    {
      const auto guard = enter(call);
      int done = 0;
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call);
      if (done != 0) return;
    }
    if (while_waiting) while_waiting();
  }
}

bool MpiSession::settle(MPI_Request& request) {
  const Deadline deadline = Deadline::after(has_stuck_.load() ? Seconds(0) : Seconds(kSettleTime));
  for (Backoff backoff;; backoff()) {
    if (!is_usable()) return false;
    int done = 0;
    {
      const auto guard = lock();
      // A request that fails is complete, too.
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return true;
    }
    if (done != 0) return true;
    if (deadline.passed()) {
      has_stuck_.store(true);
      return false;
    }
  }
}

void MpiSession::keep(std::unique_ptr<ControlMessage> memory) {
  const std::lock_guard guard(kept_mutex_);
  kept_.push_back(std::move(memory));
}

void MpiSession::keep(std::vector<std::byte> memory) {
  const std::lock_guard guard(kept_mutex_);
  kept_buffers_.push_back(std::move(memory));
}

void MpiSession::close(bool in_good_order) {
  if (!is_usable()) {
    goodbye_ = nullptr;
    return;
  }
  const auto guard = lock();
  state_.store(State::kLeft);
  goodbye_ = nullptr;
  // Errors are ignored: no data can be lost any more, and this function runs in destructors.
  MPI_Comm_delete_attr(MPI_COMM_SELF, keyval_);
  MPI_Comm_free_keyval(&keyval_);
  if (!in_good_order) return;
  pool_.free_all();
  MPI_Comm_free(&messages_);
  MPI_Comm_free(&control_messages_);
  if (runtime_.ours) MPI_Finalize();
}

}  // namespace farandole::mpi
