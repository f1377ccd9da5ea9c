// SPDX-License-Identifier: Apache-2.0
// The table of epochs that --csv writes.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// Writes a row per epoch to a CSV file, after a row of names. Results that an epoch does not have are empty.
class CsvLog {
 public:
  /// @param append  add rows to an existing file   @throws DataError  the file cannot be opened or written
  CsvLog(std::filesystem::path file, bool append);
  void epoch(const EpochReport& report);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write(const std::string& line);

  const std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
  bool has_names_ = false;  // the row of names is written
};

}  // namespace farandole::trainer
