// SPDX-License-Identifier: Apache-2.0
#include "operation/operation.h"

#include <mutex>
#include <utility>

namespace farandole {

BufferHazard give_up(std::unique_ptr<Transfer>& message) {
  const BufferHazard hazard = message ? message->withdraw() : BufferHazard::kNone;
  if (hazard == BufferHazard::kNone) message.reset();
  return hazard;
}

void keep_until_exit(std::unique_ptr<Operation> operation) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::unique_ptr<Operation>>;  // never destroyed
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(operation));
}

}  // namespace farandole
