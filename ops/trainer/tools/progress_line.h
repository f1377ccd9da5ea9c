// SPDX-License-Identifier: Apache-2.0
// Rank 0's progress reports on standard output.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "farandole/internal/deadline.h"
#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// Shows progress: on a terminal a line that is overwritten, elsewhere a plain line per epoch.
class ProgressLine {
 public:
  /// @param global_batch, epochs, max_steps  for images per second and the remaining time
  ProgressLine(std::int64_t global_batch, std::int64_t epochs, std::int64_t max_steps);

  void start(const std::string& text);
  void step(const StepReport& report);
  void epoch(const EpochReport& report);
  void finish(const EpochReport& report);

 private:
  void clear();

  const bool moving_;  // standard output is a terminal
  const std::int64_t global_batch_, epochs_, max_steps_;
  Clock::time_point begin_ = Clock::now(), last_shown_{};
  std::int64_t first_step_ = -1;  // before the first training step of this run
};

}  // namespace farandole::trainer
