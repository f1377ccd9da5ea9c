// SPDX-License-Identifier: Apache-2.0
// Handles of asynchronous collectives and messages.
#pragma once

#include <functional>
#include <memory>

#include "farandole/core/error.h"
#include "farandole/core/export.h"
#include "farandole/core/stream.h"

namespace farandole FARANDOLE_API {

/// Handle of an asynchronous collective or message, returned by every `_async` form. Copies refer to the same
/// collective or message. What is said of collectives below holds for messages, too.
///
///   Work sum = ranks.allreduce_async(gradients, ReduceOp::kSum);
///   compute_something_else();
///   sum.wait();  // gradients hold the sums
///
/// The buffers must outlive the collective. Declare the Work after the buffers, because the destructor of the last copy
/// waits for the collective. During stack unwinding the destructor first poisons the job, so that no peer waits for
/// this rank. Once the World has ended, the collective is complete or has failed.
class Work {
 public:
  Work() = default;
  /// Blocks until the collective is complete.
  /// @throws Error  the collective has failed; every call throws again
  void wait();
  /// Returns true once the collective is complete or has failed. Non-blocking.
  bool test();
  /// Makes work that is enqueued later in `stream` wait for this collective, which must be on device memory. Blocks
  /// until the collective is enqueued on the device, not until it is complete. Afterwards the Work's destructor no
  /// longer waits; a later failure is raised by the next call on this communicator.
  /// @throws InvalidArgument  the collective is on host memory, or `stream` belongs to another device than this rank's
  /// @throws Error  the collective has failed already
  void wait_on(StreamView stream);
  /// Calls `done` once the collective has ended: in this function if it has ended already, else on any thread that
  /// advances collectives, without locks held. The error is null after success, and valid until `done` returns. `done`
  /// must not block, throw, or use the communicator. It may start messages (`send_async`, `recv_async`); on devices
  /// only with peers with which the communicator has exchanged a message before, because a first message blocks.
  /// @throws InvalidArgument  this collective has such a function already
  void on_done(std::function<void(const Error*)> done);
  /// Lets the destructor return without waiting: the collective goes on, and its buffers must stay valid until it has
  /// ended, see `on_done`.
  void detach();
  /// Rank that sent the received message.
  /// @throws InvalidArgument  this is not a receive, or it is not complete
  int source() const;
  bool valid() const { return handle_ != nullptr; }

  class State;
  explicit Work(std::shared_ptr<State> state);

 private:
  class Handle;
  std::shared_ptr<Handle> handle_;
};

}  // namespace FARANDOLE_API
