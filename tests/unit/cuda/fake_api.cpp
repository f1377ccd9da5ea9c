// SPDX-License-Identifier: Apache-2.0
#include "fake_api.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <utility>

// The tables' parameters have names, most of which nothing here reads.
#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace farandole::cuda {

namespace {

FakeVendor the_vendor;

CUresult answer(const char* function) {
  const auto found = the_vendor.cuda_results.find(function);
  return found == the_vendor.cuda_results.end() ? CUDA_SUCCESS : found->second;
}

ncclResult_t nccl_answer(const std::string& call) {
  the_vendor.nccl_calls.push_back(call);
  const auto found = the_vendor.nccl_results.find(call.substr(0, call.find(' ')));
  return found == the_vendor.nccl_results.end() ? ncclSuccess : found->second;
}

void set_names(CudaApi& api) {
  api.cuGetErrorName = [](CUresult error, const char** text) -> CUresult {
    *text = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OF_THE_TEST";
    return error == 4711 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  api.cuGetErrorString = [](CUresult error, const char** text) -> CUresult {
    *text = "text of the test";
    return error == 4711 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
}

void set_devices(CudaApi& api) {
  api.cuDeviceGetCount = [](int* count) -> CUresult {
    *count = the_vendor.device_count;
    return answer("cuDeviceGetCount");
  };
  api.cuDeviceGet = [](CUdevice* device, int ordinal) -> CUresult {
    *device = ordinal;
    return answer("cuDeviceGet");
  };
  api.cuDeviceGetName = [](char* name, int bytes, CUdevice device) -> CUresult {
    std::strcpy(name, device == 0 ? "Fake A" : "Fake B");
    return CUDA_SUCCESS;
  };
  api.cuDeviceGetUuid = [](CUuuid* uuid, CUdevice device) -> CUresult {
    for (std::size_t i = 0; i < sizeof uuid->bytes; ++i) uuid->bytes[i] = static_cast<char>(0xf0 + i);
    return CUDA_SUCCESS;
  };
  api.cuDeviceTotalMem = [](std::size_t* bytes, CUdevice) -> CUresult {
    *bytes = the_vendor.device_bytes;
    return CUDA_SUCCESS;
  };
  api.cuDeviceGetAttribute = [](int* value, int attribute, CUdevice) -> CUresult {
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
                                                                         : 132;
    return CUDA_SUCCESS;
  };
  api.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) -> CUresult {
    *context = pointer_of<CUcontext>(0x100 + static_cast<std::uintptr_t>(device));
    return answer("cuDevicePrimaryCtxRetain");
  };
  api.cuCtxGetCurrent = [](CUcontext* context) -> CUresult {
    *context = current_context();
    return CUDA_SUCCESS;
  };
  api.cuCtxSetCurrent = [](CUcontext context) -> CUresult {
    current_context() = context;
    return CUDA_SUCCESS;
  };
  api.cuThreadExchangeStreamCaptureMode = [](int* mode) -> CUresult {
    std::swap(*mode, capture_mode());
    return CUDA_SUCCESS;
  };
}

void set_memory(CudaApi& api) {
  api.cuMemAlloc = [](CUdeviceptr* memory, std::size_t bytes) -> CUresult {
    if (bytes > the_vendor.device_bytes - the_vendor.allocated_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    the_vendor.allocated_bytes += bytes;
    *memory = the_vendor.next_address;
    the_vendor.next_address += bytes;
    the_vendor.blocks[*memory] = bytes;
    return answer("cuMemAlloc");
  };
  api.cuMemFree = [](CUdeviceptr memory) -> CUresult {
    the_vendor.allocated_bytes -= the_vendor.blocks.at(memory);
    the_vendor.blocks.erase(memory);
    return CUDA_SUCCESS;
  };
  api.cuMemGetInfo = [](std::size_t* free_bytes, std::size_t* total_bytes) -> CUresult {
    *free_bytes = the_vendor.device_bytes - the_vendor.allocated_bytes;
    *total_bytes = the_vendor.device_bytes;
    return CUDA_SUCCESS;
  };
  api.cuMemHostAlloc = [](void** memory, std::size_t bytes, unsigned) -> CUresult {
    const CUresult result = answer("cuMemHostAlloc");
    if (result == CUDA_SUCCESS) *memory = std::malloc(bytes);
    return result;
  };
  api.cuMemFreeHost = [](void* memory) -> CUresult {
    std::free(memory);
    return CUDA_SUCCESS;
  };
  api.cuPointerGetAttribute = [](void* value, int attribute, CUdeviceptr memory) -> CUresult {
    if (memory != reinterpret_cast<CUdeviceptr>(the_vendor.device_memory)) return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) *static_cast<unsigned*>(value) = CU_MEMORYTYPE_DEVICE;
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *static_cast<int*>(value) = 1;
    return CUDA_SUCCESS;
  };
}

/// A function of a module is a text with its name, which stays.
void set_kernels(CudaApi& api) {
  api.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char* name) -> CUresult {
    static std::set<std::string> names;
    *function = reinterpret_cast<CUfunction>(const_cast<char*>(names.insert(name).first->c_str()));
    return answer("cuModuleGetFunction");
  };
  api.cuFuncGetAttribute = [](int*, int, CUfunction function) -> CUresult {
    the_vendor.loaded_kernels.insert(reinterpret_cast<const char*>(function));
    return CUDA_SUCCESS;
  };
  api.cuLaunchKernel = [](CUfunction function, unsigned grid_x, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, CUstream, void** parameters, void**) -> CUresult {
    const auto& arguments = *static_cast<const LargestArguments*>(parameters[0]);
    FakeVendor::Launch launch{reinterpret_cast<const char*>(function), grid_x, {}};
    for (std::uint32_t i = 0; i < arguments.task_count; ++i) launch.counts.push_back(arguments.tasks[i].task.count);
    the_vendor.launches.push_back(std::move(launch));
    return answer("cuLaunchKernel");
  };
}

void set_streams(CudaApi& api) {
  api.cuStreamWriteValue32 = [](CUstream, CUdeviceptr memory, std::uint32_t value, unsigned) -> CUresult {
    if (the_vendor.writes_values) *pointer_of<std::uint32_t*>(memory) = value;
    return answer("cuStreamWriteValue32");
  };
  api.cuEventCreate = [](CUevent* event, unsigned flags) -> CUresult {
    the_vendor.event_flags = flags;
    *event = pointer_of<CUevent>(0x300 + static_cast<std::uintptr_t>(++the_vendor.events_made));
    return answer("cuEventCreate");
  };
  api.cuMemcpyAsync = [](CUdeviceptr, CUdeviceptr, std::size_t, CUstream) -> CUresult {
    return answer("cuMemcpyAsync");
  };
  api.cuEventQuery = [](CUevent) -> CUresult {
    the_vendor.mode_of_query = capture_mode();
    ++the_vendor.event_queries;
    return answer("cuEventQuery");
  };
  api.cuEventElapsedTime = [](float* milliseconds, CUevent, CUevent) -> CUresult {
    the_vendor.mode_of_elapsed = capture_mode();
    *milliseconds = the_vendor.elapsed_milliseconds;
    return answer("cuEventElapsedTime");
  };
}

void set_nccl_communicators(NcclApi& api) {
  api.ncclGetErrorString = [](ncclResult_t) -> const char* { return "NCCL's text of the test"; };
  api.ncclGetLastError = [](ncclComm_t) -> const char* { return the_vendor.nccl_last_error.c_str(); };
  api.ncclCommInitRankConfig = [](ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                  ncclConfig_v21400* config) -> ncclResult_t {
    *comm = pointer_of<ncclComm_t>(0x200);
    the_vendor.context_of_nccl = current_context();
    return nccl_answer(fmt::format("ncclCommInitRankConfig {} {} blocking={}", ranks, rank, config->blocking));
  };
  api.ncclCommFinalize = [](ncclComm_t) -> ncclResult_t { return nccl_answer("ncclCommFinalize"); };
  api.ncclCommDestroy = [](ncclComm_t) -> ncclResult_t { return nccl_answer("ncclCommDestroy"); };
  api.ncclCommAbort = [](ncclComm_t) -> ncclResult_t {
    the_vendor.was_aborted = true;
    return nccl_answer("ncclCommAbort");
  };
  api.ncclCommGetAsyncError = [](ncclComm_t, ncclResult_t* error) -> ncclResult_t {
    *error = the_vendor.nccl_asynchronous_error;
    return nccl_answer("ncclCommGetAsyncError");
  };
  api.ncclGroupStart = []() -> ncclResult_t {
    ++the_vendor.group_depth;
    return nccl_answer("ncclGroupStart");
  };
  api.ncclGroupEnd = []() -> ncclResult_t {
    --the_vendor.group_depth;
    if (the_vendor.in_group_end) the_vendor.in_group_end();
    return nccl_answer("ncclGroupEnd");
  };
}

void set_nccl_calls(NcclApi& api) {
  api.ncclSend = [](const void*, std::size_t count, ncclDataType_t type, int peer, ncclComm_t,
                    CUstream) -> ncclResult_t {
    return nccl_answer(fmt::format("ncclSend {} bytes={} type={}", peer, count, static_cast<int>(type)));
  };
  api.ncclRecv = [](void*, std::size_t count, ncclDataType_t type, int peer, ncclComm_t, CUstream) -> ncclResult_t {
    return nccl_answer(fmt::format("ncclRecv {} bytes={} type={}", peer, count, static_cast<int>(type)));
  };
  api.ncclRedOpCreatePreMulSum = [](ncclRedOp_t* op, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence,
                                    ncclComm_t) -> ncclResult_t {
    *op = 5;
    const float factor = type == ncclFloat32 ? *static_cast<float*>(scalar) : 0;
    return nccl_answer(fmt::format("ncclRedOpCreatePreMulSum {} type={} residence={}", factor, static_cast<int>(type),
                                   static_cast<int>(residence)));
  };
  api.ncclRedOpDestroy = [](ncclRedOp_t op, ncclComm_t) -> ncclResult_t {
    return nccl_answer(fmt::format("ncclRedOpDestroy {}", op));
  };
  api.ncclAllReduce = [](const void*, void*, std::size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t,
                         CUstream) -> ncclResult_t {
    return nccl_answer(
        fmt::format("ncclAllReduce {} type={} op={}", count, static_cast<int>(type), static_cast<int>(op)));
  };
  api.ncclReduce = [](const void*, void*, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t,
                      CUstream) -> ncclResult_t {
    return nccl_answer(
        fmt::format("ncclReduce {} type={} op={} root={}", count, static_cast<int>(type), static_cast<int>(op), root));
  };
  api.ncclReduceScatter = [](const void*, void*, std::size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t,
                             CUstream) -> ncclResult_t {
    return nccl_answer(
        fmt::format("ncclReduceScatter {} type={} op={}", count, static_cast<int>(type), static_cast<int>(op)));
  };
  api.ncclBroadcast = [](const void*, void*, std::size_t count, ncclDataType_t type, int root, ncclComm_t,
                         CUstream) -> ncclResult_t {
    return nccl_answer(fmt::format("ncclBroadcast {} type={} root={}", count, static_cast<int>(type), root));
  };
  api.ncclAllGather = [](const void*, void*, std::size_t count, ncclDataType_t type, ncclComm_t,
                         CUstream) -> ncclResult_t {
    return nccl_answer(fmt::format("ncclAllGather {} type={}", count, static_cast<int>(type)));
  };
}

}  // namespace

