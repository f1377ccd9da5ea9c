// SPDX-License-Identifier: Apache-2.0
// Threads of Farandole that may be inside a vendor's library when the process ends.
#pragma once

namespace farandole {

/// Scope in which a thread of Farandole that may never be joined calls a vendor's library.
class VendorThreadScope {
 public:
  VendorThreadScope();
  ~VendorThreadScope();
  VendorThreadScope(const VendorThreadScope&) = delete;
  VendorThreadScope& operator=(const VendorThreadScope&) = delete;
};

/// Makes the end of the process wait up to two seconds for all scopes to end; if they do not, the process ends by _exit
/// with the same status. Otherwise the exit handlers of NCCL and CUDA would run while these threads use the libraries,
/// and the threads would crash (seen with ncclCommAbort, which takes long). Call this once the vendor's libraries are
/// loaded: exit handlers run in reverse order, so this wait then comes before theirs. Idempotent.
void wait_for_vendor_threads_at_exit();

}  // namespace farandole
