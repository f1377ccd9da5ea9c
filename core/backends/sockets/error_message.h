// SPDX-License-Identifier: Apache-2.0
// An error that one process tells another.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "farandole/core/error.h"

namespace farandole::sockets {

/// Its kind and its text, of which 4 KiB at most.
std::string encode_error(const Error& error);
/// @param sender  for messages: "process 0"   @throws Error  the error that was told   @throws TransportError  these
/// bytes are none
[[noreturn]] void throw_encoded_error(std::span<const std::byte> bytes, const std::string& sender);

}  // namespace farandole::sockets
