// SPDX-License-Identifier: Apache-2.0
// Work: handles of asynchronous collectives.
#include <atomic>
#include <exception>
#include <memory>
#include <utility>

#include "communicator/work_queue.h"
#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"

namespace farandole {

/// Shared state of all copies of a Work. The last copy's destructor waits for the collective.
class Work::Handle {
 public:
  explicit Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (is_detached_ || state_->queue->is_forked_child() || has_ended()) return;
    if (!is_done() && std::uncaught_exceptions() > exceptions_at_start_) state_->queue->give_up();
    state_->queue->wait(*state_);
  }
  bool is_done() const { return state_->done.load(std::memory_order_acquire); }
  bool has_ended() const { return is_done() && state_->queue->is_quiet(); }
  State& state() { return *state_; }
  /// Makes the destructor return at once: a stream waits for the collective instead.
  void detach() { is_detached_ = true; }

 private:
  const std::shared_ptr<State> state_;
  std::atomic<bool> is_detached_{false};
  const int exceptions_at_start_ = std::uncaught_exceptions();
};

Work::Work(std::shared_ptr<State> state) : handle_(std::make_shared<Handle>(std::move(state))) {}

void Work::wait() {
  if (!handle_) throw InvalidArgument("wait: this Work does not refer to a collective");
  State& state = handle_->state();
  state.queue->begin_use();
  if (!handle_->has_ended()) state.queue->wait(state);
  if (state.failure) throw_error(state.failure->kind, state.failure->text);
}

bool Work::test() {
  if (!handle_) throw InvalidArgument("test: this Work does not refer to a collective");
  WorkQueue& queue = *handle_->state().queue;
  queue.begin_use();
  if (!handle_->is_done()) queue.poll();
  return handle_->has_ended();
}

void Work::wait_on(StreamView stream) {
  if (!handle_) throw InvalidArgument("wait_on: this Work does not refer to a collective");
  State& state = handle_->state();
  state.queue->begin_use();
  state.queue->wait_on(state, stream);
  handle_->detach();
  if (handle_->is_done() && state.failure) throw_error(state.failure->kind, state.failure->text);
}

void Work::on_done(std::function<void(const Error*)> done) {
  if (!handle_) throw InvalidArgument("on_done: this Work does not refer to a collective");
  State& state = handle_->state();
  state.queue->begin_use();
  state.queue->on_done(state, [done = std::move(done)](const std::optional<Failure>& failure) {
    if (!failure) return done(nullptr);
    const Error error(failure->kind, failure->text);
    done(&error);
  });
}

void Work::detach() {
  if (!handle_) throw InvalidArgument("detach: this Work does not refer to a collective");
  handle_->detach();
}

}  // namespace farandole
