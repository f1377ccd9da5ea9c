// SPDX-License-Identifier: Apache-2.0
// Files that are guaranteed to be on the disk after `commit`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace farandole::trainer {

/// Writes a new file with access for the user only. The constructor, `write` and `commit` throw DataError with the file
/// and the reason (disk full, not writable, …).
class DurableFile {
 public:
  explicit DurableFile(std::filesystem::path file);
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Synchronises the file with the disk, and closes it. A file destroyed without `commit` is incomplete.
  void commit();

 private:
  [[noreturn]] void fail(const char* action) const;

  std::filesystem::path file_;
  int descriptor_ = -1;
};

/// Synchronises the entries of a directory with the disk. @throws DataError
void synchronize_directory(const std::filesystem::path& directory);

/// Makes a directory with access for the user only. @throws DataError  the directory cannot be made, or exists already
void make_private_directory(const std::filesystem::path& directory);

/// Reads a file.
/// @throws DataError  the file does not exist, is no regular file, cannot be read to its end, has more than
/// `max_bytes`, or does not fit into memory
/// @throws InvalidArgument  this process may not open the file, or has too many files open
std::vector<std::byte> read_file(const std::filesystem::path& file, std::uintmax_t max_bytes = UINTMAX_MAX);

}  // namespace farandole::trainer
