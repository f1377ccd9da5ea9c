// SPDX-License-Identifier: Apache-2.0
// What the implementations of the C headers share: translation of errors, and checks of arguments.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "farandole/base.h"
#include "farandole/core/error.h"
#include "farandole/internal/error_classes.h"
#include "farandole/internal/struct_copy.h"

/// Definition of the C headers' opaque error object.
struct farandole_error {  // NOLINT(readability-identifier-naming): declared in C
  farandole::ErrorKind kind = farandole::ErrorKind::kInternal;
  std::string text;
};

namespace farandole {

/// Returns the number in a field of an enumeration type, which in a C program may be a number that is no enumerator.
template <class Enumeration>
int number_in(const Enumeration& field) {
  int number = 0;
  static_assert(sizeof number == sizeof field);
  std::memcpy(&number, &field, sizeof number);
  return number;
}

/// Runs `body` and turns its exception into the error object. Returns 0 for success, otherwise 1.
template <class Body>
int guarded(farandole_error** error, const Body& body) noexcept {
  if (error != nullptr) *error = nullptr;
  farandole_error failure;
  try {
    body();
    return 0;
  } catch (const std::exception& caught) {
    failure = {kind_of(caught), message_of(caught)};
  } catch (...) {
    failure = {ErrorKind::kInternal, "an exception of an unknown type"};
  }
  if (error != nullptr) *error = new (std::nothrow) farandole_error(std::move(failure));
  return 1;
}

/// For functions without an error parameter: returns the result of `body`, or `otherwise` if `body` throws.
template <class Value, class Body>
Value value_or(Value otherwise, const Body& body) noexcept {
  (void)guarded(nullptr, [&] { otherwise = body(); });
  return otherwise;
}

/// @throws InvalidArgument  the pointer is null
template <class Pointer>
void need(Pointer pointer, const char* function, const char* argument) {
  if (pointer == nullptr) throw InvalidArgument(fmt::format("{}: {} is NULL", function, argument));
}

inline std::string_view text_or_none(const char* text) {
  return text == nullptr ? std::string_view() : std::string_view(text);
}

/// Returns a copy of the fields of a caller's options that this library knows; all 0 if `options` is null.
/// @param type  name of the structure, for the error   @throws InvalidArgument  its `struct_bytes` is impossible
template <class Options>
Options known_options(const Options* options, const char* function, const char* type) {
  if (options == nullptr) return {};
  const std::size_t bytes = struct_bytes_of(options);
  if (!can_be_struct_bytes<Options>(bytes)) {
    throw InvalidArgument(fmt::format("{}: {}", function, not_struct_bytes(bytes, type)));
  }
  return known_part<Options>(options, bytes);
}

}  // namespace farandole
