// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "errors.h"
#include "store_wait.h"

namespace farandole_torch {
namespace {

struct Current {
  std::mutex mutex;
  std::weak_ptr<Job> job;
  std::shared_ptr<Job> kept;  // a launcher's job
};
Current& current() {
  static auto* const instance = new Current;  // never destroyed: a group may end with the interpreter
  return *instance;
}

std::string key_of(int call) {
  return c10::str("farandole/", call);
}

/// What the user must do so that all ranks join, in torch's words.
constexpr const char* kJoinAdvice =
    "every rank must call init_process_group(\"farandole\") with its own rank, the same world_size, and the same "
    "init_method or store";
constexpr const char* kTimeoutName = "the timeout of init_process_group";
constexpr std::chrono::seconds kFirstWarning{30};  // of a wait for rank 0; the pauses between warnings double

/// Broadcasts texts through a store of torch: farandole_join_options.share.
struct StoreShare {
  const GroupPlan& plan;
  int calls = 0;
  std::string problem;
  bool has_timed_out = false;
};

/// Waits for a text of rank 0 until the group's timeout; warns from 30 s on. Returns whether it is there.
bool wait_for_rank_0(const GroupPlan& plan, const std::string& key) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto end = begin + plan.timeout;
  auto pause = kFirstWarning;
  for (auto warning = begin + pause;; pause *= 2, warning += pause) {
    if (wait_for_key(*plan.store, key, std::min(warning, end))) return true;
    if (Clock::now() >= end) return false;
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begin);
    TORCH_WARN("farandole: joining the job: rank ", plan.rank, " of ", plan.size, " has been waiting for ",
               waited.count(), " s until rank 0 joins; ", kJoinAdvice);
  }
}

int share(void* context, char* text, size_t capacity) {
  auto& shared = *static_cast<StoreShare*>(context);
  const GroupPlan& plan = shared.plan;
  const std::string key = key_of(shared.calls++);
  try {
    if (plan.rank == 0) {
      plan.store->set(key, std::string(text));
      return 0;
    }
    if (plan.timeout.count() > 0 && !wait_for_rank_0(plan, key)) {
      shared.has_timed_out = true;
      return 3;
    }
    const std::string found = plan.store->get_to_str(key);
    if (found.size() >= capacity) return 1;
    found.copy(text, found.size());
    text[found.size()] = 0;
    return 0;
  } catch (const std::exception& error) {
    shared.problem = error.what();
    return 2;
  }
}

farandole_comm_options options_of(const GroupPlan& plan) {
  farandole_comm_options options{};
  options.struct_bytes = sizeof options;
  options.name = plan.name.c_str();
  options.device_order = FARANDOLE_CALLER_ORDER;
  options.timeout_seconds = std::chrono::duration<double>(plan.timeout).count();
  return options;
}

}  // namespace

bool is_whole_job(const GroupPlan& plan) {
  if (plan.size != plan.global_size) return false;
  for (size_t rank = 0; rank < plan.global_ranks.size(); ++rank) {
    if (plan.global_ranks[rank] != static_cast<int32_t>(rank)) return false;
  }
  return true;
}

std::shared_ptr<Job> Job::join(const GroupPlan& plan) {
  const std::lock_guard lock(current().mutex);
  if (auto job = current().job.lock()) return job;
  if (!is_whole_job(plan)) {
    throw_error(FARANDOLE_INVALID_ARGUMENT,
                c10::str("the first process group of the backend farandole must have all ", plan.global_size,
                         " ranks, and this one has ", plan.size,
                         ": call init_process_group(\"farandole\") first, or new_group(backend=\"farandole\")"));
  }
  auto job = std::make_shared<Job>(plan);
  current().job = job;
  if (!job->was_shared_) current().kept = job;
  return job;
}

void Job::leave() {
  std::shared_ptr<Job> last;
  const std::lock_guard lock(current().mutex);
  last.swap(current().kept);
}

void Job::abort(const std::string& text) {
  const std::lock_guard lock(current().mutex);
  if (const auto job = current().job.lock()) farandole_comm_abort(job->all_.get(), text.c_str());
}

void Job::keep(Comm comm) {
  const std::lock_guard lock(current().mutex);
  kept_.push_back(std::move(comm));
}

Job::Job(const GroupPlan& plan) {
  if (plan.rank < 0 || plan.rank >= plan.size) {
    throw_error(FARANDOLE_INVALID_ARGUMENT,
                c10::str("init_process_group: rank is ", plan.rank, " and world_size ", plan.size,
                         "; expected a rank from 0 to world_size - 1 = ", plan.size - 1));
  }
  StoreShare shared{plan, 0, {}, false};
  farandole_join_options options{};
  options.struct_bytes = sizeof options;
  options.rank = plan.rank;
  options.size = plan.size;
  options.share = share;
  options.share_context = &shared;
  options.timeout_seconds = std::chrono::duration<double>(plan.timeout).count();
  options.timeout_name = kTimeoutName;
  options.advice = kJoinAdvice;
  farandole_comm_options own{};
  own.struct_bytes = sizeof own;
  own.name = "torch";
  farandole_comm* comm = nullptr;
  try {
    call(farandole_comm_join, &options, &own, &comm);
  } catch (const FarandoleError&) {
    if (shared.has_timed_out) {
      throw_error(FARANDOLE_TIMEOUT, c10::str("the deadline of ", options.timeout_seconds, " s (", kTimeoutName,
                                              ") has passed: joining the job: rank ", plan.rank, " of ", plan.size,
                                              " waits for rank 0, which has not joined; ", kJoinAdvice));
    }
    if (shared.problem.empty()) throw;
    throw_error(FARANDOLE_TRANSPORT_ERROR, "joining the job: torch's store failed: " + shared.problem);
  }
  all_.reset(comm);
  was_shared_ = shared.calls > 0;
  // All ranks have joined, so all have read the texts. A later job may use the same store.
  for (int key = 0; plan.rank == 0 && key < shared.calls; ++key) plan.store->deleteKey(key_of(key));
}

Comm Job::make_comm(const GroupPlan& plan) const {
  const farandole_comm_options options = options_of(plan);
  farandole_comm* comm = nullptr;
  if (is_whole_job(plan)) {
    call(farandole_comm_split, all_.get(), 0, 0, &options, &comm);
  } else {
    call(farandole_comm_of_members, all_.get(), plan.global_ranks.data(), static_cast<int32_t>(plan.size), &options,
         &comm);
  }
  return Comm(comm);
}

}  // namespace farandole_torch
