// SPDX-License-Identifier: Apache-2.0
#include "kernels/transfer.h"

#include <cstring>

#include "farandole/core/error.h"
#include "farandole/sdk/device.h"
#include "kernels/kernels.h"

namespace farandole::trainer {

Device& device_of(const Execution& execution) {
  if (execution.device_kernels() != nullptr) return execution.device_kernels()->device();
  throw InvalidArgument(
      "this execution has memory and a stream of a device, but no kernels for the built-in layers; "
      "TrainerOptions::device makes one that has");
}

Buffer allocate_zeros(const Execution& execution, std::size_t count, DType dtype) {
  if (execution.space().is_host()) return {count, dtype};
  Buffer buffer = allocate(execution.memory(), count, dtype);
  clear(execution, buffer.view());
  return buffer;
}

void clear(const Execution& execution, BufferView values) {
  const std::size_t bytes = values.size_in_bytes();
  if (bytes == 0) return;
  if (execution.space().is_host()) {
    std::memset(values.data, 0, bytes);
  } else {
    device_of(execution).fill_zero(values.data, bytes, execution.stream());
  }
}

void copy_now(const Execution& execution, BufferView to, ConstBufferView from) {
  const std::size_t bytes = to.size_in_bytes();
  if (bytes == 0) return;
  if (execution.space().is_host()) {
    std::memcpy(to.data, from.data, bytes);
  } else {
    device_of(execution).copy(to.data, from.data, bytes, execution.stream());
    finish(execution);
  }
}

void finish(const Execution& execution) {
  if (!execution.space().is_host()) device_of(execution).synchronize(execution.stream());
}

}  // namespace farandole::trainer
