// SPDX-License-Identifier: Apache-2.0
// Work: handles of asynchronous collectives and messages.
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "operation/work_state.h"

namespace farandole {

/// Shared state of all copies of a Work. The last copy's destructor waits for the collective or message.
class Work::Handle {
 public:
  explicit Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (is_detached_ || state_->owner->is_forked_child() || has_ended()) return;
    if (!is_done() && std::uncaught_exceptions() > exceptions_at_start_) state_->owner->give_up();
    state_->owner->wait(*state_);
  }
  bool is_done() const { return state_->done.load(std::memory_order_acquire); }
  bool has_ended() const { return is_done() && state_->owner->is_quiet(); }
  State& state() { return *state_; }
  /// Makes the destructor return at once: a stream waits for the collective instead.
  void detach() { is_detached_ = true; }

 private:
  const std::shared_ptr<State> state_;
  std::atomic<bool> is_detached_{false};
  const int exceptions_at_start_ = std::uncaught_exceptions();
};

namespace {

/// Guards the actions of all work: an action is set or taken in a few instructions.
std::mutex& action_mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

void Work::State::on_done(std::function<void(const State&)> action) {
  {
    const std::lock_guard lock(action_mutex());
    if (action_) throw InvalidArgument("on_done: this Work has such a function already");
    action_ = std::move(action);
    if (!done.load(std::memory_order_acquire)) return;
  }
  action_(*this);
}

void DoneActions::finish(const std::shared_ptr<Work::State>& work) {
  const std::lock_guard lock(action_mutex());
  work->done.store(true, std::memory_order_release);
  if (!work->action_) return;
  finished_.push_back(work);
  is_empty_.store(false, std::memory_order_relaxed);
}

void DoneActions::run() {
  if (is_empty_.load(std::memory_order_relaxed)) return;
  std::vector<std::shared_ptr<Work::State>> finished;
  {
    const std::lock_guard lock(action_mutex());
    finished.swap(finished_);
    is_empty_.store(true, std::memory_order_relaxed);
  }
  for (const std::shared_ptr<Work::State>& work : finished) work->action_(*work);
}

Work::Work(std::shared_ptr<State> state) : handle_(std::make_shared<Handle>(std::move(state))) {}

void Work::wait() {
  if (!handle_) throw InvalidArgument("wait: this Work does not refer to a collective or message");
  State& state = handle_->state();
  state.owner->begin_use();
  if (!handle_->has_ended()) state.owner->wait(state);
  if (state.failure) throw_error(state.failure->kind, state.failure->text);
}

bool Work::test() {
  if (!handle_) throw InvalidArgument("test: this Work does not refer to a collective or message");
  WorkOwner& owner = *handle_->state().owner;
  owner.begin_use();
  if (!handle_->is_done()) owner.poll();
  return handle_->has_ended();
}

int Work::source() const {
  if (!handle_ || !handle_->is_done() || handle_->state().source == State::kNoSource) {
    throw InvalidArgument("source: this Work does not refer to a receive that is complete");
  }
  return handle_->state().source;
}

void Work::wait_on(StreamView stream) {
  if (!handle_) throw InvalidArgument("wait_on: this Work does not refer to a collective or message");
  State& state = handle_->state();
  state.owner->begin_use();
  state.owner->wait_on(state, stream);
  handle_->detach();
  if (handle_->is_done() && state.failure) throw_error(state.failure->kind, state.failure->text);
}

void Work::on_done(std::function<void(const Error*)> done) {
  if (!handle_) throw InvalidArgument("on_done: this Work does not refer to a collective or message");
  State& state = handle_->state();
  state.owner->begin_use();
  state.on_done([done = std::move(done)](const State& ended) {
    if (!ended.failure) return done(nullptr);
    const Error error(ended.failure->kind, ended.failure->text);
    done(&error);
  });
}

void Work::detach() {
  if (!handle_) throw InvalidArgument("detach: this Work does not refer to a collective or message");
  handle_->detach();
}

}  // namespace farandole
