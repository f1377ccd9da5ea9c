// SPDX-License-Identifier: Apache-2.0
// Collectives of a device's vendor.
#pragma once

#include "farandole/core/collective.h"
#include "farandole/core/dtype.h"

namespace farandole {

/// True if the result of a collective depends on how NaNs are compared.
inline bool compares_nans(Collective collective, DType dtype, ReduceOp op) {
  return reduces(collective) && is_floating_point(dtype) && (op == ReduceOp::kMin || op == ReduceOp::kMax);
}

/// True if the vendor combines integers in the place of the values (DeviceTask::Kind::kOrder), because NCCL does not
/// specify its minimum and maximum for NaNs. NCCL has no integers of the size of f16 and bf16.
inline bool is_ordered_by_device(Collective collective, DType dtype, ReduceOp op) {
  return compares_nans(collective, dtype, op) && (dtype == DType::kF32 || dtype == DType::kF64);
}

/// True if the vendor's collective with equal parts gives the same result as a schedule. NCCL has neither bool nor
/// 16-bit integers. Of minima and maxima, where schedules of different algorithms differ (the sign of zeros, and the
/// bits of one of several NaNs), so may the vendor.
inline bool device_vendor_agrees(Collective collective, DType dtype, ReduceOp op) {
  if (dtype == DType::kBool || dtype == DType::kI16 || dtype == DType::kU16) return false;
  return !compares_nans(collective, dtype, op) || is_ordered_by_device(collective, dtype, op);
}

}  // namespace farandole
