// SPDX-License-Identifier: Apache-2.0
// The functions of cuDNN 9 that Farandole calls, as a table of function pointers that is filled at run time. Names,
// numbers and layouts are copied from cudnn_graph.h, cudnn_ops.h and cudnn_cnn.h.
#pragma once

#include <cstddef>

#include "cuda/cuda_api.h"
#include "cudnn_graph_api.h"

namespace farandole::trainer::cuda {

// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses): cuDNN's names
using cudnnStatus_t = int;
using cudnnDataType_t = int;
using cudnnTensorFormat_t = int;
using cudnnConvolutionMode_t = int;
using cudnnMathType_t = int;
using cudnnDeterminism_t = int;
/// cudnnConvolutionFwdAlgo_t, cudnnConvolutionBwdDataAlgo_t or cudnnConvolutionBwdFilterAlgo_t.
using cudnnConvolutionAlgo_t = int;
using cudnnHandle_t = struct cudnnContext*;
using cudnnTensorDescriptor_t = struct cudnnTensorStruct*;
using cudnnFilterDescriptor_t = struct cudnnFilterStruct*;
using cudnnConvolutionDescriptor_t = struct cudnnConvolutionStruct*;

inline constexpr cudnnStatus_t CUDNN_STATUS_SUCCESS = 0;
inline constexpr cudnnStatus_t CUDNN_STATUS_NOT_INITIALIZED = 1001;
inline constexpr cudnnStatus_t CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED = 1008;
inline constexpr cudnnStatus_t CUDNN_STATUS_BAD_PARAM = 2000;
inline constexpr cudnnStatus_t CUDNN_STATUS_NOT_SUPPORTED = 3000;  ///< the first of the statuses up to 3999
inline constexpr cudnnStatus_t CUDNN_STATUS_EXECUTION_FAILED = 5000;
inline constexpr cudnnDataType_t CUDNN_DATA_FLOAT = 0;
inline constexpr cudnnDataType_t CUDNN_DATA_HALF = 2;
inline constexpr cudnnDataType_t CUDNN_DATA_INT32 = 4;
inline constexpr cudnnDataType_t CUDNN_DATA_BFLOAT16 = 9;
inline constexpr cudnnDataType_t CUDNN_DATA_BOOLEAN = 11;
inline constexpr cudnnTensorFormat_t CUDNN_TENSOR_NHWC = 1;
inline constexpr cudnnConvolutionMode_t CUDNN_CROSS_CORRELATION = 1;
/// Allows TF32 on devices of capability 8.0 and newer; CUDNN_FMA_MATH does not.
inline constexpr cudnnMathType_t CUDNN_DEFAULT_MATH = 0;
inline constexpr cudnnMathType_t CUDNN_TENSOR_OP_MATH = 1;  ///< tensor cores, without conversions
inline constexpr cudnnMathType_t CUDNN_FMA_MATH = 3;
inline constexpr cudnnDeterminism_t CUDNN_NON_DETERMINISTIC = 0;
inline constexpr cudnnDeterminism_t CUDNN_DETERMINISTIC = 1;

/// cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionBwdDataAlgoPerf_t and cudnnConvolutionBwdFilterAlgoPerf_t, which have
/// one layout.
struct cudnnConvolutionAlgoPerf_t {
  cudnnConvolutionAlgo_t algo;
  cudnnStatus_t status;
  float time;
  std::size_t memory;
  cudnnDeterminism_t determinism;
  cudnnMathType_t mathType;
  int reserved[3];
};

// The calls of the three computations have the same parameters in the same order: two operands, the convolution and the
// result. X(result, name, parameters)
#define FARANDOLE_CUDNN_FUNCTIONS_OF(X, Pass, First, Second, Result)                                                   \
  X(cudnnStatus_t, cudnnGetConvolution##Pass##Algorithm_v7,                                                            \
    (cudnnHandle_t handle, First first_descriptor, Second second_descriptor, cudnnConvolutionDescriptor_t convolution, \
     Result result_descriptor, int requested, int* returned, cudnnConvolutionAlgoPerf_t* algorithms))                  \
  X(cudnnStatus_t, cudnnFindConvolution##Pass##AlgorithmEx,                                                            \
    (cudnnHandle_t handle, First first_descriptor, const void* first, Second second_descriptor, const void* second,    \
     cudnnConvolutionDescriptor_t convolution, Result result_descriptor, void* result, int requested, int* returned,   \
     cudnnConvolutionAlgoPerf_t* algorithms, void* workspace, std::size_t bytes))                                      \
  X(cudnnStatus_t, cudnnGetConvolution##Pass##WorkspaceSize,                                                           \
    (cudnnHandle_t handle, First first_descriptor, Second second_descriptor, cudnnConvolutionDescriptor_t convolution, \
     Result result_descriptor, cudnnConvolutionAlgo_t algorithm, std::size_t * bytes))                                 \
  X(cudnnStatus_t, cudnnConvolution##Pass,                                                                             \
    (cudnnHandle_t handle, const void* alpha, First first_descriptor, const void* first, Second second_descriptor,     \
     const void* second, cudnnConvolutionDescriptor_t convolution, cudnnConvolutionAlgo_t algorithm, void* workspace,  \
     std::size_t bytes, const void* beta, Result result_descriptor, void* result))

#define FARANDOLE_CUDNN_FUNCTIONS(X)                                                                                  \
  X(std::size_t, cudnnGetVersion, ())                                                                                 \
  X(std::size_t, cudnnGetCudartVersion, ())                                                                           \
  X(const char*, cudnnGetErrorString, (cudnnStatus_t status))                                                         \
  X(void, cudnnGetLastErrorString, (char* message, std::size_t bytes))                                                \
  X(cudnnStatus_t, cudnnCreate, (cudnnHandle_t * handle))                                                             \
  X(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle))                                                              \
  X(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t handle, farandole::cuda::CUstream stream))                          \
  X(cudnnStatus_t, cudnnCreateTensorDescriptor, (cudnnTensorDescriptor_t * descriptor))                               \
  X(cudnnStatus_t, cudnnSetTensor4dDescriptor,                                                                        \
    (cudnnTensorDescriptor_t descriptor, cudnnTensorFormat_t format, cudnnDataType_t type, int samples, int channels, \
     int height, int width))                                                                                          \
  X(cudnnStatus_t, cudnnDestroyTensorDescriptor, (cudnnTensorDescriptor_t descriptor))                                \
  X(cudnnStatus_t, cudnnCreateFilterDescriptor, (cudnnFilterDescriptor_t * descriptor))                               \
  X(cudnnStatus_t, cudnnSetFilter4dDescriptor,                                                                        \
    (cudnnFilterDescriptor_t descriptor, cudnnDataType_t type, cudnnTensorFormat_t format, int outputs, int inputs,   \
     int height, int width))                                                                                          \
  X(cudnnStatus_t, cudnnDestroyFilterDescriptor, (cudnnFilterDescriptor_t descriptor))                                \
  X(cudnnStatus_t, cudnnCreateConvolutionDescriptor, (cudnnConvolutionDescriptor_t * descriptor))                     \
  X(cudnnStatus_t, cudnnSetConvolution2dDescriptor,                                                                   \
    (cudnnConvolutionDescriptor_t descriptor, int padding_height, int padding_width, int stride_height,               \
     int stride_width, int dilation_height, int dilation_width, cudnnConvolutionMode_t mode,                          \
     cudnnDataType_t compute_type))                                                                                   \
  X(cudnnStatus_t, cudnnSetConvolutionMathType, (cudnnConvolutionDescriptor_t descriptor, cudnnMathType_t math))      \
  X(cudnnStatus_t, cudnnDestroyConvolutionDescriptor, (cudnnConvolutionDescriptor_t descriptor))                      \
  FARANDOLE_CUDNN_FUNCTIONS_OF(X, Forward, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t) \
  FARANDOLE_CUDNN_FUNCTIONS_OF(X, BackwardData, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t,                     \
                               cudnnTensorDescriptor_t)                                                               \
  FARANDOLE_CUDNN_FUNCTIONS_OF(X, BackwardFilter, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t,                   \
                               cudnnFilterDescriptor_t)                                                               \
  FARANDOLE_CUDNN_GRAPH_FUNCTIONS(X)

#define FARANDOLE_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
struct CudnnApi {
  FARANDOLE_CUDNN_FUNCTIONS(FARANDOLE_MEMBER)
};
#undef FARANDOLE_MEMBER
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace farandole::trainer::cuda
