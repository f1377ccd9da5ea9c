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

}  // namespace farandole
