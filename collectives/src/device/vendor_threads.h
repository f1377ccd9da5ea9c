// SPDX-License-Identifier: Apache-2.0
// Threads of Farandole that may be inside a vendor's library when the process ends.
#pragma once

namespace farandole {

/// Scope in which the calling thread, which nobody may join, calls a vendor's library.
class VendorThreadScope {
 public:
  VendorThreadScope();
  ~VendorThreadScope();
  VendorThreadScope(const VendorThreadScope&) = delete;
  VendorThreadScope& operator=(const VendorThreadScope&) = delete;
};

/// Makes the end of the process wait up to two seconds for all scopes to end; if they do not, the process ends with the
/// same status without taking libraries down. Otherwise NCCL and CUDA would be taken down under these threads, which
/// then crash (seen with ncclCommAbort, which takes a while). Call it once the vendor's libraries are loaded, because
/// what is registered last runs first. Idempotent.
void wait_for_vendor_threads_at_exit();

}  // namespace farandole
