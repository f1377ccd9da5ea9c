// SPDX-License-Identifier: Apache-2.0
// Collectives of a device's vendor.
#pragma once

#include <optional>

#include "farandole/collectives/algorithms.h"
#include "farandole/sdk/device.h"

namespace farandole {

/// The vendor's collective of this kind; empty if a DeviceGroup has none.
inline std::optional<DeviceCollective::Kind> device_collective_of(Collective collective) {
  using Kind = DeviceCollective::Kind;
  switch (collective) {
    case Collective::kAllreduce:
      return Kind::kAllreduce;
    case Collective::kBroadcast:
      return Kind::kBroadcast;
    case Collective::kReduce:
      return Kind::kReduce;
    case Collective::kAllgather:
      return Kind::kAllgather;
    case Collective::kReduceScatter:
      return Kind::kReduceScatter;
    case Collective::kAlltoall:
      return Kind::kAlltoall;
    default:
      return std::nullopt;
  }
}

/// True if the vendor's collective with equal parts gives the same result as a schedule. NCCL has neither bool nor
/// 16-bit integers, and does not specify its minimum and maximum for NaNs.
inline bool device_vendor_agrees(Collective collective, DType dtype, ReduceOp op) {
  if (dtype == DType::kBool || dtype == DType::kI16 || dtype == DType::kU16) return false;
  const bool depends_on_nan = op == ReduceOp::kMin || op == ReduceOp::kMax;
  return !reduces(collective) || !is_floating_point(dtype) || !depends_on_nan;
}

}  // namespace farandole
