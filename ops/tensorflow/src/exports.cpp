// SPDX-License-Identifier: Apache-2.0
// Functions that the Python package calls by ctypes.
#include "block_pool.h"
#include "call.h"
#include "gpu_kernels.h"
#include "window_allocator.h"

#define FARANDOLE_TENSORFLOW_EXPORT extern "C" __attribute__((visibility("default")))

/// Identifies the sources and the TensorFlow version of this build. _library.py searches for this text in the file
/// before it loads the library, because a library built for another TensorFlow may load without an error and do
/// nothing.
FARANDOLE_TENSORFLOW_EXPORT const char farandole_tensorflow_build[] = FARANDOLE_TENSORFLOW_BUILD;

/// Makes WindowAllocator TensorFlow's CPU allocator. TensorFlow ends the process if it has allocated anything before.
FARANDOLE_TENSORFLOW_EXPORT void farandole_tensorflow_register_allocator() {
  farandole_tensorflow::register_window_allocator();
}

/// Registers the kernels for GPUs, which pass device memory to the engine. Call it once, before the first op runs.
FARANDOLE_TENSORFLOW_EXPORT void farandole_tensorflow_register_gpu_kernels() {
  farandole_tensorflow::register_gpu_collectives();
  farandole_tensorflow::register_gpu_topology();
}

/// Number of collectives that have begun and not ended.
FARANDOLE_TENSORFLOW_EXPORT int32_t farandole_tensorflow_pending() {
  return farandole_tensorflow::pending_calls();
}

/// Stores the five numbers of BlockPool::Memory in `figures`.
FARANDOLE_TENSORFLOW_EXPORT void farandole_tensorflow_memory(int64_t* figures) {
  const farandole_tensorflow::BlockPool::Memory memory = farandole_tensorflow::BlockPool::instance().memory();
  figures[0] = memory.windows_in_use;
  figures[1] = memory.windows_kept;
  figures[2] = memory.ordinary_in_use;
  figures[3] = memory.ordinary_kept;
  figures[4] = memory.limit;
}
