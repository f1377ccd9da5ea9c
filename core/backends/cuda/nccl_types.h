// SPDX-License-Identifier: Apache-2.0
// Types and reductions of NCCL. Pure.
#pragma once

#include <optional>

#include "cuda/nccl_api.h"
#include "farandole/core/dtype.h"

namespace farandole::cuda {

struct NcclReduction {
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
};

/// Returns NCCL's type and reduction with the same result as reduce() on the host; nothing if NCCL has none. kAverage
/// is a sum. Exception: for a NaN and a number, NCCL's min and max may return either.
std::optional<NcclReduction> nccl_reduction(DType dtype, ReduceOp op);

}  // namespace farandole::cuda
