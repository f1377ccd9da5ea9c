// SPDX-License-Identifier: Apache-2.0
#include "cuda/nccl_types.h"

#include <array>

namespace farandole::cuda {

namespace {

// By DType. NCCL has no 16-bit integers. Bools are 0 or 1, as a byte.
constexpr std::array<std::optional<ncclDataType_t>, kDTypeCount> kTypes{
    ncclUint8,   ncclUint8,    ncclInt8,    std::nullopt, std::nullopt, ncclInt32, ncclInt64,
    ncclFloat16, ncclBfloat16, ncclFloat32, ncclFloat64,  ncclUint32,   ncclUint64};
// By ReduceOp. For bool, sum and max are "or", product and min are "and".
constexpr std::array<ncclRedOp_t, kAllReduceOps.size()> kOps{ncclSum, ncclProd, ncclMin, ncclMax, ncclSum};
constexpr std::array<ncclRedOp_t, kAllReduceOps.size()> kOpsOfBool{ncclMax, ncclMin, ncclMin, ncclMax, ncclMax};

}  // namespace

std::optional<NcclReduction> nccl_reduction(DType dtype, ReduceOp op) {
  const std::optional<ncclDataType_t> type = kTypes[static_cast<std::size_t>(dtype)];
  if (!type) return std::nullopt;
  return NcclReduction{*type, (dtype == DType::kBool ? kOpsOfBool : kOps)[static_cast<std::size_t>(op)]};
}

}  // namespace farandole::cuda
