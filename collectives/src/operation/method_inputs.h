// SPDX-License-Identifier: Apache-2.0
// What a method makes an operation of.
#pragma once

#include <cstdint>

#include "operation/call.h"
#include "operation/descriptor.h"
#include "operation/group.h"
#include "selection/selection.h"

namespace farandole {

class ShmGroup;
class VendorSlot;
class DeviceSlot;
struct Hierarchy;
class PreparedPlans;

/// Everything that is referred to outlives the operation.
struct MethodInputs {
  const Group& group;
  ShmGroup* host;              ///< the ranks of this host; null: this rank is alone there, or memory is not shared
  const Hierarchy* hierarchy;  ///< of several hosts with shared memory on each, else null
  PreparedPlans* plans;        ///< for that hierarchy, else null
  VendorSlot& vendor;
  DeviceSlot& devices;
  const Call& call;
  const Selection& selection;
  const Descriptor& descriptor;
  std::uint64_t sequence;
  bool has_arrived;  ///< in shared memory, this rank's arrival is published already

  /// The same of another call, which outlives the operation, too.
  MethodInputs with(const Call& other) const {
    return {group, host, hierarchy, plans, vendor, devices, other, selection, descriptor, sequence, has_arrived};
  }
};

}  // namespace farandole
