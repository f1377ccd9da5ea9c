// SPDX-License-Identifier: Apache-2.0
// Device streams that a program passes to collectives. The program keeps ownership of its streams.
//
//   ranks.allreduce(buffer.view(), ReduceOp::kSum, {.stream = StreamView(stream, buffer.space())});
#pragma once

#include "farandole/core/buffer.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// View of a device stream, a first-in-first-out queue of work. `handle` is CUDA's `cudaStream_t` (`CUstream` is the
/// same type). A default-constructed view, whose `space` is host memory, means "no stream".
struct StreamView {
  void* handle = nullptr;  ///< null: the device's default stream, which synchronizes with all blocking streams
  MemorySpace space;

  StreamView() = default;
  /// @param where  the device, for example `buffer.space()`
  StreamView(void* stream, MemorySpace where) : handle(stream), space(where) {}
  bool valid() const { return !space.is_host(); }
};

}  // namespace FARANDOLE_API
