// SPDX-License-Identifier: Apache-2.0
// State of one asynchronous collective.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "communicator/collective_operation.h"
#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/internal/flight_recorder.h"
#include "farandole/internal/progress.h"

namespace farandole {

class WorkQueue;

/// Error of a collective. Kept as a value, because each waiting thread throws its own exception.
struct Failure {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
};

/// One collective, from its submission to its end. The queue's mutex guards `operation` and the times. `done` is set
/// last, with release; waiting threads load it with acquire, so they see the result and `failure`.
class Work::State {
 public:
  std::shared_ptr<WorkQueue> queue;
  std::uint64_t sequence = 0;
  Descriptor descriptor;
  FlightRecorder::Id record = 0;
  std::unique_ptr<CollectiveOperation> operation;  ///< null once the collective has ended
  std::optional<Failure> failure;
  std::atomic<bool> done{false};
  std::function<void(const std::optional<Failure>&)> on_done;  ///< see Work::on_done; the queue's mutex guards it
  Clock::time_point started{};                                 ///< time of the first advance; zero before
  Clock::time_point moved{};                                   ///< time of the last advance that made progress
  bool asked = false;                 ///< all peers have been asked how far they are, before the next warning
  Clock::time_point next_question{};  ///< when to ask the awaited ranks again how far they are
};

}  // namespace farandole
