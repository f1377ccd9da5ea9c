// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include <c10/util/StringUtil.h>

#include <mutex>
#include <numeric>

#include "errors.h"

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

/// Broadcasts texts through a store of torch: farandole_join_options.share.
struct StoreShare {
  c10d::Store& store;
  int rank = 0;
  int calls = 0;
  std::string problem;
};

int share(void* context, char* text, size_t capacity) {
  auto& shared = *static_cast<StoreShare*>(context);
  const std::string key = key_of(shared.calls++);
  try {
    if (shared.rank == 0) {
      shared.store.set(key, std::string(text));
      return 0;
    }
    const std::string found = shared.store.get_to_str(key);
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

bool is_whole_job(const GroupPlan& plan) {
  if (plan.size != plan.global_size) return false;
  for (size_t rank = 0; rank < plan.global_ranks.size(); ++rank) {
    if (plan.global_ranks[rank] != static_cast<int32_t>(rank)) return false;
  }
  return true;
}

}  // namespace

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

Job::Job(const GroupPlan& plan) {
  StoreShare shared{*plan.store, plan.rank, 0, {}};
  farandole_join_options options{};
  options.struct_bytes = sizeof options;
  options.rank = plan.rank;
  options.size = plan.size;
  options.share = share;
  options.share_context = &shared;
  farandole_comm_options own{};
  own.struct_bytes = sizeof own;
  own.name = "torch";
  farandole_comm* comm = nullptr;
  try {
    call(farandole_comm_join, &options, &own, &comm);
  } catch (const FarandoleError&) {
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
