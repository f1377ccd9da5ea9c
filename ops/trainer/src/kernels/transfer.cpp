// SPDX-License-Identifier: Apache-2.0
#include "kernels/transfer.h"

#include <cstring>

#include "farandole/sdk/device.h"
#include "kernels/kernels.h"

namespace farandole::trainer {

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
    execution.device_kernels()->device().fill_zero(values.data, bytes, execution.stream());
  }
}

void copy_now(const Execution& execution, BufferView to, ConstBufferView from) {
  const std::size_t bytes = to.size_in_bytes();
  if (bytes == 0) return;
  if (execution.space().is_host()) {
    std::memcpy(to.data, from.data, bytes);
  } else {
    execution.device_kernels()->device().copy(to.data, from.data, bytes, execution.stream());
    finish(execution);
  }
}

void finish(const Execution& execution) {
  if (!execution.space().is_host()) execution.device_kernels()->device().synchronize(execution.stream());
}

}  // namespace farandole::trainer
