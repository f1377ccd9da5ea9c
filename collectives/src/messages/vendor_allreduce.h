// SPDX-License-Identifier: Apache-2.0
// Allreduce by the vendor: MPI's own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "messages/vendor_slot.h"
#include "operation/call.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "selection/method.h"

namespace farandole {

extern const Method kVendorMethod;

/// Waits until all earlier ones of its communicator have begun, then lets the vendor run.
class VendorAllreduce final : public Operation {
 public:
  /// @param vendor  knows `sequence`, from announce(). @param call  outlives the operation
  VendorAllreduce(const Group& group, VendorSlot& vendor, const Call& call, std::uint64_t sequence)
      : group_(group), vendor_(vendor), call_(call), sequence_(sequence) {}

  /// @throws Unsupported  by the vendor
  State advance() override;
  std::vector<int> waits_for() const override { return group_.members; }
  BufferHazard withdraw() override { return transfer_ ? transfer_->withdraw() : BufferHazard::kNone; }

 private:
  void begin(VendorCollectives& collectives);

  const Group& group_;
  VendorSlot& vendor_;
  const Call& call_;
  const std::uint64_t sequence_;
  std::unique_ptr<Transfer> transfer_;  // null: not begun
};

}  // namespace farandole
