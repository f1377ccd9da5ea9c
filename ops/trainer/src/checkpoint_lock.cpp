// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "farandole/core/error.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/log.h"
#include "farandole/internal/standard_descriptors.h"

namespace farandole::trainer {
namespace {

constexpr const char* kFile = ".farandole-lock";
// Maximum time to wait for the owner's text: the owner writes the text as soon as it has taken the lock.
constexpr auto kMaxOwnerDelay = std::chrono::seconds(1);
constexpr auto kPollInterval = std::chrono::milliseconds(10);

}  // namespace

CheckpointLock::CheckpointLock() {
  InChildren::add(this);
}

CheckpointLock::CheckpointLock(const std::filesystem::path& directory) : CheckpointLock() {
  const std::filesystem::path file = directory / kFile;
  descriptor_ = above_standard_descriptors(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (descriptor_ < 0) throw DataError(fmt::format("cannot open {}: {}", file.string(), std::strerror(errno)));
  const auto deadline = Clock::now() + kMaxOwnerDelay;
  while (!try_lock(file)) {
    const std::string owner = read_owner();
    if (owner.empty() && Clock::now() < deadline) {
      std::this_thread::sleep_for(kPollInterval);
      continue;
    }
    throw InvalidArgument(fmt::format(
        "{} is in use by another training ({}); wait until it has ended, end it, or choose another directory",
        directory.string(), owner.empty() ? "which does not say its name" : owner));
  }
}

CheckpointLock::~CheckpointLock() {
  InChildren::remove(this);
  if (descriptor_ < 0) return;
  if (locked_) {
    (void)!::ftruncate(descriptor_, 0);  // a failure is harmless: the owner's text is for messages only
    ::flock(descriptor_, LOCK_UN);
  }
  ::close(descriptor_);
}

void CheckpointLock::close_in_child(CheckpointLock& lock) {
  if (lock.descriptor_ >= 0) ::close(lock.descriptor_);
  lock.descriptor_ = -1;
}

bool CheckpointLock::try_lock(const std::filesystem::path& file) {
  int status = 0;
  do {
    status = ::flock(descriptor_, LOCK_EX | LOCK_NB);
  } while (status != 0 && errno == EINTR);
  if (status != 0 && errno == EWOULDBLOCK) return false;
  locked_ = status == 0;
  if (locked_) {
    write_owner();
  } else {
    log(LogLevel::kWarning,
        fmt::format("{} cannot be locked ({}): nothing but you keeps a second training out of that directory",
                    file.string(), std::strerror(errno)));
  }
  return true;
}

void CheckpointLock::write_owner() const {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string owner =
      fmt::format("host {}, pid {}, since {:%FT%TZ}\n", host.data(), ::getpid(),
                  fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
  // On a full disk the lock is held without the owner's text.
  if (::ftruncate(descriptor_, 0) == 0) (void)!::pwrite(descriptor_, owner.data(), owner.size(), 0);
}

std::string CheckpointLock::read_owner() const {
  std::string text(512, ' ');
  const ssize_t count = ::pread(descriptor_, text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  const std::size_t line = text.find('\n');
  if (line == std::string::npos) return {};
  text.resize(line);
  std::replace_if(
      text.begin(), text.end(), [](unsigned char letter) { return std::isprint(letter) == 0; }, '?');
  return text;
}

}  // namespace farandole::trainer
