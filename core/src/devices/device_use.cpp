// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/device_use.h"

#include <chrono>
#include <exception>
#include <optional>
#include <thread>

#include "farandole/internal/deadline.h"

namespace farandole {

bool DeviceUse::wait_for_end(EndpointFaults& faults) {
  if (device_ == nullptr) return true;
  std::optional<Deadline> deadline;
  try {
    while (!end_->is_complete()) {
      faults.poll();
      if (faults.exist() && !deadline) deadline = Deadline::after(std::chrono::seconds(1));
      if (deadline && deadline->passed()) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  } catch (const std::exception&) {
    // The device has failed, and uses no memory any more.
  }
  return true;
}

}  // namespace farandole
