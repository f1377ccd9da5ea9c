// SPDX-License-Identifier: Apache-2.0
// The functions of cuBLAS that Farandole calls, as a table of function pointers that is filled at run time. Names,
// numbers and layouts are copied from cublas_api.h.
#pragma once

#include <cstddef>

#include "cuda/cuda_api.h"

namespace farandole::trainer::cuda {

// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses): cuBLAS's names
using cublasStatus_t = int;
using cublasOperation_t = int;
using cudaDataType_t = int;
using cublasComputeType_t = int;
using cublasGemmAlgo_t = int;
using cublasHandle_t = struct cublasContext*;

inline constexpr cublasStatus_t CUBLAS_STATUS_SUCCESS = 0;
inline constexpr cublasStatus_t CUBLAS_STATUS_NOT_INITIALIZED = 1;
inline constexpr cublasStatus_t CUBLAS_STATUS_INVALID_VALUE = 7;
inline constexpr cublasStatus_t CUBLAS_STATUS_EXECUTION_FAILED = 13;
inline constexpr cublasOperation_t CUBLAS_OP_N = 0;
inline constexpr cublasOperation_t CUBLAS_OP_T = 1;
inline constexpr cudaDataType_t CUDA_R_32F = 0;
inline constexpr cudaDataType_t CUDA_R_16F = 2;
inline constexpr cudaDataType_t CUDA_R_16BF = 14;
inline constexpr cublasComputeType_t CUBLAS_COMPUTE_32F = 68;
inline constexpr cublasGemmAlgo_t CUBLAS_GEMM_DEFAULT = -1;

// X(name, exported name, parameters). Matrices are stored column by column.
#define FARANDOLE_CUBLAS_FUNCTIONS(X)                                                                             \
  X(cublasCreate, cublasCreate_v2, (cublasHandle_t * handle))                                                     \
  X(cublasDestroy, cublasDestroy_v2, (cublasHandle_t handle))                                                     \
  X(cublasGetVersion, cublasGetVersion_v2, (cublasHandle_t handle, int* version))                                 \
  X(cublasSetStream, cublasSetStream_v2, (cublasHandle_t handle, farandole::cuda::CUstream stream))               \
  X(cublasSetWorkspace, cublasSetWorkspace_v2, (cublasHandle_t handle, void* memory, std::size_t bytes))          \
  X(cublasSgemm, cublasSgemm_v2,                                                                                  \
    (cublasHandle_t handle, cublasOperation_t left_operation, cublasOperation_t right_operation, int rows,        \
     int columns, int inner, const float* alpha, const float* left, int left_stride, const float* right,          \
     int right_stride, const float* beta, float* result, int stride))                                             \
  X(cublasDgemm, cublasDgemm_v2,                                                                                  \
    (cublasHandle_t handle, cublasOperation_t left_operation, cublasOperation_t right_operation, int rows,        \
     int columns, int inner, const double* alpha, const double* left, int left_stride, const double* right,       \
     int right_stride, const double* beta, double* result, int stride))                                           \
  X(cublasSgemmStridedBatched, cublasSgemmStridedBatched,                                                         \
    (cublasHandle_t handle, cublasOperation_t left_operation, cublasOperation_t right_operation, int rows,        \
     int columns, int inner, const float* alpha, const float* left, int left_stride, long long left_step,         \
     const float* right, int right_stride, long long right_step, const float* beta, float* result, int stride,    \
     long long step, int count))                                                                                  \
  X(cublasDgemmStridedBatched, cublasDgemmStridedBatched,                                                         \
    (cublasHandle_t handle, cublasOperation_t left_operation, cublasOperation_t right_operation, int rows,        \
     int columns, int inner, const double* alpha, const double* left, int left_stride, long long left_step,       \
     const double* right, int right_stride, long long right_step, const double* beta, double* result, int stride, \
     long long step, int count))                                                                                  \
  X(cublasGemmEx, cublasGemmEx,                                                                                   \
    (cublasHandle_t handle, cublasOperation_t left_operation, cublasOperation_t right_operation, int rows,        \
     int columns, int inner, const void* alpha, const void* left, cudaDataType_t left_type, int left_stride,      \
     const void* right, cudaDataType_t right_type, int right_stride, const void* beta, void* result,              \
     cudaDataType_t result_type, int stride, cublasComputeType_t compute, cublasGemmAlgo_t algorithm))            \
  X(cublasGemmStridedBatchedEx, cublasGemmStridedBatchedEx,                                                       \
    (cublasHandle_t handle, cublasOperation_t left_operation, cublasOperation_t right_operation, int rows,        \
     int columns, int inner, const void* alpha, const void* left, cudaDataType_t left_type, int left_stride,      \
     long long left_step, const void* right, cudaDataType_t right_type, int right_stride, long long right_step,   \
     const void* beta, void* result, cudaDataType_t result_type, int stride, long long step, int count,           \
     cublasComputeType_t compute, cublasGemmAlgo_t algorithm))

#define FARANDOLE_MEMBER(name, exported, parameters) cublasStatus_t(*name) parameters = nullptr;
struct CublasApi {
  FARANDOLE_CUBLAS_FUNCTIONS(FARANDOLE_MEMBER)
};
#undef FARANDOLE_MEMBER
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace farandole::trainer::cuda
