// SPDX-License-Identifier: Apache-2.0
// Which collectives a device's vendor has.
#pragma once

#include <optional>

#include "farandole/collectives/algorithms.h"
#include "farandole/sdk/device.h"

namespace farandole {

/// Nothing if a DeviceGroup has no such collective.
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

/// Whether the vendor's collective gives what a schedule gives, where parts are equal: NCCL knows neither bool nor
/// 16-bit integers, and its minimum and maximum say nothing of NaNs.
inline bool device_vendor_agrees(Collective collective, DType dtype, ReduceOp op) {
  if (dtype == DType::kBool || dtype == DType::kI16 || dtype == DType::kU16) return false;
  const bool looks_at_nan = op == ReduceOp::kMin || op == ReduceOp::kMax;
  return !reduces(collective) || !is_floating_point(dtype) || !looks_at_nan;
}

}  // namespace farandole
