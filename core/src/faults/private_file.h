// SPDX-License-Identifier: Apache-2.0
// Writes files that only this user can read and write.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace farandole {

/// Writes `text` to a file of mode 0600, replacing an existing file or link of that name; a link is never followed.
/// Creates the directory with mode 0700 if it is missing. Returns an empty text, or the reason of the failure.
std::string write_private_file(const std::string& directory, const std::string& name, std::string_view text);

struct PrivateFile {
  std::string name, text;
};
/// Writes several files as `write_private_file` does, in a thread of its own, because system calls may block for ever
/// if the directory lies on a server that does not answer. Returns an empty text, or the reason of the first failure.
/// If that takes longer than `limit`, returns a text that says so, and the thread continues in the background. If the
/// system refuses a thread, writes in the calling thread, without a limit.
std::string write_private_files(const std::string& directory, std::vector<PrivateFile> files,
                                std::chrono::milliseconds limit);

}  // namespace farandole
