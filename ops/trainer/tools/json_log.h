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
  /// @param file  empty: standard output   @param append  keep the file's content   @throws DataError  the file cannot
  /// be written
  JsonLog(std::filesystem::path file, bool append);

  void step(const StepReport& report);
  void epoch(const EpochReport& report, bool last);

 private:
  LineFile file_;
};

}  // namespace farandole::trainer
