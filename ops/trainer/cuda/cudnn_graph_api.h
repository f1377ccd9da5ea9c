// SPDX-License-Identifier: Apache-2.0
// The functions and numbers of cuDNN's graph API, also called backend API. Names, numbers and layouts are copied from
// cudnn_graph.h of cuDNN 9.
#pragma once

#include <cstdint>

namespace farandole::trainer::cuda {

// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses): cuDNN's names
using cudnnBackendDescriptor_t = void*;
using cudnnBackendDescriptorType_t = int;
using cudnnBackendAttributeName_t = int;
using cudnnBackendAttributeType_t = int;
using cudnnBackendHeurMode_t = int;
using cudnnBackendNumericalNote_t = int;
using cudnnPointwiseMode_t = int;
using cudnnReduceTensorOp_t = int;

inline constexpr cudnnBackendDescriptorType_t CUDNN_BACKEND_POINTWISE_DESCRIPTOR = 0;
inline constexpr cudnnBackendDescriptorType_t CUDNN_BACKEND_ENGINE_DESCRIPTOR = 2;
inline constexpr cudnnBackendDescriptorType_t CUDNN_BACKEND_ENGINECFG_DESCRIPTOR = 3;
inline constexpr cudnnBackendDescriptorType_t CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR = 4;
inline constexpr cudnnBackendDescriptorType_t CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR = 5;
inline constexpr cudnnBackendDescriptorType_t CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR = 13;
inline constexpr cudnnBackendDescriptorType_t CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR = 15;
inline constexpr cudnnBackendDescriptorType_t CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR = 16;
inline constexpr cudnnBackendDescriptorType_t CUDNN_BACKEND_TENSOR_DESCRIPTOR = 17;
inline constexpr cudnnBackendDescriptorType_t CUDNN_BACKEND_MATMUL_DESCRIPTOR = 18;
inline constexpr cudnnBackendDescriptorType_t CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR = 19;
inline constexpr cudnnBackendDescriptorType_t CUDNN_BACKEND_REDUCTION_DESCRIPTOR = 21;
inline constexpr cudnnBackendDescriptorType_t CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR = 22;
inline constexpr cudnnBackendDescriptorType_t CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR = 31;
inline constexpr cudnnBackendDescriptorType_t CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR = 38;

inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_POINTWISE_MODE = 0;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_POINTWISE_MATH_PREC = 1;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_POINTWISE_AXIS = 9;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_ENGINEHEUR_MODE = 200;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH = 201;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_ENGINEHEUR_RESULTS = 202;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_ENGINEHEUR_DEVICEPROP = 204;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_ENGINECFG_ENGINE = 300;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_EXECUTION_PLAN_HANDLE = 400;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG = 401;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE = 402;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP = 407;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR = 750;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATION_POINTWISE_XDESC = 751;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATION_POINTWISE_BDESC = 752;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATION_POINTWISE_YDESC = 753;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATION_POINTWISE_TDESC = 758;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATIONGRAPH_HANDLE = 800;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATIONGRAPH_OPS = 801;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT = 900;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_TENSOR_DATA_TYPE = 901;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_TENSOR_DIMENSIONS = 902;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_TENSOR_STRIDES = 903;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_TENSOR_UNIQUE_ID = 906;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_TENSOR_IS_VIRTUAL = 907;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_TENSOR_IS_BY_VALUE = 908;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS = 1000;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS = 1001;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_VARIANT_PACK_WORKSPACE = 1003;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_ENGINE_NUMERICAL_NOTE = 1303;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_MATMUL_COMP_TYPE = 1500;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATION_MATMUL_ADESC = 1520;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATION_MATMUL_BDESC = 1521;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATION_MATMUL_CDESC = 1522;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATION_MATMUL_DESC = 1523;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_REDUCTION_OPERATOR = 1600;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_REDUCTION_COMP_TYPE = 1601;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATION_REDUCTION_XDESC = 1610;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATION_REDUCTION_YDESC = 1611;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATION_REDUCTION_DESC = 1612;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATION_RESHAPE_XDESC = 2200;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_OPERATION_RESHAPE_YDESC = 2201;
inline constexpr cudnnBackendAttributeName_t CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION = 2702;

inline constexpr cudnnBackendAttributeType_t CUDNN_TYPE_HANDLE = 0;
inline constexpr cudnnBackendAttributeType_t CUDNN_TYPE_DATA_TYPE = 1;
inline constexpr cudnnBackendAttributeType_t CUDNN_TYPE_BOOLEAN = 2;
inline constexpr cudnnBackendAttributeType_t CUDNN_TYPE_INT64 = 3;
inline constexpr cudnnBackendAttributeType_t CUDNN_TYPE_VOID_PTR = 6;
inline constexpr cudnnBackendAttributeType_t CUDNN_TYPE_HEUR_MODE = 8;
inline constexpr cudnnBackendAttributeType_t CUDNN_TYPE_NUMERICAL_NOTE = 11;
inline constexpr cudnnBackendAttributeType_t CUDNN_TYPE_POINTWISE_MODE = 14;
inline constexpr cudnnBackendAttributeType_t CUDNN_TYPE_BACKEND_DESCRIPTOR = 15;
inline constexpr cudnnBackendAttributeType_t CUDNN_TYPE_REDUCTION_OPERATOR_TYPE = 18;
inline constexpr cudnnBackendAttributeType_t CUDNN_TYPE_CHAR = 24;

inline constexpr cudnnPointwiseMode_t CUDNN_POINTWISE_ADD = 0;
inline constexpr cudnnPointwiseMode_t CUDNN_POINTWISE_MUL = 1;
inline constexpr cudnnPointwiseMode_t CUDNN_POINTWISE_DIV = 6;
inline constexpr cudnnPointwiseMode_t CUDNN_POINTWISE_SUB = 9;
inline constexpr cudnnPointwiseMode_t CUDNN_POINTWISE_EXP = 13;
inline constexpr cudnnPointwiseMode_t CUDNN_POINTWISE_LOG = 15;
inline constexpr cudnnPointwiseMode_t CUDNN_POINTWISE_IDENTITY = 21;
inline constexpr cudnnPointwiseMode_t CUDNN_POINTWISE_CMP_GE = 303;
inline constexpr cudnnPointwiseMode_t CUDNN_POINTWISE_GEN_INDEX = 501;
inline constexpr cudnnPointwiseMode_t CUDNN_POINTWISE_BINARY_SELECT = 601;

inline constexpr cudnnReduceTensorOp_t CUDNN_REDUCE_TENSOR_ADD = 0;
inline constexpr cudnnReduceTensorOp_t CUDNN_REDUCE_TENSOR_MAX = 3;

inline constexpr cudnnBackendHeurMode_t CUDNN_HEUR_MODE_FALLBACK = 2;
inline constexpr cudnnBackendHeurMode_t CUDNN_HEUR_MODE_A = 3;

inline constexpr cudnnBackendNumericalNote_t CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC = 4;
inline constexpr int CUDNN_NUMERICAL_NOTE_TYPE_COUNT = 10;

// X(result, name, parameters)
#define FARANDOLE_CUDNN_GRAPH_FUNCTIONS(X)                                                                    \
  X(cudnnStatus_t, cudnnBackendCreateDescriptor,                                                              \
    (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t * descriptor))                               \
  X(cudnnStatus_t, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor))                      \
  X(cudnnStatus_t, cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor))                               \
  X(cudnnStatus_t, cudnnBackendSetAttribute,                                                                  \
    (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, \
     std::int64_t count, const void* values))                                                                 \
  X(cudnnStatus_t, cudnnBackendGetAttribute,                                                                  \
    (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, \
     std::int64_t requested, std::int64_t * count, void* values))                                             \
  X(cudnnStatus_t, cudnnBackendExecute,                                                                       \
    (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t variant_pack))
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace farandole::trainer::cuda
