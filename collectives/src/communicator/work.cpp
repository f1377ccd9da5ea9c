// SPDX-License-Identifier: Apache-2.0
// Work: handles of asynchronous collectives and messages.
#include <atomic>
#include <exception>
#include <memory>
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

}  // namespace farandole
