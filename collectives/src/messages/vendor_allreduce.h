// SPDX-License-Identifier: Apache-2.0
// The algorithm `vendor`: MPI's own allreduce.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "farandole/sdk/backend.h"
#include "operation/call.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "selection/method.h"

namespace farandole {

/// Owns a communicator's VendorCollectives (for MPI: an MPI communicator), and orders the operations that use them.
///
/// The vendor makes its collectives in a call that blocks until all ranks have made that call. If any thread may call
/// the vendor, the first allreduce starts a thread that blocks in that call. If only the main thread may call the
/// vendor, the constructor makes the call, and blocks as `split` does; but only if the settings or the tuning table
/// name `vendor`.
///
/// Not thread-safe: the work queue's lock guards it.
class VendorSlot {
 public:
  explicit VendorSlot(const Group& group);
  ~VendorSlot();
  VendorSlot(const VendorSlot&) = delete;
  VendorSlot& operator=(const VendorSlot&) = delete;

  /// Returns the collectives, or null while they are being made. Non-blocking.
  /// @throws Unsupported  the vendor has no collectives for these ranks, or could make them only when the communicator
  /// was made
  /// @throws TransportError  the vendor failed to make them
  VendorCollectives* collectives();
  /// Frees the collectives; called when the communicator ends.
  void close();

  // Operations start in the order of their sequence numbers, which is the same on all ranks.
  void announce(std::uint64_t sequence) { pending_.insert(sequence); }
  /// True if all announced operations with lower numbers have started.
  bool is_next(std::uint64_t sequence) const { return *pending_.begin() == sequence; }
  /// Removes an operation that starts or is given up. No-op for an operation that is not announced or has started.
  void withdraw(std::uint64_t sequence) { pending_.erase(sequence); }

 private:
  struct Creation;
  void begin();

  const Group& group_;
  std::shared_ptr<Creation> creation_;        // null until the collectives are being made
  std::jthread thread_;                       // runs `creation_` if any thread may call the vendor
  VendorCollectives* collectives_ = nullptr;  // the finished collectives, owned by `creation_`
  std::set<std::uint64_t> pending_;           // sequence numbers announced but not started
};

extern const Method kVendorMethod;

/// Runs the vendor's non-blocking allreduce (MPI_Iallreduce). MPI requires that all ranks start the collectives of a
/// communicator in the same order, so the operation first waits until all earlier vendor allreduces of its communicator
/// have started. The operation applies prescale before, and final scale after, MPI's allreduce.
class VendorAllreduce final : public Operation {
 public:
  /// @param vendor  must have had `announce(sequence)`   @param call  outlives the operation
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
