// SPDX-License-Identifier: Apache-2.0
// A library that leak_check.cpp loads: for each thread that calls the library, malloc allocates a block of thread-local
// memory.
#include <cstdlib>

// With a sanitizer's header the block takes 64 bytes, and the first block of a thread begins where a page begins.
struct Kept {
  void* memory;
  char rest[40];
};
thread_local Kept kept;

/// Allocates memory to which only the calling thread's `kept` points.
extern "C" void keep_memory() {
  kept.memory = std::malloc(1000);
}
