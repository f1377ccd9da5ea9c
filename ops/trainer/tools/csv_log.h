// SPDX-License-Identifier: Apache-2.0
// The table of epochs that --csv writes.
#pragma once

#include <filesystem>
#include <optional>

#include "farandole/trainer/trainer.h"
#include "line_file.h"

namespace farandole::trainer {

/// Writes a row per epoch to a CSV file, after a row of names. Results that an epoch does not have are empty. The last
/// row may be of an epoch that is not complete.
class CsvLog {
 public:
  /// @throws DataError  the file cannot be opened
  explicit CsvLog(std::filesystem::path file);

  /// Drops the rows that an earlier training has written after this training step; 0: everything.
  void begin(std::int64_t training_steps);
  /// No-op if the last row has the same number of training steps, but adds a test result that the row lacks.
  void epoch(const EpochReport& report);

 private:
  void write_row(const EpochReport& report);

  LineFile file_;
  bool has_names_ = false;           // the row of names is written
  std::optional<EpochReport> last_;  // of the last row
  long row_begin_ = -1;              // position of the last row in the file; -1: unknown
};

}  // namespace farandole::trainer
