// SPDX-License-Identifier: Apache-2.0
// A library for leak_check.cpp to load, so that each thread that calls it gets a block of thread-local memory from
// malloc.
#include <cstdlib>

// With a sanitizer's header the block takes 64 bytes, of which a thread's first lies where a page begins.
struct Kept {
  void* memory;
  char rest[40];
};
thread_local Kept kept;

/// Allocates memory to which only the calling thread's `kept` points.
extern "C" void keep_memory() {
  kept.memory = std::malloc(1000);
}
