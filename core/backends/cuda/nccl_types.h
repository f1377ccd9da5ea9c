// SPDX-License-Identifier: Apache-2.0
// What NCCL reduces. Pure.
#pragma once

#include <optional>

#include "cuda/nccl_api.h"
#include "farandole/core/dtype.h"

namespace farandole::cuda {

struct NcclReduction {
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
};

/// How NCCL is told to reduce elements of a type as reduce() does; nothing if it can not. kAverage adds. Of a NaN and a
/// number NCCL's min and max may give either.
std::optional<NcclReduction> nccl_reduction(DType dtype, ReduceOp op);

}  // namespace farandole::cuda
