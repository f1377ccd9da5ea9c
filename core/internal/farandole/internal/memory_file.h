// SPDX-License-Identifier: Apache-2.0
// Files that exist in memory only (memfd).
#pragma once

namespace farandole {

/// Creates an empty memory file that is closed on exec, is never executable, and allows sealing. The caller owns the
/// descriptor. @returns the descriptor, or -1 with errno set
int create_memory_file(const char* name);

}  // namespace farandole
