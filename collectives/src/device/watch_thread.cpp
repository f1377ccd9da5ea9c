// SPDX-License-Identifier: Apache-2.0
#include "device/watch_thread.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/library_thread.h"

namespace farandole {

WatchThread::~WatchThread() {
  thread_.request_stop();
}

void WatchThread::add(std::shared_ptr<Watched> watched) {
  const std::lock_guard lock(mutex_);
  try {
    if (!thread_.joinable()) thread_ = start_library_thread([this](const std::stop_token& stop) { run(stop); });
  } catch (const std::system_error& error) {
    throw Unsupported(
        fmt::format("the thread that watches a device cannot be started ({}); raise the limits on threads",
                    error.code().message()));
  }
  watched_.push_back(std::move(watched));
}

void WatchThread::remove(const Watched& watched) {
  const std::lock_guard lock(mutex_);
  std::erase_if(watched_, [&](const auto& other) { return other.get() == &watched; });
}

bool WatchThread::has_running() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(watched_.begin(), watched_.end(), [](const auto& watched) { return watched->has_running(); });
}

void WatchThread::run(const std::stop_token& stop) {
  constexpr std::chrono::milliseconds kActive{10}, kIdle{100};
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    bool is_active = false;
    const Clock::time_point now = Clock::now();
    for (const auto& watched : watched_) {
      watched->tick(now);
      is_active = is_active || watched->is_active();
    }
    changed_.wait_for(lock, stop, is_active ? kActive : kIdle, [] { return false; });
  }
}

}  // namespace farandole
