// SPDX-License-Identifier: Apache-2.0
// The algorithm `vendor`: MPI's own allreduce.
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

/// Runs the vendor's non-blocking allreduce (MPI_Iallreduce). MPI requires that all ranks start the collectives of a
/// communicator in the same order, so the operation first waits until all earlier vendor allreduces of its communicator
/// have started. Prescale and final scale are applied before and after MPI's allreduce.
class VendorAllreduce final : public Operation {
 public:
  /// @param vendor  `sequence` has been announced to it   @param call  outlives the operation
  VendorAllreduce(const Group& group, VendorSlot& vendor, const Call& call, std::uint64_t sequence)
      : group_(group), vendor_(vendor), call_(call), sequence_(sequence) {}

  /// @throws Unsupported  the vendor has no such type or reduction, or no collectives for these ranks
  State advance() override;
  std::vector<int> waits_for() const override { return group_.members; }
  BufferHazard withdraw() override { return transfer_ ? transfer_->withdraw() : BufferHazard::kNone; }

 private:
  void begin(VendorCollectives& collectives);

  const Group& group_;
  VendorSlot& vendor_;
  const Call& call_;
  const std::uint64_t sequence_;
  std::unique_ptr<Transfer> transfer_;  // null until the vendor's allreduce has started
};

}  // namespace farandole
