// SPDX-License-Identifier: Apache-2.0
// Host functions in streams, which stand for programs' own kernels.
#include <cstddef>
#include <memory>
#include <utility>

#include "fake_calls.h"
#include "fake_device.h"
#include "fake_devices.h"
#include "fake_exports.h"

namespace farandole::fake {

extern "C" int fake_device_launch(void* stream, const char* name, void (*run)(void* argument, int is_possible),
                                  void* argument, void (*release)(void* argument), const FakeDeviceAccess* accesses,
                                  std::size_t count) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  Stream* target = nullptr;
  if (const CUresult failed = find_target(name, static_cast<CUstream>(stream), target); failed != CUDA_SUCCESS) {
    return failed;
  }
  Item item{.call = name};
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_write = accesses[i].is_write != 0;
    const Access access{accesses[i].begin, accesses[i].bytes, is_write, is_write ? "output" : "input"};
    if (!item.uses.add(name, target->device.ordinal, Reach::kDevice, access)) return CUDA_ERROR_INVALID_VALUE;
  }
  const std::shared_ptr<void> owner(argument, [release](void* last) {
    if (release != nullptr) release(last);
  });
  item.work = [run, owner](Random& /*random*/) { run(owner.get(), 1); };
  item.skipped = [run, owner] { run(owner.get(), 0); };
  target->device.enqueue(*target, std::move(item));
  return CUDA_SUCCESS;
}

extern "C" void* fake_device_stream_address(const void* address) {
  return const_cast<void*>(stream_address(address));
}

}  // namespace farandole::fake
