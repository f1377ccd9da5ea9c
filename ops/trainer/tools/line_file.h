// SPDX-License-Identifier: Apache-2.0
// A text file that an option of farandole-train names.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace farandole::trainer {

/// Writes lines. Each line is in the file when the function returns.
class LineFile {
 public:
  /// @param option  for messages: "--json"   @param path  empty: standard output   @param append  keep the file's
  /// content   @throws DataError  the file cannot be opened
  LineFile(std::string option, std::filesystem::path path, bool append);
  /// @throws DataError  the line cannot be written
  void write(const std::string& line);

  /// Position of the end of the file, in bytes; -1 for standard output, and if the file has no positions.
  long end() const;
  /// Drops everything from `position` on. Returns false if the file does not allow that.
  bool cut_at(long position);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::string option_;
  const std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;  // null: standard output
};

}  // namespace farandole::trainer
