// SPDX-License-Identifier: Apache-2.0
#include "vendor_calls.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace farandole::figures {
namespace {

void* load(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return library;
}

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(fmt::format("the library has no {}", name));
}

cuda::NcclApi load_nccl(const Settings& settings) {
  void* const library = load(settings.devices.nccl_library.empty() ? "libnccl.so.2" : settings.devices.nccl_library);
  cuda::NcclApi api;
#define FARANDOLE_FIND(name, parameters) find(library, #name, api.name);
  FARANDOLE_NCCL_FUNCTIONS(FARANDOLE_FIND)
#undef FARANDOLE_FIND
  return api;
}

cuda::CudaApi load_driver() {
  const char* const named = std::getenv("FARANDOLE_CUDA_LIBRARY");
  void* const library = load(named != nullptr && *named != '\0' ? named : "libcuda.so.1");
  cuda::CudaApi api;
#define FARANDOLE_FIND(name, exported, parameters) find(library, #exported, api.name);
  FARANDOLE_CUDA_FUNCTIONS(FARANDOLE_FIND)
#undef FARANDOLE_FIND
  return api;
}

void check(cuda::ncclResult_t result, const char* what) {
  if (result != cuda::ncclSuccess) throw std::runtime_error(fmt::format("{} returned {}", what, result));
}

cuda::CUstream handle_of(StreamView stream) {
  return static_cast<cuda::CUstream>(stream.handle);
}

}  // namespace

const cuda::CudaApi& driver() {
  static const cuda::CudaApi api = load_driver();
  return api;
}

void check_driver(cuda::CUresult result, const char* what) {
  if (result != cuda::CUDA_SUCCESS) throw std::runtime_error(fmt::format("{} returned {}", what, result));
}

cuda::ncclUniqueId NcclAlone::make_id(const Settings& settings) {
  cuda::ncclUniqueId id;
  check(load_nccl(settings).ncclGetUniqueId(&id), "ncclGetUniqueId");
  return id;
}

NcclAlone::NcclAlone(const Settings& settings, const cuda::ncclUniqueId& id, int rank, int size)
    : api_(load_nccl(settings)) {
  cuda::ncclConfig_v21400 config;
  check(api_.ncclCommInitRankConfig(&communicator_, size, id, rank, &config), "ncclCommInitRankConfig");
}

NcclAlone::~NcclAlone() {
  api_.ncclCommDestroy(communicator_);
}

void NcclAlone::exchange(void* output, const void* input, std::size_t bytes, int peer, StreamView stream) {
  check(api_.ncclGroupStart(), "ncclGroupStart");
  check(api_.ncclSend(input, bytes, cuda::ncclUint8, peer, communicator_, handle_of(stream)), "ncclSend");
  check(api_.ncclRecv(output, bytes, cuda::ncclUint8, peer, communicator_, handle_of(stream)), "ncclRecv");
  check(api_.ncclGroupEnd(), "ncclGroupEnd");
}

void NcclAlone::allreduce(void* values, std::size_t count, StreamView stream) {
  check(api_.ncclAllReduce(values, values, count, cuda::ncclFloat32, cuda::ncclSum, communicator_, handle_of(stream)),
        "ncclAllReduce");
}

}  // namespace farandole::figures
