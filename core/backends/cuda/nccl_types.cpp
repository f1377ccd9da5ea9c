// SPDX-License-Identifier: Apache-2.0
#include "cuda/nccl_types.h"

namespace farandole::cuda {

namespace {

std::optional<ncclDataType_t> nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:  // 0 or 1, as a byte
    case DType::kU8:
      return ncclUint8;
    case DType::kI8:
      return ncclInt8;
    case DType::kU16:
    case DType::kI16:
      return std::nullopt;
    case DType::kI32:
      return ncclInt32;
    case DType::kU32:
      return ncclUint32;
    case DType::kI64:
      return ncclInt64;
    case DType::kU64:
      return ncclUint64;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
  }
  return std::nullopt;
}

/// For bool, sum and max are "or", product and min are "and".
ncclRedOp_t nccl_op(DType dtype, ReduceOp op) {
  const bool is_bool = dtype == DType::kBool;
  switch (op) {
    case ReduceOp::kProduct:
      return is_bool ? ncclMin : ncclProd;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      break;
  }
  return is_bool ? ncclMax : ncclSum;
}

}  // namespace

std::optional<NcclReduction> nccl_reduction(DType dtype, ReduceOp op) {
  const std::optional<ncclDataType_t> type = nccl_type(dtype);
  if (!type) return std::nullopt;
  return NcclReduction{*type, nccl_op(dtype, op)};
}

}  // namespace farandole::cuda
