// SPDX-License-Identifier: Apache-2.0
// Rank 0's progress reports on standard output.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include "farandole/internal/deadline.h"
#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// Where progress is printed.
struct ProgressOutput {
  std::FILE* file = stdout;
  int terminal = -1;  ///< descriptor of the terminal that shows the file's text; -1: no terminal
};
/// Standard output, and the terminal that shows it.
ProgressOutput standard_output();

/// Shows progress: on a terminal, a line that is overwritten ten times a second; elsewhere, a line every 30 seconds. On
/// a terminal, the overwritten line leaves out its last parts if they do not fit; other lines are wrapped to the width.
class ProgressLine {
 public:
  /// @param options  for images per second and the remaining time
  /// @param shows_steps  false: print nothing between the ends of epochs
  ProgressLine(const TrainerOptions& options, bool shows_steps, ProgressOutput output);

  void start(const std::string& text);
  /// Prints lines as they are, whatever the width of the terminal.
  void table(const std::string& lines);
  void step(const StepReport& report, Clock::time_point now = Clock::now());
  void epoch(const EpochReport& report);
  /// The training ended by a signal. @param checkpoints  directory of the checkpoints; may be empty
  void interrupted(const EpochReport& report, const std::filesystem::path& checkpoints);
  void finish(const EpochReport& report);

 private:
  bool is_moving() const { return output_.terminal >= 0; }
  void print_line(const std::string& text);
  std::string step_text(const StepReport& report, Clock::time_point now, std::size_t columns) const;

  const ProgressOutput output_;
  const bool shows_steps_;
  const std::int64_t global_batch_, epochs_, max_steps_, patience_;
  Clock::time_point begin_{}, last_shown_{};
  std::int64_t first_step_ = -1;  // -1 before the first training step of this run
  double exposed_ = 0;            // seconds of waiting for communication since the first step
};

}  // namespace farandole::trainer
