// SPDX-License-Identifier: Apache-2.0
// Values that go from one memory to another: between the host and the device of an execution.
#pragma once

#include <cstddef>
#include <vector>

#include "farandole/trainer/execution.h"

namespace farandole {
class Device;
}

namespace farandole::trainer {

/// The device of an execution. @throws InvalidArgument  an execution on a device without kernels
FARANDOLE_API Device& device_of(const Execution& execution);

/// Allocates elements in the memory of the execution, and sets them to 0.
FARANDOLE_API Buffer allocate_zeros(const Execution& execution, std::size_t count, DType dtype);

/// Sets elements in the memory of the execution to 0, in its stream.
FARANDOLE_API void clear(const Execution& execution, BufferView values);

/// Copies after the earlier work of the execution's stream, and waits until it is done. Each buffer lies in host memory
/// or in the memory of the execution. @pre  both have the same type and count
FARANDOLE_API void copy_now(const Execution& execution, BufferView to, ConstBufferView from);

/// Waits until all work of the execution's stream is done.
FARANDOLE_API void finish(const Execution& execution);

/// A copy in host memory of values of the execution's memory.
template <class T>
std::vector<T> to_host(const Execution& execution, VectorView<const T> values) {
  std::vector<T> copy(values.size());
  copy_now(execution, VectorView<T>(copy), values);
  return copy;
}

}  // namespace farandole::trainer
