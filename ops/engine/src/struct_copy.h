// SPDX-License-Identifier: Apache-2.0
// Structures of the C header between a caller and a library of different versions. Each begins with its caller's size,
// `struct_bytes`, and grows at its end only. A new field must not lie in what was padding at the end of the version
// before: the size would not tell which caller has it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace farandole {

/// More than any structure of the interface will ever have.
inline constexpr std::size_t kMaxStructBytes = 4096;

inline std::size_t struct_bytes_of(const void* structure) {
  std::size_t bytes = 0;
  std::memcpy(&bytes, structure, sizeof bytes);
  return bytes;
}

/// Whether some version of `Struct` may be so large. It ends behind a whole field.
template <class Struct>
bool can_be_struct_bytes(std::size_t bytes) {
  return bytes >= sizeof(std::size_t) && bytes <= kMaxStructBytes && bytes % alignof(Struct) == 0;
}

/// For an error: why `bytes` are refused.
inline std::string not_struct_bytes(std::size_t bytes, std::string_view type) {
  return fmt::format("struct_bytes of a {0} is {1}; set it to sizeof({0})", type, bytes);
}

/// What this library knows of a structure of `struct_bytes`; what the caller's does not have is 0.
template <class Struct>
Struct known_part(const void* structure, std::size_t struct_bytes) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  Struct known{};
  std::memcpy(&known, structure, std::min(struct_bytes, sizeof known));
  return known;
}

/// The element that lies `index` structures of the caller's size behind `first`.
inline const void* element_of(const void* first, std::size_t struct_bytes, std::size_t index) {
  return static_cast<const std::byte*>(first) + index * struct_bytes;
}

/// Writes what this library knows into a structure of the caller's, and nothing behind it; nothing at all if its size
/// is no caller's.
template <class Struct>
void fill_known_part(void* structure, Struct found) {
  const std::size_t bytes = struct_bytes_of(structure);
  if (!can_be_struct_bytes<Struct>(bytes)) return;
  std::memcpy(&found, &bytes, sizeof bytes);
  std::memcpy(structure, &found, std::min(bytes, sizeof found));
}

}  // namespace farandole
