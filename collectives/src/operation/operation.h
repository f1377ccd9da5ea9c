// SPDX-License-Identifier: Apache-2.0
// Operations: collectives in progress, as small state machines that any thread advances.
#pragma once

#include <memory>
#include <vector>

#include "farandole/sdk/device.h"
#include "farandole/sdk/transport.h"

namespace farandole {

/// A collective in progress. One thread at a time advances an operation until it is done. An operation that is
/// abandoned before must be withdrawn before it is destroyed.
class Operation {
 public:
  enum class State { kWaiting, kMoved, kDone };
  virtual ~Operation() = default;
  /// Makes all progress that is possible without blocking. @returns  kMoved if there was progress, kWaiting if not
  /// @throws Error  the collective has failed
  virtual State advance() = 0;
  /// Ranks of the job whose messages this operation waits for.
  virtual std::vector<int> waits_for() const = 0;
  /// Abandons the operation: withdraws its messages. Returns the worst that may still happen to the memory of a
  /// message; if that is anything but kNone, the owner must pass the operation to `keep_until_exit`. Never throws.
  virtual BufferHazard withdraw() = 0;
  /// Event for streams to wait for, once the whole operation is enqueued on a device; null before, and on host memory.
  virtual std::shared_ptr<DeviceEvent> enqueued() const { return nullptr; }
};

/// Withdraws a message; no-op if `message` is null. Resets `message` if its memory is safe afterwards; otherwise the
/// message stays, and its memory must stay. @returns  what may still happen to that memory
BufferHazard give_up(std::unique_ptr<Transfer>& message);

/// Keeps an operation, and so its memory, which a transport may still use, until the process ends.
void keep_until_exit(std::unique_ptr<Operation> operation);

}  // namespace farandole
