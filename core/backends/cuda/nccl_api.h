// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that Farandole calls, as a table of function pointers that is filled at run time. Names,
// numbers and layouts are copied from nccl.h.
#pragma once

#include <climits>
#include <cstddef>

#include "cuda/cuda_api.h"

namespace farandole::cuda {

// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses): NCCL's names
using ncclComm_t = struct ncclComm*;
struct ncclUniqueId {
  char internal[128];
};
using ncclResult_t = int;
inline constexpr ncclResult_t ncclSuccess = 0;
inline constexpr ncclResult_t ncclUnhandledCudaError = 1;
inline constexpr ncclResult_t ncclSystemError = 2;
inline constexpr ncclResult_t ncclInternalError = 3;
inline constexpr ncclResult_t ncclInvalidArgument = 4;
inline constexpr ncclResult_t ncclInvalidUsage = 5;
inline constexpr ncclResult_t ncclRemoteError = 6;
inline constexpr ncclResult_t ncclInProgress = 7;

enum ncclDataType_t : int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
};
/// Values of 5 and more are reductions that ncclRedOpCreatePreMulSum has made.
using ncclRedOp_t = int;
inline constexpr ncclRedOp_t ncclSum = 0;
inline constexpr ncclRedOp_t ncclProd = 1;
inline constexpr ncclRedOp_t ncclMax = 2;
inline constexpr ncclRedOp_t ncclMin = 3;
enum ncclScalarResidence_t : int { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 };

/// ncclConfig_t as of NCCL 2.14, the first version with such a structure. Newer versions accept this shorter structure
/// because of `size`.
struct ncclConfig_v21400 {
  std::size_t size = sizeof(ncclConfig_v21400);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = INT_MIN;  ///< INT_MIN: NCCL's default
};

// X(name, parameters)
#define FARANDOLE_NCCL_FUNCTIONS(X)                                                                                   \
  X(ncclGetVersion, (int* version))                                                                                   \
  X(ncclGetUniqueId, (ncclUniqueId * id))                                                                             \
  X(ncclCommInitRankConfig, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_v21400* config))     \
  X(ncclCommFinalize, (ncclComm_t comm))                                                                              \
  X(ncclCommDestroy, (ncclComm_t comm))                                                                               \
  X(ncclCommAbort, (ncclComm_t comm))                                                                                 \
  X(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))                                                   \
  X(ncclRedOpCreatePreMulSum,                                                                                         \
    (ncclRedOp_t * op, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence, ncclComm_t comm))          \
  X(ncclGroupStart, ())                                                                                               \
  X(ncclGroupEnd, ())                                                                                                 \
  X(ncclSend, (const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream)) \
  X(ncclRecv, (void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream))       \
  X(ncclAllReduce, (const void* input, void* output, std::size_t count, ncclDataType_t type, ncclRedOp_t op,          \
                    ncclComm_t comm, CUstream stream))                                                                \
  X(ncclBroadcast, (const void* input, void* output, std::size_t count, ncclDataType_t type, int root,                \
                    ncclComm_t comm, CUstream stream))                                                                \
  X(ncclReduce, (const void* input, void* output, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,   \
                 ncclComm_t comm, CUstream stream))                                                                   \
  X(ncclAllGather,                                                                                                    \
    (const void* input, void* output, std::size_t count, ncclDataType_t type, ncclComm_t comm, CUstream stream))      \
  X(ncclReduceScatter, (const void* input, void* output, std::size_t count, ncclDataType_t type, ncclRedOp_t op,      \
                        ncclComm_t comm, CUstream stream))

#define FARANDOLE_MEMBER(name, parameters) ncclResult_t(*name) parameters = nullptr;
struct NcclApi {
  const char* (*ncclGetErrorString)(ncclResult_t error) = nullptr;
  const char* (*ncclGetLastError)(ncclComm_t comm) = nullptr;
  FARANDOLE_NCCL_FUNCTIONS(FARANDOLE_MEMBER)
};
#undef FARANDOLE_MEMBER
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace farandole::cuda
