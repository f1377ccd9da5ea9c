// SPDX-License-Identifier: Apache-2.0
// The list of all methods, preferred methods first.
#include <array>

#include "device/device_operation.h"
#include "messages/exchange.h"
#include "messages/hierarchical_operation.h"
#include "messages/scheduled_collective.h"
#include "messages/vendor_allreduce.h"
#include "shared_memory/shm_operation.h"

namespace farandole {

std::span<const Method* const> methods() {
  static constexpr std::array<const Method*, 8> kMethods{
      &kShmMethod,      &kExchangeMethod,     &kHierarchicalMethod,       &kVendorMethod,
      &kScheduleMethod, &kDeviceVendorMethod, &kDeviceHierarchicalMethod, &kDeviceScheduleMethod};
  return kMethods;
}

}  // namespace farandole
