// SPDX-License-Identifier: Apache-2.0
// Types and reductions that NCCL supports, and known properties and problems of NCCL's versions.
#pragma once

#include <optional>
#include <string>

#include "cuda/nccl_api.h"
#include "farandole/core/dtype.h"

namespace farandole::cuda {

struct NcclReduction {
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
};

/// Returns NCCL's type and reduction with the same result as reduce() on the host; empty if NCCL has none. kAverage is
/// mapped to a sum. Exception: for a NaN and a number, NCCL's min and max may return either.
std::optional<NcclReduction> nccl_reduction(DType dtype, ReduceOp op);

/// The oldest version that the plug-in accepts.
inline constexpr int kOldestNccl = 21900;

/// 22809 → "2.28.9". Versions before 2.9 have one digit less: 2804 → "2.8.4".
std::string nccl_version_text(int version);

/// True if ranks of different processes may share a device: NCCL 2.30.3 or newer, with NCCL_MULTI_RANK_GPU_ENABLE=1 in
/// the environment.
bool nccl_shares_devices(int version);

/// Returns a warning about known problems of a version, with a remedy; empty if there are none.
std::string nccl_warning(int version);

}  // namespace farandole::cuda
