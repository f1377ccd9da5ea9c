// SPDX-License-Identifier: Apache-2.0
// Collectives of a device's vendor.
#pragma once

#include "farandole/core/collective.h"
#include "farandole/core/dtype.h"

namespace farandole {

/// True if the vendor's collective with equal parts gives the same result as a schedule. NCCL has neither bool nor
/// 16-bit integers, and does not specify its minimum and maximum for NaNs.
inline bool device_vendor_agrees(Collective collective, DType dtype, ReduceOp op) {
  if (dtype == DType::kBool || dtype == DType::kI16 || dtype == DType::kU16) return false;
  const bool depends_on_nan = op == ReduceOp::kMin || op == ReduceOp::kMax;
  return !reduces(collective) || !is_floating_point(dtype) || !depends_on_nan;
}

}  // namespace farandole
