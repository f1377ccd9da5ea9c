// SPDX-License-Identifier: Apache-2.0
// Reports of misuse that the double finds, and errors that tests inject.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace farandole::fake {

/// Prints "fake device misuse: <text>", counts it, and with FAKE_DEVICE_FATAL ends the process.
void report_misuse(const std::string& text);
template <class... Args>
void misuse(fmt::format_string<Args...> format, Args&&... args) {
  report_misuse(fmt::format(format, std::forward<Args>(args)...));
}

/// An exported function, with the number of its calls. Lives until the process ends.
class CallSite {
 public:
  explicit CallSite(const char* name);
  const char* name() const { return name_; }
  /// Counts a call. Returns the error that a test has injected for it, or 0.
  int begin_call();
  static unsigned long calls_of(const std::string& name);

 private:
  const char* const name_;
  std::atomic<std::uint64_t> calls_{0};
  CallSite* next_ = nullptr;  // constant once the site is in the list of all sites
};

/// Counts a call towards the loss of the device (fake_device_lose). Returns true if the device is lost.
bool count_towards_loss();
bool is_device_lost();

/// Counts an item that a stream begins. Returns true if this item must hang (FAKE_DEVICE_STUCK).
bool is_item_stuck();
/// Number of calls of fake_device_restore. Hanging items continue when this number grows.
std::uint32_t restorations();

}  // namespace farandole::fake
