// SPDX-License-Identifier: Apache-2.0
#include "sockets/error_message.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace farandole::sockets {
namespace {

constexpr std::size_t kMaxTextBytes = 4096;

}  // namespace

std::string encode_error(const Error& error) {
  const auto kind = static_cast<std::uint32_t>(error.kind());
  std::string message(reinterpret_cast<const char*>(&kind), sizeof kind);
  message += std::string_view(error.message()).substr(0, kMaxTextBytes);
  return message;
}

void throw_encoded_error(std::span<const std::byte> bytes, const std::string& sender) {
  std::uint32_t kind = 0;
  if (bytes.size() < sizeof kind || bytes.size() > sizeof kind + kMaxTextBytes) {
    throw TransportError(fmt::format("{} has sent an error of {} bytes", sender, bytes.size()));
  }
  std::memcpy(&kind, bytes.data(), sizeof kind);
  if (kind > static_cast<std::uint32_t>(ErrorKind::kInternal)) {
    throw TransportError(fmt::format("{} has sent an error of kind {}", sender, kind));
  }
  const auto text = bytes.subspan(sizeof kind);
  throw_error(static_cast<ErrorKind>(kind), std::string(reinterpret_cast<const char*>(text.data()), text.size()));
}

}  // namespace farandole::sockets
