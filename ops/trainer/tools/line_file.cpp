// SPDX-License-Identifier: Apache-2.0
#include "line_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::trainer {

LineFile::LineFile(std::string option, std::filesystem::path path)
    : option_(std::move(option)), path_(std::move(path)) {
  if (path_.empty()) return;
  file_.reset(std::fopen(path_.c_str(), "ae"));
  if (file_) return;
  throw DataError(fmt::format("{} {}: cannot be opened: {}", option_, path_.string(), std::strerror(errno)));
}

void LineFile::write(const std::string& line) {
  std::FILE* const file = file_ ? file_.get() : stdout;
  if (std::fprintf(file, "%s\n", line.c_str()) >= 0 && std::fflush(file) == 0) return;
  throw DataError(fmt::format("{} {}: cannot be written: {}", option_, path_.string(), std::strerror(errno)));
}

void LineFile::drop_from(const std::function<bool(const std::string& line)>& is_dropped) {
  if (!file_ || !std::filesystem::is_regular_file(path_)) return;
  std::ifstream lines(path_);
  long kept = 0;
  for (std::string line; std::getline(lines, line) && !lines.eof() && !is_dropped(line);) {
    kept += static_cast<long>(line.size()) + 1;
  }
  cut_at(kept);
}

long LineFile::end() const {
  return file_ && std::fseek(file_.get(), 0, SEEK_END) == 0 ? std::ftell(file_.get()) : -1;
}

bool LineFile::cut_at(long position) {
  return file_ && position >= 0 && ::ftruncate(::fileno(file_.get()), position) == 0;
}

}  // namespace farandole::trainer
