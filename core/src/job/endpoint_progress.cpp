// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/endpoint_progress.h"

#include <utility>

#include "job/job.h"

namespace farandole {

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

}  // namespace farandole
