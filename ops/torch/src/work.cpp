// SPDX-License-Identifier: Apache-2.0
#include "work.h"

#include <c10/core/StreamGuard.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "completion_threads.h"
#include "device_stream.h"
#include "errors.h"

namespace farandole_torch {

CallWork::CallWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
                   std::vector<at::Tensor> outputs, uint64_t sequence, std::chrono::milliseconds timeout,
                   std::optional<c10::Stream> stream)
    : Work(rank, type, title, inputs),
      sequence_(sequence),
      timeout_(timeout),
      stream_(stream),
      outputs_(std::move(outputs)) {
  for (const at::Tensor& input : inputs) keep(input);
  if (!stream_) return;
  for (const at::Tensor& output : outputs_) output.record_stream(*stream_);
}

CallWork::~CallWork() {
  for (farandole_work* const handle : handles_) farandole_work_free(handle);
}

void CallWork::keep(const at::Tensor& tensor) {
  kept_.push_back(tensor);
  if (stream_) tensor.record_stream(*stream_);
}

void CallWork::launch() {
  // A call that failed to start has left no handle.
  handles_.erase(std::remove(handles_.begin(), handles_.end(), nullptr), handles_.end());
  if (handles_.empty()) return complete(settle());
  pending_.store(handles_.size(), std::memory_order_relaxed);
  for (farandole_work* const handle : handles_) {
    // The reference keeps this object, and the tensors, until the call is done.
    auto self = c10::intrusive_ptr<CallWork>::unsafe_reclaim_from_nonowning(this);
    call(farandole_work_on_done, handle, static_cast<void*>(self.release()), &CallWork::on_done);
  }
}

void CallWork::on_done(void* context, const farandole_error* error) noexcept {
  const auto self = c10::intrusive_ptr<CallWork>::reclaim(static_cast<CallWork*>(context));
  if (error != nullptr) {
    const std::lock_guard lock(self->mutex_);
    if (!self->failure_) self->failure_ = make_exception(*error);
  }
  if (self->pending_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (!self->actions_.empty()) {
    return run_on_completion_thread([self] { self->complete(self->settle()); });
  }
  if (const Future future = self->settle()) run_on_completion_thread([self, future] { self->complete(future); });
}

CallWork::Future CallWork::settle() {
  const std::lock_guard lock(settling_);
  if (is_settled_) return {};
  std::exception_ptr failure = failure_;
  try {
    if (!failure) run_actions();
  } catch (...) {
    failure = std::current_exception();
  }
  kept_.clear();
  is_settled_ = true;
  finish(failure);
  return future_;
}

void CallWork::run_actions() {
  if (!stream_) {
    for (const auto& action : actions_) action();
    return;
  }
  const c10::StreamGuard guard(*stream_);
  for (const auto& action : actions_) action();
  end_.emplace(stream_->device_type());
  end_->record(*stream_);
}

void CallWork::complete(const Future& future) const {
  if (!future) return;
  if (const std::exception_ptr failure = exception()) return future->setError(failure);
  // On a device the future makes its users' streams wait for the current stream.
  std::optional<c10::StreamGuard> guard;
  if (stream_) guard.emplace(*stream_);
  future->markCompleted(c10::IValue(outputs_));
}

bool CallWork::calls_are_done() const {
  bool are_done = true;
  for (farandole_work* const handle : handles_) are_done = farandole_work_test(handle) != 0 && are_done;
  return are_done && pending_.load(std::memory_order_acquire) == 0;
}

bool CallWork::isCompleted() {
  if (!calls_are_done()) return false;
  complete(settle());
  return !end_ || end_->query();
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
  return handles_.empty() ? -1 : farandole_work_source(handles_.front());
}

void CallWork::wait_for_calls(std::chrono::milliseconds timeout) const {
  if (timeout <= kNoTimeout) {
    for (farandole_work* const handle : handles_) farandole_work_wait(handle, nullptr);  // on_done gets the error, too
    while (pending_.load(std::memory_order_acquire) != 0) std::this_thread::yield();     // another thread's on_done
    return;
  }
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!calls_are_done()) {
    if (std::chrono::steady_clock::now() > end) {
      throw_error(FARANDOLE_TIMEOUT, c10::str("wait: the ", c10d::opTypeToString(opType_), " is not done after ",
                                              timeout.count(), " ms; it goes on, and may be waited for again"));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

bool CallWork::wait(std::chrono::milliseconds timeout) {
  if (!handles_.empty()) wait_for_calls(timeout > kNoTimeout ? timeout : timeout_);
  complete(settle());
  if (const std::exception_ptr failure = exception()) std::rethrow_exception(failure);
  if (end_) end_->block(current_stream(stream_->device()));
  return true;
}

void CallWork::abort() {
  throw_error(FARANDOLE_UNSUPPORTED, "a single call cannot be aborted; abort the process group, which ends the job");
}

c10::intrusive_ptr<c10::ivalue::Future> CallWork::getFuture() {
  Future future;
  {
    const std::lock_guard lock(settling_);
    if (future_) return future_;
    const auto type = c10::ListType::create(c10::TensorType::get());
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        type, stream_ ? std::vector<at::Device>{stream_->device()} : std::vector<at::Device>{});
    future = future_;
    if (!is_settled_) {
      auto self = c10::intrusive_ptr<CallWork>::unsafe_reclaim_from_nonowning(this);
      run_on_waiting_thread([self = std::move(self)] { self->wait_for_calls(kNoTimeout); });
      return future;
    }
  }
  complete(future);
  return future;
}

}  // namespace farandole_torch
