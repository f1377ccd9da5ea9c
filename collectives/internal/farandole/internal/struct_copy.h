// SPDX-License-Identifier: Apache-2.0
// Copies the C header's structures between callers and libraries of different versions. Each structure begins with the
// caller's size, `struct_bytes`, and grows at its end only. A new field must not occupy bytes that were padding at the
// end of the previous version, because then the size would not tell whether the caller has the field.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace farandole {

/// Maximum of `struct_bytes`, above any structure that the interface will ever have.
inline constexpr std::size_t kMaxStructBytes = 4096;

/// Reads the size field of any structure of the interface.
inline std::size_t struct_bytes_of(const void* structure) {
  std::size_t bytes = 0;
  std::memcpy(&bytes, structure, sizeof bytes);
  return bytes;
}

/// True if a version of `Struct` may have this size: the size field fits, and the size is a multiple of the alignment
/// and at most kMaxStructBytes.
template <class Struct>
bool can_be_struct_bytes(std::size_t bytes) {
  return bytes >= sizeof(std::size_t) && bytes <= kMaxStructBytes && bytes % alignof(Struct) == 0;
}

/// Makes the error text for an impossible `struct_bytes`.
inline std::string not_struct_bytes(std::size_t bytes, std::string_view type) {
  return fmt::format("struct_bytes of a {0} is {1}; set it to sizeof({0})", type, bytes);
}

/// Returns a copy of the fields that this library knows; fields that the caller does not have are 0.
template <class Struct>
Struct known_part(const void* structure, std::size_t struct_bytes) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  Struct known{};
  std::memcpy(&known, structure, std::min(struct_bytes, sizeof known));
  return known;
}

/// Returns the address of element `index` of an array whose elements have the caller's size.
inline const void* element_of(const void* first, std::size_t struct_bytes, std::size_t index) {
  return static_cast<const std::byte*>(first) + index * struct_bytes;
}

/// Writes the fields that the caller's version has, up to the caller's size. No-op if that size is impossible.
template <class Struct>
void fill_known_part(void* structure, Struct found) {
  const std::size_t bytes = struct_bytes_of(structure);
  if (!can_be_struct_bytes<Struct>(bytes)) return;
  std::memcpy(&found, &bytes, sizeof bytes);
  std::memcpy(structure, &found, std::min(bytes, sizeof found));
}

}  // namespace farandole
