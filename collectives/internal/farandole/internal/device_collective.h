// SPDX-License-Identifier: Apache-2.0
// Properties of the collectives of a device's vendor (NCCL).
#pragma once

#include "farandole/core/collective.h"
#include "farandole/core/dtype.h"

namespace farandole {

/// True if the result of a collective depends on how NaNs are compared.
inline bool compares_nans(Collective collective, DType dtype, ReduceOp op) {
  return reduces(collective) && is_floating_point(dtype) && (op == ReduceOp::kMin || op == ReduceOp::kMax);
}

/// True if the vendor computes a minimum or maximum on integers in place of the values (DeviceTask::Kind::kOrder),
/// because NCCL does not specify its minimum and maximum for NaNs. False for f16 and bf16, because NCCL has no integers
/// of their size.
inline bool is_ordered_by_device(Collective collective, DType dtype, ReduceOp op) {
  return compares_nans(collective, dtype, op) && (dtype == DType::kF32 || dtype == DType::kF64);
}

/// True if the vendor's collective with equal parts gives the same result as a schedule. False for bool, 16-bit
/// integers and bitwise operations, which NCCL does not have. Minima and maxima may still differ in the sign of a zero
/// and in which of several NaNs is returned, as they differ between the algorithms of schedules.
inline bool device_vendor_agrees(Collective collective, DType dtype, ReduceOp op) {
  if (dtype == DType::kBool || dtype == DType::kI16 || dtype == DType::kU16) return false;
  if (reduces(collective) && is_bitwise(op)) return false;
  return !compares_nans(collective, dtype, op) || is_ordered_by_device(collective, dtype, op);
}

}  // namespace farandole
