// SPDX-License-Identifier: Apache-2.0
// The vendor's collectives of one communicator, for the algorithm `vendor`.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <thread>

#include "farandole/sdk/backend.h"
#include "operation/group.h"

namespace farandole {

/// A vendor makes what it needs for a communicator in a call that blocks until all ranks make it. Where any thread may
/// call the vendor, a thread of its own waits in that call, begun with the first allreduce; where only the main thread
/// may, the communicator's constructor does, which may block as `split` may. One thread at a time (the work queue's
/// lock).
class VendorSlot {
 public:
  explicit VendorSlot(const Group& group);
  ~VendorSlot();
  VendorSlot(const VendorSlot&) = delete;
  VendorSlot& operator=(const VendorSlot&) = delete;

  /// Null while they are being made. Never blocks. @throws Unsupported  there are none, or they had to be named @throws
  /// TransportError  the vendor could not make them
  VendorCollectives* collectives();
  /// The communicator ends.
  void close();

  // Operations start in the order of their sequence numbers, which is the same on all ranks.
  void announce(std::uint64_t sequence) { waiting_.insert(sequence); }
  /// All announced operations with lower numbers have started.
  bool is_next(std::uint64_t sequence) const { return *waiting_.begin() == sequence; }
  /// The operation starts, or has been given up. One that was never announced, or has started, is ignored.
  void withdraw(std::uint64_t sequence) { waiting_.erase(sequence); }

 private:
  struct Making;
  void begin();

  const Group& group_;
  std::shared_ptr<Making> making_;  // null: not begun
  std::jthread thread_;             // that runs `making_`
  VendorCollectives* made_ = nullptr;
  std::set<std::uint64_t> waiting_;  // announced, and not started
};

}  // namespace farandole
