// SPDX-License-Identifier: Apache-2.0
// Threads of Farandole that may be inside a vendor's library when the process ends.
#pragma once

namespace farandole {

/// Marks a scope in which a thread of Farandole calls a vendor's library. Use it on threads that may never be joined.
class VendorCallScope {
 public:
  VendorCallScope();
  ~VendorCallScope();
  VendorCallScope(const VendorCallScope&) = delete;
  VendorCallScope& operator=(const VendorCallScope&) = delete;
};

/// Registers an exit handler that waits up to two seconds for all scopes to end, and otherwise ends the process by
/// _exit with the same status. Without it the exit handlers of NCCL and CUDA would run while these threads use the
/// libraries, and the threads would crash (seen with ncclCommAbort, which takes long). Call it once the vendor's
/// libraries are loaded: exit handlers run in reverse order, so this handler then runs before theirs. Idempotent.
void wait_for_vendor_threads_at_exit();

}  // namespace farandole
