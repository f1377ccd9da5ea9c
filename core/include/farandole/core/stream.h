// SPDX-License-Identifier: Apache-2.0
// Streams of devices, as views: Farandole owns none that a program passes to it.
#pragma once

#include "farandole/core/buffer.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// A queue of work on a device: what is enqueued later waits for what is in it. `handle` is CUDA's `cudaStream_t`
/// (or `CUstream`, which is the same). A view with `space` of the host is no stream.
struct StreamView {
  void* handle = nullptr;  ///< null: the device's default stream, which waits for all other ordinary ones
  MemorySpace space;

  StreamView() = default;
  /// @param where  the device, for example `buffer.space()`
  StreamView(void* stream, MemorySpace where) : handle(stream), space(where) {}
  bool valid() const { return !space.is_host(); }
};

}  // namespace FARANDOLE_API
