// SPDX-License-Identifier: Apache-2.0
// State of one asynchronous collective.
#pragma once

#include <cstdint>
#include <memory>

#include "communicator/collective_operation.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/flight_recorder.h"
#include "operation/work_state.h"

namespace farandole {

/// One collective, from its submission to its end. The queue's mutex guards `operation` and the times.
class CollectiveWork : public Work::State {
 public:
  std::uint64_t sequence = 0;
  Descriptor descriptor;
  FlightRecorder::Id record = 0;
  std::unique_ptr<CollectiveOperation> operation;  ///< null once the collective has ended
  Clock::time_point started{};                     ///< time of the first advance; zero before
  Clock::time_point moved{};                       ///< time of the last advance that made progress
  bool asked = false;                 ///< all peers have been asked how far they are, before the next warning
  Clock::time_point next_question{};  ///< when to ask the awaited ranks again how far they are
};

}  // namespace farandole
