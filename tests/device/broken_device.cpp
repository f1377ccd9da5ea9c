// SPDX-License-Identifier: Apache-2.0
#include "broken_device.h"

#include <dlfcn.h>

#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>

#include "fake_device.h"
#include "farandole/core/settings.h"

namespace farandole::test {
namespace {

/// From the driver that the plug-in uses. The program must not be linked with the double: its functions would then take
/// the place of the driver's in all libraries. Null if the driver has none of this name.
template <class Function>
Function* find(const char* name) {
  const std::string named = Settings::from_environment().cuda_library;
  void* const driver = dlopen(named.empty() ? "libcuda.so.1" : named.c_str(), RTLD_NOW | RTLD_LOCAL);
  return driver == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(driver, name));
}

/// What the driver's thread waits for.
struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool is_open = false;
};
Gate& gate() {
  static auto* const gate = new Gate;  // a thread of the driver may wait until the process ends
  return *gate;
}

void wait_for_gate(void*) {
  std::unique_lock lock(gate().mutex);
  gate().opened.wait(lock, [] { return gate().is_open; });
}

}  // namespace

StuckStream::StuckStream(Device& device, StreamView stream) {
  device.bind_thread();
  if (auto* const stick = find<decltype(fake_device_stick)>("fake_device_stick"); stick != nullptr) {
    stick(stream.handle, 1);
    return;
  }
  auto* const launch = find<int(void*, void (*)(void*), void*)>("cuLaunchHostFunc");
  if (launch == nullptr) throw std::runtime_error("the driver has no cuLaunchHostFunc");
  if (const int error = launch(stream.handle, &wait_for_gate, nullptr); error != 0) {
    throw std::runtime_error("cuLaunchHostFunc failed: " + std::to_string(error));
  }
}

StuckStream::~StuckStream() {
  if (auto* const restore = find<decltype(fake_device_restore)>("fake_device_restore"); restore != nullptr) restore();
  const std::lock_guard guard(gate().mutex);
  gate().is_open = true;
  gate().opened.notify_all();
}

bool inject_into_double(const char* function, unsigned nth, int error) {
  auto* const inject = find<decltype(fake_device_inject)>("fake_device_inject");
  if (inject != nullptr) inject(function, nth, error);
  return inject != nullptr;
}

}  // namespace farandole::test
