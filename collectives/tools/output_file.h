// SPDX-License-Identifier: Apache-2.0
// The file to which a program writes its results.
#pragma once

#include <string>
#include <string_view>

namespace farandole::tools {

/// Output file of a measurement. Open it before the measurement, so that a wrong path is found at the beginning. An
/// existing regular file keeps its contents until the new contents are complete: the class writes a temporary file in
/// the same directory, and renames the temporary file. Other files (a pipe, /dev/stdout) are written directly.
class OutputFile {
 public:
  /// @throws DataError  the file cannot be opened for writing
  explicit OutputFile(std::string path);
  /// Removes the temporary file if `write` was not called or failed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Writes the whole contents. Call once. @throws DataError  the disk is full, for example
  void write(std::string_view text);

 private:
  [[noreturn]] void refuse(int error) const;

  const std::string path_;
  std::string target_;     // path_ with symbolic links resolved
  std::string temporary_;  // empty if target_ itself is open
  int descriptor_ = -1;
};

}  // namespace farandole::tools
