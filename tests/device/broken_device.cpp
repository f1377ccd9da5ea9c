// SPDX-License-Identifier: Apache-2.0
#include "broken_device.h"

#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>

#include "driver_function.h"
#include "fake_device.h"

namespace farandole::test {
namespace {

/// Gate at which the driver's thread waits.
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
  if (auto* const stick = find_in_driver<decltype(fake_device_stick)>("fake_device_stick"); stick != nullptr) {
    stick(stream.handle, 1);
    return;
  }
  auto* const launch = find_in_driver<int(void*, void (*)(void*), void*)>("cuLaunchHostFunc");
  if (launch == nullptr) throw std::runtime_error("the driver has no cuLaunchHostFunc");
  if (const int error = launch(stream.handle, &wait_for_gate, nullptr); error != 0) {
    throw std::runtime_error("cuLaunchHostFunc failed: " + std::to_string(error));
  }
}

StuckStream::~StuckStream() {
  if (auto* const restore = find_in_driver<decltype(fake_device_restore)>("fake_device_restore"); restore != nullptr)
    restore();
  const std::lock_guard guard(gate().mutex);
  gate().is_open = true;
  gate().opened.notify_all();
}

bool inject_into_double(const char* function, unsigned nth, int error) {
  auto* const inject = find_in_driver<decltype(fake_device_inject)>("fake_device_inject");
  if (inject != nullptr) inject(function, nth, error);
  return inject != nullptr;
}

}  // namespace farandole::test
