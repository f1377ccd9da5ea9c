// SPDX-License-Identifier: Apache-2.0
// Operations: collectives in progress, which the thread that has time moves on.
#pragma once

#include <memory>
#include <vector>

#include "farandole/sdk/device.h"
#include "farandole/sdk/transport.h"

namespace farandole {

/// Advanced by one thread at a time. One that is given up unfinished is withdrawn before it is destroyed.
class Operation {
 public:
  enum class State { kWaiting, kMoved, kDone };
  virtual ~Operation() = default;
  /// Moves on without blocking. @throws Error  the collective has failed
  virtual State advance() = 0;
  /// Ranks of the job whose messages it waits for.
  virtual std::vector<int> waits_for() const = 0;
  /// Gives it up: withdraws its messages. What may still happen to their memory, the worst of it; if anything may, it
  /// is not destroyed but kept. Never throws.
  virtual BufferHazard withdraw() = 0;
  /// On a device: what a stream can wait for, once all of it is enqueued there; else null.
  virtual std::shared_ptr<DeviceEvent> enqueued() const { return nullptr; }
};

/// Withdraws a message, or, if it is null, none. Where nothing may happen to its memory any more it is null afterwards;
/// else it stays, as that memory must. @returns  what may still happen to its memory
BufferHazard give_up(std::unique_ptr<Transfer>& message);

/// Memory of an operation that a transport may still use stays where it is.
void keep_until_exit(std::unique_ptr<Operation> operation);

}  // namespace farandole
