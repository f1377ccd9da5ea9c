// SPDX-License-Identifier: Apache-2.0
#include "line_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::trainer {

LineFile::LineFile(std::string option, std::filesystem::path path, bool append)
    : option_(std::move(option)), path_(std::move(path)) {
  if (path_.empty()) return;
  file_.reset(std::fopen(path_.c_str(), append ? "ae" : "we"));
  if (file_) return;
  throw DataError(fmt::format("{} {}: cannot be opened: {}", option_, path_.string(), std::strerror(errno)));
}

void LineFile::write(const std::string& line) {
  std::FILE* const file = file_ ? file_.get() : stdout;
  if (std::fprintf(file, "%s\n", line.c_str()) >= 0 && std::fflush(file) == 0) return;
  throw DataError(fmt::format("{} {}: cannot be written: {}", option_, path_.string(), std::strerror(errno)));
}

long LineFile::end() const {
  return file_ && std::fseek(file_.get(), 0, SEEK_END) == 0 ? std::ftell(file_.get()) : -1;
}

bool LineFile::cut_at(long position) {
  return file_ && position >= 0 && ::ftruncate(::fileno(file_.get()), position) == 0;
}

}  // namespace farandole::trainer
