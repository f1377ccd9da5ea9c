// SPDX-License-Identifier: Apache-2.0
#include "fake_faults.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <sstream>
#include <string_view>
#include <vector>

#include "fake_device.h"
#include "fake_options.h"

namespace farandole::fake {

namespace {

// Removes the version from a name: cuda.h maps some names to later versions, such as cuMemAlloc to cuMemAlloc_v2.
std::string_view without_version(std::string_view name) {
  constexpr std::string_view kVersion = "_v2";
  return name.ends_with(kVersion) ? name.substr(0, name.size() - kVersion.size()) : name;
}

struct InjectedError {
  std::string function;
  unsigned calls_left;  // 0: every call fails
  int error;
};

/// Reports and injected errors of this process. Threads of streams use it only to report.
struct Faults {
  Faults();
  void inject(std::string_view function, unsigned nth, int error);
  int take_error(const char* function);

  std::mutex mutex;  // guards reports and injected
  std::deque<std::string> reports;
  std::vector<InjectedError> injected;
  std::atomic<bool> has_injected{false};  // so that calls without injected errors take no lock, which would order them
  std::atomic<unsigned long> misuses{0};
  std::atomic<std::int64_t> calls_to_loss{-1};  // negative: never lost; 0: lost
  std::atomic<std::int64_t> items_begun{0};
  std::atomic<std::uint32_t> restorations{0};
  std::atomic<CallSite*> sites{nullptr};
};

Faults& faults() {
  static auto* const all = new Faults;  // streams use it until the process ends
  return *all;
}

Faults::Faults() : calls_to_loss(option(Option::kLost)) {
  const char* const list = std::getenv("FAKE_DEVICE_INJECT");
  std::istringstream entries(list == nullptr ? "" : list);
  for (std::string entry; std::getline(entries, entry, ',');) {
    std::istringstream parts(entry);
    std::string function;
    unsigned nth = 0;
    int error = 0;
    char colon = 0;
    if (!std::getline(parts, function, ':') || !(parts >> nth >> colon >> error)) {
      const std::string text = fmt::format("fake device: FAKE_DEVICE_INJECT: '{}' is no FUNCTION:NTH:ERROR\n", entry);
      std::fputs(text.c_str(), stderr);
      std::abort();
    }
    inject(function, nth, error);
  }
}

void Faults::inject(std::string_view function, unsigned nth, int error) {
  const std::lock_guard guard(mutex);
  injected.push_back({std::string(without_version(function)), nth, error});
  has_injected = true;
}

int Faults::take_error(const char* function) {
  if (!has_injected.load(std::memory_order_relaxed)) return 0;
  const std::lock_guard guard(mutex);
  int error = 0;
  for (auto entry = injected.begin(); entry != injected.end();) {
    const bool is_meant = entry->function == without_version(function);
    if (is_meant && entry->calls_left <= 1 && error == 0) error = entry->error;
    if (is_meant && entry->calls_left > 0 && --entry->calls_left == 0) {
      entry = injected.erase(entry);
    } else {
      ++entry;
    }
  }
  return error;
}

}  // namespace

void report_misuse(const std::string& text) {
  faults().misuses.fetch_add(1, std::memory_order_relaxed);
  const std::string line = fmt::format("fake device misuse: {}\n", text);
  // One write, so that lines of several processes stay whole.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  if (option(Option::kFatal) != 0) std::abort();
  const std::lock_guard guard(faults().mutex);
  faults().reports.push_back(text);
}

CallSite::CallSite(const char* name) : name_(name), next_(faults().sites.load()) {
  while (!faults().sites.compare_exchange_weak(next_, this)) {
  }
}

int CallSite::begin_call() {
  calls_.fetch_add(1, std::memory_order_relaxed);
  return faults().take_error(name_);
}

unsigned long CallSite::calls_of(const std::string& name) {
  unsigned long calls = 0;
  for (const CallSite* site = faults().sites.load(); site != nullptr; site = site->next_) {
    if (without_version(site->name_) == without_version(name)) calls += site->calls_.load(std::memory_order_relaxed);
  }
  return calls;
}

bool count_towards_loss() {
  std::int64_t left = faults().calls_to_loss.load(std::memory_order_relaxed);
  while (left > 0 && !faults().calls_to_loss.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
  }
  return left == 0;
}

bool is_device_lost() {
  return faults().calls_to_loss.load(std::memory_order_relaxed) == 0;
}

bool is_item_stuck() {
  const std::int64_t stuck = option(Option::kStuck);
  return stuck != 0 && faults().items_begun.fetch_add(1, std::memory_order_relaxed) + 1 == stuck;
}

std::uint32_t restorations() {
  return faults().restorations.load(std::memory_order_relaxed);
}

}  // namespace farandole::fake

using farandole::fake::CallSite;
using farandole::fake::faults;

extern "C" unsigned long fake_device_misuse_count(void) {
  return faults().misuses.load(std::memory_order_relaxed);
}

extern "C" int fake_device_take_misuse(char* text, size_t bytes) {
  const std::lock_guard guard(faults().mutex);
  if (faults().reports.empty() || bytes == 0) return 0;
  const std::string& report = faults().reports.front();
  const size_t length = std::min(report.size(), bytes - 1);
  std::memcpy(text, report.data(), length);
  text[length] = '\0';
  faults().reports.pop_front();
  return 1;
}

extern "C" void fake_device_inject(const char* function, unsigned nth, int error) {
  faults().inject(function, nth, error);
}

extern "C" void fake_device_lose(unsigned calls) {
  faults().calls_to_loss.store(calls, std::memory_order_relaxed);
}

extern "C" void fake_device_restore(void) {
  const std::lock_guard guard(faults().mutex);
  faults().injected.clear();
  faults().has_injected = false;
  faults().calls_to_loss.store(-1, std::memory_order_relaxed);
  fake_device_set("FAKE_DEVICE_STUCK", "0");
  faults().restorations.fetch_add(1, std::memory_order_relaxed);
}

extern "C" unsigned long fake_device_calls(const char* function) {
  return CallSite::calls_of(function);
}
