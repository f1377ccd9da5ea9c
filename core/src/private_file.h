// SPDX-License-Identifier: Apache-2.0
// Files that only this user reads and writes.
#pragma once

#include <string>
#include <string_view>

namespace farandole {

/// Puts `text` into a file that only this user can read and write, in place of what was there under that name: a link
/// that somebody has laid there is replaced, not followed. Makes the directory, for this user alone, if it is missing.
/// Returns why it can not, or nothing.
std::string write_private_file(const std::string& directory, const std::string& name, std::string_view text);

}  // namespace farandole
