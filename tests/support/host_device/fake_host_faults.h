// SPDX-License-Identifier: Apache-2.0
// When host code touches device memory, prints which memory before the fault ends the process.
#pragma once

#include "fake_memory.h"

namespace farandole::fake {

/// From now on, a memory fault of this process at an address of this memory prints a misuse. The process then ends by
/// SIGSEGV, as it does at other addresses. If the program or a sanitizer has installed a handler for SIGSEGV before the
/// first call, that handler stays, and the double prints nothing.
void explain_faults_in(const Allocation& allocation);

}  // namespace farandole::fake
