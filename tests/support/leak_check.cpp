// SPDX-License-Identifier: Apache-2.0
// usage: leak_check LIBRARY
// For the address sanitizer. Threads hold memory in thread-local variables of a loaded library, as threads of a plug-in
// do, and live until the process ends. The leak checker, which runs last, must follow these variables and find no leak.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <latch>
#include <thread>

int main(int argc, char** argv) {
  void* const library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
  auto* const keep_memory = library == nullptr ? nullptr : reinterpret_cast<void (*)()>(dlsym(library, "keep_memory"));
  if (keep_memory == nullptr) {
    const char* const error = argc == 2 ? dlerror() : "usage: leak_check LIBRARY";
    std::fprintf(stderr, "leak_check: %s\n", error);
    return 1;
  }
  constexpr int kThreads = 4;
  static std::latch holding(kThreads);  // the threads outlive main
  for (int thread = 0; thread < kThreads; ++thread) {
    std::thread([keep_memory] {
      keep_memory();
      holding.count_down();
      for (;;) pause();
    }).detach();
  }
  holding.wait();
  return 0;
}
