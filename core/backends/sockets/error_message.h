// SPDX-License-Identifier: Apache-2.0
// Errors as messages between processes.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "farandole/core/error.h"

namespace farandole::sockets {

/// Returns the error's kind, followed by at most 4 KiB of the error's text.
std::string encode_error(const Error& error);
/// Throws the error that `encode_error` has encoded in the sending process.
/// @param sender  for messages: "process 0"   @throws Error  the decoded error   @throws TransportError  `bytes` is not
/// an encoded error
[[noreturn]] void throw_encoded_error(std::span<const std::byte> bytes, const std::string& sender);

}  // namespace farandole::sockets