FakeVendor& vendor() {
  return the_vendor;
}

void reset_vendor() {
  the_vendor = FakeVendor();
  current_context() = nullptr;
  capture_mode() = 0;
}

CUcontext& current_context() {
  thread_local CUcontext context = nullptr;
  return context;
}

int& capture_mode() {
  thread_local int mode = 0;
  return mode;
}

// NOLINTBEGIN(bugprone-macro-parentheses): names and lists of parameters
CudaApi fake_cuda() {
  CudaApi api;
#define FARANDOLE_IDLE(name, exported, parameters) api.name = [] parameters -> CUresult { return answer(#name); };
  FARANDOLE_CUDA_FUNCTIONS(FARANDOLE_IDLE)
#undef FARANDOLE_IDLE
  set_names(api);
  set_devices(api);
  set_memory(api);
  set_kernels(api);
  set_streams(api);
  return api;
}

NcclLibrary fake_nccl() {
  NcclLibrary nccl;
  nccl.version = 22809;
#define FARANDOLE_IDLE(name, parameters) nccl.api.name = [] parameters -> ncclResult_t { return nccl_answer(#name); };
  FARANDOLE_NCCL_FUNCTIONS(FARANDOLE_IDLE)
#undef FARANDOLE_IDLE
  set_nccl_communicators(nccl.api);
  set_nccl_calls(nccl.api);
  return nccl;
}
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace farandole::cuda
