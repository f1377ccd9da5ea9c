// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "farandole/internal/library_thread.h"
#include "farandole/internal/log.h"

namespace farandole {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kOversubscribedInterval{5};
constexpr std::chrono::milliseconds kHealthInterval{100};

}  // namespace

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard lock(mutex_);
    thread_.request_stop();
  }
  own_.ring();
  doorbell_.ring();
}

void ProgressThread::attach(std::weak_ptr<Progressable> work) {
  const std::lock_guard lock(mutex_);
  // Until the thread has started, only this function removes expired work.
  std::erase_if(attached_, [](const auto& other) { return other.expired(); });
  attached_.push_back(std::move(work));
}

void ProgressThread::wake() {
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable() && !is_refused_) start();
  }
  own_.ring();
  doorbell_.ring();
}

void ProgressThread::start() {
  try {
    thread_ = start_library_thread([this](const std::stop_token& stop) { run(stop); });
    is_running_.store(true, std::memory_order_relaxed);
  } catch (const std::system_error& error) {
    is_refused_ = true;
    log(LogLevel::kWarning,
        fmt::format("the progress thread cannot be started ({}): asynchronous operations advance only inside calls; "
                    "raise the limits on processes and threads (ulimit -u, or pids.max of the control group)",
                    error.code().message()));
  }
}

void ProgressThread::take_attached(WorkList& works) {
  const std::lock_guard lock(mutex_);
  std::erase_if(attached_, [](const auto& work) { return work.expired(); });
  for (const auto& work : attached_) {
    if (auto owner = work.lock()) works.push_back(std::move(owner));
  }
}

Progressable::State ProgressThread::advance(const WorkList& works) {
  auto best = Progressable::State::kIdle;
  if (const ProgressGate::Passage passage(gate_); passage) {
    for (const auto& work : works) best = std::max(best, work->advance());
  }
  return best;
}

void ProgressThread::poll_health(const WorkList& works) {
  if (const ProgressGate::Passage passage(gate_); passage) {
    for (const auto& work : works) work->poll_health();
  }
}

void ProgressThread::run(const std::stop_token& stop) {
  Waiter waiter(doorbell_, options_);
  WorkList works;
  Clock::time_point next_check = Clock::now() + kHealthInterval;
  while (!stop.stop_requested()) {
    const std::uint32_t seen = own_.rings();
    waiter.look();
    take_attached(works);
    const auto best = advance(works);
    if (best != Progressable::State::kIdle && options_.oversubscribed) {
      poll_health(works);
      works.clear();
      own_.sleep(own_.rings(), kOversubscribedInterval);
    } else if (best == Progressable::State::kMoved) {
      waiter.reset();
      // Some work moves, and other work may be stuck.
      if (Clock::now() >= next_check) {
        poll_health(works);
        next_check = Clock::now() + kHealthInterval;
      }
    } else if (best == Progressable::State::kWaiting) {
      if (waiter.rest()) poll_health(works);
    } else if (!stop.stop_requested()) {
      // Nothing is pending: sleep until `wake`. The limit only bounds the harm of a lost ring.
      works.clear();
      own_.sleep(seen, std::chrono::seconds(1));
      waiter.reset();
    }
    works.clear();
  }
}

}  // namespace farandole
