// SPDX-License-Identifier: Apache-2.0
// Files that only this user reads and writes.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace farandole {

/// Puts `text` into a file that only this user can read and write, in place of what was there under that name: a link
/// that somebody has laid there is replaced, not followed. Makes the directory, for this user alone, if it is missing.
/// Returns why it can not, or nothing.
std::string write_private_file(const std::string& directory, const std::string& name, std::string_view text);

struct PrivateFile {
  std::string name, text;
};
/// The same for several files, by a thread of its own: the directory may lie on a server that does not answer, and then
/// nothing ends a call of the system. Returns after `limit` at most, and then that thread goes on by itself.
std::string write_private_files(const std::string& directory, std::vector<PrivateFile> files,
                                std::chrono::milliseconds limit);

}  // namespace farandole
