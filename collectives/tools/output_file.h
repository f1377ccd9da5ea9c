// SPDX-License-Identifier: Apache-2.0
// A file that a program writes its results to.
#pragma once

#include <string>
#include <string_view>

namespace farandole::tools {

/// Opened before the results are there, so that nobody measures for nothing. What had the name before stays whole until
/// all is written: a regular file is written aside and renamed; others (a pipe, /dev/stdout) are written as they are.
class OutputFile {
 public:
  /// @throws DataError  nothing can be written there
  explicit OutputFile(std::string path);
  /// Leaves nothing behind if `write` was not called, or failed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Once. @throws DataError
  void write(std::string_view text);

 private:
  [[noreturn]] void refuse(int error) const;

  const std::string path_;
  std::string target_;  // path_ without symbolic links
  std::string aside_;   // empty: the target itself is open
  int descriptor_ = -1;
};

}  // namespace farandole::tools
