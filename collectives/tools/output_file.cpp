// SPDX-License-Identifier: Apache-2.0
#include "output_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::tools {

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  std::error_code error;
  target_ = std::filesystem::weakly_canonical(path_, error).string();
  if (error || target_.empty()) target_ = path_;
  struct stat status {};
  const bool exists = stat(target_.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) {
    descriptor_ = open(target_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    if (exists && access(target_.c_str(), W_OK) != 0) refuse(errno);
    temporary_ = fmt::format("{}.{}.part", target_, getpid());
    constexpr mode_t kReadableByAll = 0666;  // the umask applies
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                       exists ? status.st_mode & 0777 : kReadableByAll);
  }
  if (descriptor_ < 0) refuse(errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void OutputFile::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) refuse(errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (!temporary_.empty() && (fsync(descriptor_) != 0 || std::rename(temporary_.c_str(), target_.c_str()) != 0))
    refuse(errno);
  const int status = close(std::exchange(descriptor_, -1));
  if (status != 0) refuse(errno);
}

void OutputFile::refuse(int error) const {
  throw DataError(
      fmt::format("The results cannot be written to {}: {}", path_, std::generic_category().message(error)));
}

}  // namespace farandole::tools
