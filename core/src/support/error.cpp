// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/error.h"

#include <utility>

#include "farandole/core/version.h"
#include "farandole/internal/choice.h"

namespace farandole {
namespace {

constexpr Words<10> kErrorNames{"InvalidArgument", "Unsupported",    "Mismatch",    "DuplicateName", "Timeout",
                                "PeerLost",        "TransportError", "DeviceError", "DataError",     "Internal"};
static_assert(kErrorNames.size() == static_cast<std::size_t>(ErrorKind::kInternal) + 1);

template <ErrorKind kKind>
void throw_if(ErrorKind kind, const std::string& message) {
  if (kind == kKind) throw ErrorOfKind<kKind>(message);
}

template <std::size_t... kKinds>
[[noreturn]] void throw_one_of(ErrorKind kind, const std::string& message, std::index_sequence<kKinds...>) {
  (throw_if<static_cast<ErrorKind>(kKinds)>(kind, message), ...);
  throw InternalError(message);
}

}  // namespace

std::string_view version() {
  return FARANDOLE_VERSION;
}

std::string_view name(ErrorKind kind) {
  return word_of(kind, kErrorNames);
}

bool poisons_job(ErrorKind kind) {
  return kind == ErrorKind::kTimeout || kind == ErrorKind::kPeerLost || kind == ErrorKind::kTransportError ||
         kind == ErrorKind::kDeviceError;
}

void throw_error(ErrorKind kind, const std::string& message) {
  throw_one_of(kind, message, std::make_index_sequence<kErrorNames.size()>());
}

}  // namespace farandole
