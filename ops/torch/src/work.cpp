// SPDX-License-Identifier: Apache-2.0
#include "work.h"

#include <c10/util/StringUtil.h>

#include <thread>
#include <utility>

#include "errors.h"

namespace farandole_torch {

CallWork::CallWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
                   std::vector<at::Tensor> outputs)
    : Work(rank, type, title, inputs), outputs_(std::move(outputs)) {
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

CallWork::~CallWork() = default;

farandole_work** CallWork::begin() {
  raw_.reserve(64);
  raw_.push_back(nullptr);
  return &raw_.back();
}

void CallWork::launch() {
  for (farandole_work* const work : raw_) handles_.emplace_back(work);
  raw_.clear();
  if (handles_.empty()) return complete();
  unfinished_.store(handles_.size(), std::memory_order_relaxed);
  for (const Handle& handle : handles_) {
    // The reference keeps this object, and the tensors, until the call is done.
    auto self = c10::intrusive_ptr<CallWork>::unsafe_reclaim_from_nonowning(this);
    call(farandole_work_on_done, handle.get(), static_cast<void*>(self.release()), &CallWork::on_done);
  }
}

void CallWork::on_done(void* context, const farandole_error* error) {
  const auto self = c10::intrusive_ptr<CallWork>::reclaim(static_cast<CallWork*>(context));
  if (error != nullptr) {
    std::exception_ptr failure = make_exception(farandole_error_get_kind(error), farandole_error_text(error));
    const std::lock_guard lock(self->mutex_);
    if (!self->failure_) self->failure_ = std::move(failure);
  }
  if (self->unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) self->complete();
}

void CallWork::complete() {
  std::exception_ptr failure;
  {
    const std::lock_guard lock(completing_);
    if (is_complete_) return;
    is_complete_ = true;
    {
      const std::lock_guard error_lock(mutex_);
      failure = failure_;
    }
    try {
      if (!failure) {
        for (const auto& action : actions_) action();
      }
    } catch (...) {
      failure = std::current_exception();
    }
    kept_.clear();
    actions_.clear();
    finish(failure);
  }
  // Callbacks of the future may use this object.
  if (failure) {
    future_->setError(failure);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
}

bool CallWork::all_are_done() {
  bool are_done = true;
  for (const Handle& handle : handles_) are_done = farandole_work_test(handle.get()) != 0 && are_done;
  return are_done && unfinished_.load(std::memory_order_acquire) == 0;
}

bool CallWork::isCompleted() {
  if (!all_are_done()) return false;
  complete();
  const std::lock_guard lock(mutex_);
  return completed_;
}

bool CallWork::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

std::exception_ptr CallWork::exception() const {
  const std::lock_guard lock(mutex_);
  return exception_;
}

int CallWork::sourceRank() const {
  return handles_.empty() ? -1 : farandole_work_source(handles_.front().get());
}

void CallWork::wait_for_calls(std::chrono::milliseconds timeout) {
  if (timeout <= kNoTimeout) {
    // Errors reach `failure_` by on_done.
    for (const Handle& handle : handles_) farandole_work_wait(handle.get(), nullptr);
    // Another thread may be about to call on_done.
    while (unfinished_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
    return;
  }
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!all_are_done()) {
    if (std::chrono::steady_clock::now() > end) {
      throw_error(FARANDOLE_TIMEOUT, c10::str("wait: the call is not done after ", timeout.count(), " ms; it goes on"));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

bool CallWork::wait(std::chrono::milliseconds timeout) {
  if (!handles_.empty()) wait_for_calls(timeout);
  complete();
  std::exception_ptr failure = exception();
  if (failure) std::rethrow_exception(failure);
  return true;
}

void CallWork::abort() {
  throw_error(FARANDOLE_UNSUPPORTED, "a single call cannot be aborted; abort the process group, which ends the job");
}

c10::intrusive_ptr<c10::ivalue::Future> CallWork::getFuture() {
  return future_;
}

}  // namespace farandole_torch
