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

/// Arguments from which a method makes its operation. All referenced objects must outlive the operation.
struct MethodInputs {
  const Group& group;
  ShmGroup* host;              ///< ranks of this host; null if this rank is alone there or memory is private
  const Hierarchy* hierarchy;  ///< null unless there are several hosts and the ranks of each host share memory
  PreparedPlans* plans;        ///< plans of the hierarchy; null without a hierarchy
  VendorSlot& vendor;
  DeviceSlot& devices;
  const PreparedCall& prepared;
  std::uint64_t sequence;
  bool has_arrived;  ///< this rank has already published its arrival in shared memory

  /// The same arguments with another call, which must outlive the operation as well.
  MethodInputs with(const PreparedCall& other) const {
    return {group, host, hierarchy, plans, vendor, devices, other, sequence, has_arrived};
  }
};

}  // namespace farandole
