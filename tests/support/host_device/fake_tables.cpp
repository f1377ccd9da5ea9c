// SPDX-License-Identifier: Apache-2.0
#include "fake_tables.h"

#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace farandole::fake {

namespace {

void* open_library(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }
  return library;
}

template <class Pointer>
void find_function(void* library, const char* name, Pointer& function) {
  function = reinterpret_cast<Pointer>(dlsym(library, name));
  if (function != nullptr) return;
  std::fprintf(stderr, "the double has no %s\n", name);
  std::abort();
}

}  // namespace

const ProgramCudaApi& cuda_api() {
  static const ProgramCudaApi api = [] {
    ProgramCudaApi table;
    void* const library = open_library(FARANDOLE_FAKE_CUDA);
#define FARANDOLE_FIND(name, exported, parameters) find_function(library, #exported, table.name);
    FARANDOLE_CUDA_FUNCTIONS(FARANDOLE_FIND)
    FARANDOLE_PROGRAM_CUDA_FUNCTIONS(FARANDOLE_FIND)
#undef FARANDOLE_FIND
    return table;
  }();
  return api;
}

const NcclApi& nccl_api() {
  static const NcclApi api = [] {
    NcclApi table;
    void* const library = open_library(FARANDOLE_FAKE_NCCL);
    find_function(library, "ncclGetErrorString", table.ncclGetErrorString);
    find_function(library, "ncclGetLastError", table.ncclGetLastError);
#define FARANDOLE_FIND(name, parameters) find_function(library, #name, table.name);
    FARANDOLE_NCCL_FUNCTIONS(FARANDOLE_FIND)
#undef FARANDOLE_FIND
    return table;
  }();
  return api;
}

CUcontext use_device(int ordinal) {
  CUcontext context = nullptr;
  EXPECT_EQ(cuda_api().cuDevicePrimaryCtxRetain(&context, ordinal), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuCtxSetCurrent(context), CUDA_SUCCESS);
  return context;
}

CUstream make_stream(unsigned flags) {
  CUstream stream = nullptr;
  EXPECT_EQ(cuda_api().cuStreamCreate(&stream, flags), CUDA_SUCCESS);
  return stream;
}

CUevent make_event() {
  CUevent event = nullptr;
  EXPECT_EQ(cuda_api().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  return event;
}

CUfunction find_kernel_by_name(const char* name) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  EXPECT_EQ(cuda_api().cuModuleLoadData(&module, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
  return function;
}

LargestArguments arguments_of(const std::vector<KernelTask>& tasks, std::size_t element_bytes) {
  LargestArguments arguments{};
  for (const KernelTask& task : tasks) add_task(arguments, task, element_bytes);
  return arguments;
}

CUresult launch(CUfunction function, LargestArguments arguments, CUstream stream) {
  std::array<void*, 1> parameters{&arguments};
  return cuda_api().cuLaunchKernel(function, 2, 1, 1, kBlockThreads, 1, 1, 0, stream, parameters.data(), nullptr);
}

void on_ranks(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&body, rank] {
      use_device(rank);
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

ncclUniqueId make_nccl_id() {
  ncclUniqueId id{};
  EXPECT_EQ(nccl_api().ncclGetUniqueId(&id), ncclSuccess);
  return id;
}

ncclComm_t join(const ncclUniqueId& id, int size, int rank) {
  ncclComm_t comm = nullptr;
  ncclConfig_v21400 config;
  config.blocking = 1;
  EXPECT_EQ(nccl_api().ncclCommInitRankConfig(&comm, size, id, rank, &config), ncclSuccess);
  return comm;
}

void destroy(ncclComm_t comm) {
  EXPECT_EQ(nccl_api().ncclCommDestroy(comm), ncclSuccess);
}

void FakeDeviceTest::SetUp() {
  set("FAKE_DEVICE_FATAL", "0");
  set("FAKE_NCCL_MISMATCH_HANGS", "0");
  set("FAKE_DEVICE_FREE_SYNCS", "0");  // freeing must not wait for the streams that these tests make hang
  ASSERT_EQ(cuda_api().cuInit(0), CUDA_SUCCESS);
  use_device(0);
}

void FakeDeviceTest::TearDown() {
  fake_device_restore();
  EXPECT_EQ(reports(), "");
  for (const char* const option : {"FAKE_NCCL_SHARED_DEVICE", "FAKE_NCCL_ABORT_HANGS"}) {
    set(option, "0");
  }
  set("FAKE_NCCL_BUFFERED_PERCENT", "50");
  set("FAKE_DEVICE_FREE_SYNCS", "1");
  set("FAKE_NCCL_MISMATCH_HANGS", "1");
  set("FAKE_DEVICE_STALL_S", "20");
}

std::string FakeDeviceTest::reports() {
  std::string all;
  for (std::array<char, 512> text{}; fake_device_take_misuse(text.data(), text.size()) != 0;) {
    all += std::string(text.data()) + "\n";
  }
  return all;
}

}  // namespace farandole::fake
