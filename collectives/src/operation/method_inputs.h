// SPDX-License-Identifier: Apache-2.0
// Arguments of `Method::make` and `Method::announce`.
#pragma once

#include <cstdint>

#include "operation/call.h"
#include "operation/group.h"

namespace farandole {

class ShmGroup;
class VendorSlot;
class DeviceSlot;
struct Hierarchy;
class PreparedPlans;

/// Arguments from which a method makes its operation. All referenced objects outlive the operation.
struct MethodInputs {
  const Group& group;
  ShmGroup* host;              ///< ranks of this host; null if this rank is alone there or memory is private
  const Hierarchy* hierarchy;  ///< of several hosts whose ranks share memory on each host; else null
  PreparedPlans* plans;        ///< of the hierarchy; else null
  VendorSlot& vendor;
  DeviceSlot& devices;
  const PreparedCall& prepared;
  std::uint64_t sequence;
  bool has_arrived;  ///< this rank's arrival in shared memory is published already

  /// The same arguments with another call, which must outlive the operation as well.
  MethodInputs with(const PreparedCall& other) const {
    return {group, host, hierarchy, plans, vendor, devices, other, sequence, has_arrived};
  }
};

}  // namespace farandole
