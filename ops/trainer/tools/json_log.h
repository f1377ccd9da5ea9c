// SPDX-License-Identifier: Apache-2.0
// JSON output of --json and --log-steps.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "farandole/trainer/trainer.h"

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
  void write(const std::string& line);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace farandole::trainer
