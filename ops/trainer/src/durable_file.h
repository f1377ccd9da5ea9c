// SPDX-License-Identifier: Apache-2.0
// Files that are on the disk when they are said to be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace farandole::trainer {

/// Writes one new file, which only its user may read. All members throw DataError with the file and the reason (disk
/// full, not writable, …).
class DurableFile {
 public:
  explicit DurableFile(std::filesystem::path file);
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Waits until the disk has everything, and closes. A file that is destroyed without it is incomplete.
  void commit();

 private:
  [[noreturn]] void fail(const char* action) const;

  std::filesystem::path file_;
  int descriptor_ = -1;
};

/// Waits until the disk knows the entries of a directory. @throws DataError
void synchronize_directory(const std::filesystem::path& directory);

/// A new directory, which only its user may enter. @throws DataError  it cannot be made, or exists
void make_private_directory(const std::filesystem::path& directory);

/// The bytes of a file. @throws DataError  it is not there, is no file, is damaged, or has more bytes than `most` or
/// than fit into memory   @throws InvalidArgument  this process may not open it, or has too many files open
std::vector<std::byte> read_file(const std::filesystem::path& file, std::uintmax_t most = UINTMAX_MAX);

}  // namespace farandole::trainer
