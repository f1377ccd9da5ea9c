// SPDX-License-Identifier: Apache-2.0
// Operations: collectives in progress, as small state machines that any thread can advance.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "farandole/sdk/device.h"
#include "farandole/sdk/transport.h"

namespace farandole {

/// A collective in progress. One thread at a time advances an operation until it is done. An operation that is
/// destroyed before it is done must be withdrawn first.
class Operation {
 public:
  enum class State { kWaiting, kMoved, kDone };
  virtual ~Operation() = default;
  /// Makes all progress that is possible without blocking. @returns  kDone at the end; before, kMoved if there was
  /// progress, kWaiting if not
  /// @throws Error  the collective has failed
  virtual State advance() = 0;
  /// Ranks of the job whose messages this operation waits for.
  virtual std::vector<int> waits_for() const = 0;
  /// Abandons the operation: withdraws its messages. Returns the worst BufferHazard of these messages. If the hazard is
  /// not kNone, the owner must pass the operation to `keep_until_exit`. Never throws.
  virtual BufferHazard withdraw() = 0;
  /// Event that streams can wait for, set once the whole operation is enqueued on a device. Null before that, and for
  /// operations on host memory.
  virtual std::shared_ptr<DeviceEvent> enqueued() const { return nullptr; }
};

/// Withdraws a message; no-op if `message` is null. Resets `message` if the transport no longer uses the message's
/// memory. Otherwise keeps `message`, and the caller must keep the memory. @returns  the hazard of that memory
BufferHazard give_up(std::unique_ptr<Transfer>& message);

/// Keeps an operation until the process ends. Use it if a transport may still use the operation's memory.
void keep_until_exit(std::unique_ptr<Operation> operation);

/// Owner of temporary memory of an operation, not initialised.
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(std::size_t bytes) : bytes_(bytes), memory_(std::make_unique_for_overwrite<std::byte[]>(bytes)) {}
  std::byte* data() const { return memory_.get(); }
  std::size_t size() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace farandole
