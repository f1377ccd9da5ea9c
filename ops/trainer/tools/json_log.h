// SPDX-License-Identifier: Apache-2.0
// JSON output of --json and --log-steps.
#pragma once

#include <filesystem>

#include "farandole/trainer/trainer.h"
#include "line_file.h"

namespace farandole::trainer {

/// Writes JSON lines to a file. Each line is in the file when the function returns.
class JsonLog {
 public:
  /// @param file  empty: standard output   @throws DataError  the file cannot be opened
  explicit JsonLog(std::filesystem::path file);

  /// Drops what an earlier training has written after this training step; 0: everything.
  void begin(std::int64_t training_steps);

  void step(const StepReport& report);
  void epoch(const EpochReport& report, bool last);

 private:
  LineFile file_;
};

}  // namespace farandole::trainer
