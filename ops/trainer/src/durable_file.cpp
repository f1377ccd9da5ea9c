// SPDX-License-Identifier: Apache-2.0
#include "durable_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/standard_descriptors.h"

namespace farandole::trainer {

DurableFile::DurableFile(std::filesystem::path file) : file_(std::move(file)) {
  descriptor_ = above_standard_descriptors(::open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (descriptor_ < 0) fail("create");
}

DurableFile::~DurableFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void DurableFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void DurableFile::commit() {
  if (::fsync(descriptor_) != 0) fail("write");
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) fail("write");
}

void DurableFile::fail(const char* action) const {
  throw DataError(fmt::format("cannot {} {}: {}", action, file_.string(), std::strerror(errno)));
}

void synchronize_directory(const std::filesystem::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synchronized = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int reason = errno;
  if (descriptor >= 0) ::close(descriptor);
  // Some network file systems cannot synchronise a directory, and report EINVAL. Accept that: there is no alternative.
  if (!synchronized && reason != EINVAL) {
    throw DataError(fmt::format("cannot synchronise directory {}: {}", directory.string(), std::strerror(reason)));
  }
}

void make_private_directory(const std::filesystem::path& directory) {
  if (::mkdir(directory.c_str(), 0700) != 0) {
    throw DataError(fmt::format("cannot create {}: {}", directory.string(), std::strerror(errno)));
  }
}

std::vector<std::byte> read_file(const std::filesystem::path& file, std::uintmax_t max_bytes) {
  std::ifstream input(file, std::ios::binary);
  if (!input) {
    const std::string text = fmt::format("cannot open {}: {}", file.string(), std::strerror(errno));
    const bool is_damage = errno == ENOENT || errno == ENOTDIR || errno == EIO;
    is_damage ? throw DataError(text) : throw InvalidArgument(text);
  }
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (error) throw DataError(fmt::format("cannot read {}: {}", file.string(), error.message()));
  if (size > max_bytes)
    throw DataError(fmt::format("{} has {} bytes; at most {} are possible", file.string(), size, max_bytes));
  std::vector<std::byte> bytes;
  try {
    bytes.resize(static_cast<std::size_t>(size));
  } catch (const std::exception&) {
    throw DataError(fmt::format("{} has {} bytes, for which there is no memory", file.string(), size));
  }
  if (!input.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()))) {
    throw DataError(fmt::format("cannot read {}: {}", file.string(), std::strerror(errno)));
  }
  return bytes;
}

}  // namespace farandole::trainer
