// SPDX-License-Identifier: Apache-2.0
// The functions of CUDA's driver API that Farandole calls, as a table of function pointers that is filled at run time:
// the plug-in is built without CUDA's headers, and can be loaded on machines without a driver. Names, numbers and
// layouts are copied from cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace farandole::cuda {

// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses): CUDA's names
using CUresult = int;
using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;
struct CUuuid {
  char bytes[16];
};

inline constexpr CUresult CUDA_SUCCESS = 0;
inline constexpr CUresult CUDA_ERROR_INVALID_VALUE = 1;
inline constexpr CUresult CUDA_ERROR_OUT_OF_MEMORY = 2;
inline constexpr CUresult CUDA_ERROR_NO_DEVICE = 100;
inline constexpr CUresult CUDA_ERROR_NOT_FOUND = 500;
inline constexpr CUresult CUDA_ERROR_NOT_READY = 600;
inline constexpr CUresult CUDA_ERROR_ILLEGAL_ADDRESS = 700;
inline constexpr CUresult CUDA_ERROR_NOT_SUPPORTED = 801;
inline constexpr CUresult CUDA_ERROR_SYSTEM_NOT_READY = 802;
inline constexpr CUresult CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900;
inline constexpr CUresult CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906;

inline constexpr int CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16;
inline constexpr int CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75;
inline constexpr int CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76;
inline constexpr int CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2;
inline constexpr int CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9;
inline constexpr unsigned CU_MEMORYTYPE_HOST = 1;
inline constexpr unsigned CU_MEMORYTYPE_DEVICE = 2;
inline constexpr unsigned CU_STREAM_NON_BLOCKING = 1;
inline constexpr unsigned CU_EVENT_DEFAULT = 0;
inline constexpr unsigned CU_EVENT_DISABLE_TIMING = 2;
/// The value is written after a memory barrier: a reader of the value also sees the effects of earlier work in the
/// stream.
inline constexpr unsigned CU_STREAM_WRITE_VALUE_DEFAULT = 0;
inline constexpr unsigned CU_MEMHOSTALLOC_PORTABLE = 1;
inline constexpr int CU_STREAM_CAPTURE_STATUS_NONE = 0;
inline constexpr int CU_STREAM_CAPTURE_STATUS_ACTIVE = 1;
inline constexpr int CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1;
inline constexpr int CU_STREAM_CAPTURE_MODE_RELAXED = 2;

// X(name, exported name, parameters)
#define FARANDOLE_CUDA_FUNCTIONS(X)                                                                                  \
  X(cuInit, cuInit, (unsigned flags))                                                                                \
  X(cuDriverGetVersion, cuDriverGetVersion, (int* version))                                                          \
  X(cuGetErrorName, cuGetErrorName, (CUresult error, const char** text))                                             \
  X(cuGetErrorString, cuGetErrorString, (CUresult error, const char** text))                                         \
  X(cuDeviceGetCount, cuDeviceGetCount, (int* count))                                                                \
  X(cuDeviceGet, cuDeviceGet, (CUdevice * device, int ordinal))                                                      \
  X(cuDeviceGetName, cuDeviceGetName, (char* name, int bytes, CUdevice device))                                      \
  X(cuDeviceGetUuid, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                                           \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, (std::size_t * bytes, CUdevice device))                                   \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, (int* value, int attribute, CUdevice device))                        \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                      \
  X(cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext context))                                                           \
  X(cuCtxGetCurrent, cuCtxGetCurrent, (CUcontext * context))                                                         \
  X(cuMemGetInfo, cuMemGetInfo_v2, (std::size_t * free_bytes, std::size_t * total_bytes))                            \
  X(cuModuleLoadData, cuModuleLoadData, (CUmodule * module, const void* image))                                      \
  X(cuModuleGetFunction, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name))            \
  X(cuFuncGetAttribute, cuFuncGetAttribute, (int* value, int attribute, CUfunction function))                        \
  X(cuLaunchKernel, cuLaunchKernel,                                                                                  \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,     \
     unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters, void** extra))                     \
  X(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr * memory, std::size_t bytes))                                            \
  X(cuMemFree, cuMemFree_v2, (CUdeviceptr memory))                                                                   \
  X(cuMemHostAlloc, cuMemHostAlloc, (void** memory, std::size_t bytes, unsigned flags))                              \
  X(cuMemFreeHost, cuMemFreeHost, (void* memory))                                                                    \
  X(cuMemcpyAsync, cuMemcpyAsync, (CUdeviceptr target, CUdeviceptr source, std::size_t bytes, CUstream stream))      \
  X(cuMemsetD8Async, cuMemsetD8Async, (CUdeviceptr memory, unsigned char value, std::size_t bytes, CUstream stream)) \
  X(cuStreamCreate, cuStreamCreate, (CUstream * stream, unsigned flags))                                             \
  X(cuStreamDestroy, cuStreamDestroy_v2, (CUstream stream))                                                          \
  X(cuStreamWriteValue32, cuStreamWriteValue32_v2,                                                                   \
    (CUstream stream, CUdeviceptr memory, std::uint32_t value, unsigned flags))                                      \
  X(cuStreamQuery, cuStreamQuery, (CUstream stream))                                                                 \
  X(cuStreamIsCapturing, cuStreamIsCapturing, (CUstream stream, int* status))                                        \
  X(cuStreamBeginCapture, cuStreamBeginCapture_v2, (CUstream stream, int mode))                                      \
  X(cuStreamEndCapture, cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                      \
  X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags,                                                        \
    (CUgraphExec * executable, CUgraph graph, unsigned long long flags))                                             \
  X(cuGraphLaunch, cuGraphLaunch, (CUgraphExec executable, CUstream stream))                                         \
  X(cuGraphDestroy, cuGraphDestroy, (CUgraph graph))                                                                 \
  X(cuGraphExecDestroy, cuGraphExecDestroy, (CUgraphExec executable))                                                \
  X(cuStreamWaitEvent, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                          \
  X(cuEventCreate, cuEventCreate, (CUevent * event, unsigned flags))                                                 \
  X(cuEventDestroy, cuEventDestroy_v2, (CUevent event))                                                              \
  X(cuEventRecord, cuEventRecord, (CUevent event, CUstream stream))                                                  \
  X(cuEventQuery, cuEventQuery, (CUevent event))                                                                     \
  X(cuEventElapsedTime, cuEventElapsedTime, (float* milliseconds, CUevent begin, CUevent end))                       \
  X(cuPointerGetAttribute, cuPointerGetAttribute, (void* value, int attribute, CUdeviceptr memory))                  \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int* mode))

#define FARANDOLE_MEMBER(name, exported, parameters) CUresult(*name) parameters = nullptr;
struct CudaApi {
  FARANDOLE_CUDA_FUNCTIONS(FARANDOLE_MEMBER)
};
#undef FARANDOLE_MEMBER
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace farandole::cuda
