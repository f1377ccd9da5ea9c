// SPDX-License-Identifier: Apache-2.0
// When host code touches device memory, prints which memory before the fault ends the process.
#pragma once

#include "fake_memory.h"

namespace farandole::fake {

/// From now on a fault of this process at an address of this memory prints a misuse. The process ends by SIGSEGV as it
/// would without; so do all other faults. Where the program or a sanitizer has a handler for SIGSEGV before the first
/// call, that one stays, and the double is silent.
void explain_faults_in(const Allocation& allocation);

}  // namespace farandole::fake
