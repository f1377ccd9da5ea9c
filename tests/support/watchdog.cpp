// SPDX-License-Identifier: Apache-2.0
#include "watchdog.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace farandole::test {

Watchdog::Watchdog(std::chrono::seconds limit) : limit_(limit), thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::restart(std::string test) {
  const std::lock_guard lock(mutex_);
  test_ = std::move(test);
  since_ = std::chrono::steady_clock::now();
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    changed_.wait_until(lock, since_ + limit_);
    if (stop_ || std::chrono::steady_clock::now() < since_ + limit_) continue;
    std::fprintf(stderr, "watchdog: test %s has run for more than %lld s\n", test_.c_str(),
                 static_cast<long long>(limit_.count()));
    std::abort();
  }
}

}  // namespace farandole::test
