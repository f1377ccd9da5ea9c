// SPDX-License-Identifier: Apache-2.0
// Output file of a program's results.
#pragma once

#include <string>
#include <string_view>

namespace farandole::tools {

/// Output file of a measurement. Open it before the measurement, so that a wrong path fails at once. An existing
/// regular file keeps its contents until the new contents are complete: `write` writes a temporary file in the same
/// directory, then renames it. Writes directly to other files (a pipe, /dev/stdout).
class OutputFile {
 public:
  /// @throws DataError  the file cannot be opened for writing
  explicit OutputFile(std::string path);
  /// Removes the temporary file if `write` was not called or has failed.
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
