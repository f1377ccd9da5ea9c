// SPDX-License-Identifier: Apache-2.0
// A text file that an option of farandole-train names.
#pragma once

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace farandole::trainer {

/// Writes lines. Each line is in the file when the function returns.
class LineFile {
 public:
  /// Keeps what the file holds. @param option  for messages: "--json"   @param path  empty: standard output
  /// @throws DataError  the file cannot be opened
  LineFile(std::string option, std::filesystem::path path);
  /// @throws DataError  the line cannot be written
  void write(const std::string& line);

  /// Drops the first line for which `is_dropped` returns true, all lines after it, and a last line without an end.
  /// No-op for standard output and for files that do not allow that, such as pipes.
  void drop_from(const std::function<bool(const std::string& line)>& is_dropped);
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
