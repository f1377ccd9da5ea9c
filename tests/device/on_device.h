// SPDX-License-Identifier: Apache-2.0
// Device memory for tests, filled from the host and read back. The memory is a GPU's if there is a GPU, else the
// double's (tests/support/host_device).
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/sdk/device.h"

namespace farandole::test {

/// The device of a rank.
inline Device& device_of(Communicator& ranks) {
  return device_runtime(internals(ranks).settings()).runtime->open(ranks.device().ordinal);
}

/// Copies, and waits until it is done.
inline void copy_now(Device& device, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const StreamView stream(nullptr, device.space());
  device.copy(to, from, bytes, stream);
  device.synchronize(stream);
}

/// A copy of `host` on the rank's device.
inline Buffer to_device(Communicator& ranks, ConstBufferView host) {
  Buffer buffer = ranks.allocate(host.count, host.dtype, ranks.device());
  copy_now(device_of(ranks), buffer.view().data, host.data, host.size_in_bytes());
  return buffer;
}

/// A copy of device memory in ordinary memory.
inline Buffer to_host(Communicator& ranks, ConstBufferView view) {
  Buffer host(view.count, view.dtype);
  copy_now(device_of(ranks), host.view().data, view.data, view.size_in_bytes());
  return host;
}

/// Both in ordinary memory.
inline bool same_bits(ConstBufferView one, ConstBufferView other) {
  const std::size_t bytes = one.size_in_bytes();
  return bytes == other.size_in_bytes() && (bytes == 0 || std::memcmp(one.data, other.data, bytes) == 0);
}

/// Calls a collective by its number, with what it takes of the arguments. A broadcast is of `output`.
void call_collective(Communicator& ranks, Collective collective, BufferView input, BufferView output, ReduceOp op,
                     int root, const std::vector<std::size_t>& counts, const CallOptions& options);

/// Why there are no collectives on device memory here; empty if there are. The same on all ranks.
std::string why_no_device_collectives();
/// Devices that this process sees; 0 where there are none.
int device_count();

/// Runs `body`, which calls no collective, on each rank that has a device: one thread, or the processes of the job.
/// Needs no NCCL. Skips the test, with the reason, where there is neither a device nor the double. The last statement
/// of a test.
void on_each_device(const std::function<void(Communicator&)>& body);

/// Runs `body` on communicators whose ranks have devices: on the processes of the job, else on threads, once for each
/// size that there are devices for. Prints which sizes were left out. Skips the test, with the reason, where that are
/// all, or where there is neither a device nor the double. The last statement of a test.
void for_each_device_group(const std::vector<int>& sizes, const std::function<void(Communicator&)>& body);

/// Skips the test, with the reason, where there is neither a device nor the double: on all ranks alike.
#define FARANDOLE_SKIP_WITHOUT_DEVICES()                                                  \
  do {                                                                                    \
    const std::string no_devices_reason = ::farandole::test::why_no_device_collectives(); \
    if (!no_devices_reason.empty()) GTEST_SKIP() << no_devices_reason;                    \
  } while (false)

}  // namespace farandole::test
