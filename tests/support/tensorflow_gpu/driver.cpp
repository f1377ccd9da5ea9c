// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace fake_gpu {
namespace {

[[noreturn]] void give_up(const char* what, const char* why) {
  std::fprintf(stderr, "fake GPU of TensorFlow: %s: %s\n", what, why);
  std::abort();
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) give_up(name, "missing in the library that FARANDOLE_CUDA_LIBRARY names");
  function = reinterpret_cast<Function>(symbol);
}

Driver load() {
  const char* const path = std::getenv("FARANDOLE_CUDA_LIBRARY");
  if (path == nullptr) give_up("FARANDOLE_CUDA_LIBRARY", "must name the double of CUDA");
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) give_up("FARANDOLE_CUDA_LIBRARY", dlerror());
  Driver table;
#define FARANDOLE_FIND(name, exported, parameters) find(library, #exported, table.name);
  FARANDOLE_CUDA_FUNCTIONS(FARANDOLE_FIND)
#undef FARANDOLE_FIND
  find(library, "cuStreamSynchronize", table.cuStreamSynchronize);
  find(library, "fake_device_launch", table.launch);
  find(library, "fake_device_stream_address", table.stream_address);
  check(table.cuInit(0), "cuInit");
  return table;
}

}  // namespace

const Driver& driver() {
  static const Driver* const table = new Driver(load());
  return *table;
}

void use_device(int ordinal) {
  CUcontext context = nullptr;
  check(driver().cuDevicePrimaryCtxRetain(&context, ordinal), "cuDevicePrimaryCtxRetain");
  check(driver().cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "fake GPU of TensorFlow: %s failed with %d\n", call, result);
  std::abort();
}

}  // namespace fake_gpu
