// SPDX-License-Identifier: Apache-2.0
// State of the asynchronous work that a Work refers to, and the queue that the work belongs to.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/internal/endpoint.h"

namespace farandole {

class WorkOwner;

/// Error of a collective or a message. Kept as a value, because each waiting thread throws its own exception.
struct Failure {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
};

/// Added to the text of a failure if a transport may still write to the caller's memory (BufferHazard::kWritten).
inline constexpr std::string_view kStillWritten =
    "; a message to this rank had begun and could not be withdrawn, so that the output of this call may still be "
    "written: neither use nor free its memory, and end the process";

/// Shared state of all copies of a Work. `done` is set last, with release; waiting threads load it with acquire, so
/// they see the result, `failure` and `source`.
class Work::State {
 public:
  static constexpr int kNoSource = -1;
  std::shared_ptr<WorkOwner> owner;
  std::optional<Failure> failure;
  int source = kNoSource;  ///< rank that sent the received message; kNoSource for other work
  std::atomic<bool> done{false};

  /// Calls `action` once this work is done: in this function if it is done already, else by DoneActions::run.
  /// @throws InvalidArgument  there is an action already
  void on_done(std::function<void(const State&)> action);

 private:
  friend class DoneActions;
  std::function<void(const State&)> action_;  // guarded by the mutex of all DoneActions
};

/// Ends work, and runs the actions of work that has ended, without locks held. Thread-safe.
class DoneActions {
 public:
  /// Sets `done`. The caller may hold locks.
  void finish(const std::shared_ptr<Work::State>& work);
  /// Runs the actions of finished work. Call it without locks. Costs a load if there are none.
  void run();

 private:
  std::vector<std::shared_ptr<Work::State>> finished_;  // work with an action; guarded by the mutex
  std::atomic<bool> is_empty_{true};                    // of finished_; read without the mutex
};

/// Queue to which asynchronous work belongs: the collectives or the messages of a communicator. Thread-safe.
class WorkOwner {
 public:
  virtual ~WorkOwner() = default;
  /// Blocks until `work` is done; makes progress meanwhile.
  virtual void wait(const Work::State& work) = 0;
  /// Makes work that is enqueued later in `stream` wait for `work`. Blocks until `work` is enqueued on the device.
  /// @throws InvalidArgument  `work` is on host memory, or `stream` belongs to another device than this rank's
  virtual void wait_on(const Work::State& work, StreamView stream) = 0;
  /// Makes progress once, for callers that poll. Checks the health of peers at most once a millisecond.
  virtual void poll() = 0;
  /// Poisons the job: this rank abandons its pending work, and its peers must not wait for it.
  virtual void give_up() = 0;

  /// False while owners of completed work must not be notified yet, see EndpointProgress::is_quiet.
  bool is_quiet() const { return endpoint_->progress().is_quiet(); }
  /// True in a process that was forked from this rank's process. Only this function and `begin_use` may be called
  /// there.
  bool is_forked_child() const { return endpoint_->faults().is_forked_child(); }
  /// Notes that the calling thread of the program uses the communicator or a Work. @throws InvalidArgument  in a forked
  /// process
  void begin_use() const {
    endpoint_->faults().check_process();
    endpoint_->late_ranks().blocked().note_thread();
  }

 protected:
  explicit WorkOwner(std::shared_ptr<Endpoint> endpoint) : endpoint_(std::move(endpoint)) {}

 private:
  const std::shared_ptr<Endpoint> endpoint_;
};

}  // namespace farandole
