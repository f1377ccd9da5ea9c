// SPDX-License-Identifier: Apache-2.0
// Files that exist in memory only.
#pragma once

namespace farandole {

/// A new, empty memory file that is closed on exec, is never executable, and whose seals can be set. The caller owns
/// the descriptor. @returns -1 with errno
int create_memory_file(const char* name);

}  // namespace farandole
