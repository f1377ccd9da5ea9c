// SPDX-License-Identifier: Apache-2.0
// The table of epochs that --csv writes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// Writes a row per epoch to a CSV file, after a row of names. Results that an epoch does not have are empty. The last
/// row may be of an epoch that is not complete.
class CsvLog {
 public:
  /// @param append  add rows to an existing file   @throws DataError  the file cannot be opened or written
  CsvLog(std::filesystem::path file, bool append);
  /// No-op if the last row has the same number of training steps.
  void epoch(const EpochReport& report);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write(const std::string& line);

  const std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
  bool has_names_ = false;  // the row of names is written
  std::int64_t last_ = -1;  // number of training steps of the last row
};

}  // namespace farandole::trainer
