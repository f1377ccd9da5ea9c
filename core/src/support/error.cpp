// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/error.h"

#include <new>
#include <string>
#include <type_traits>

#include "farandole/core/version.h"
#include "farandole/internal/choice.h"
#include "farandole/internal/error_classes.h"

namespace farandole {
namespace {

constexpr Words<10> kErrorNames{"InvalidArgument", "Unsupported",    "Mismatch",    "DuplicateName", "Timeout",
                                "PeerLost",        "TransportError", "DeviceError", "DataError",     "Internal"};
static_assert(kErrorNames.size() == static_cast<std::size_t>(ErrorKind::kInternal) + 1);

constexpr std::string_view kAfterKind = ": ";

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

Error::Error(ErrorKind kind, const std::string& message)
    : std::runtime_error(std::string(name(kind)) + std::string(kAfterKind) + message), kind_(kind) {}

const char* Error::message() const noexcept {
  return what() + name(kind_).size() + kAfterKind.size();
}

const char* message_of(const std::exception& error) noexcept {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "out of memory: the process cannot get as much host memory as it needs; take smaller batches, models or "
           "data, or raise its limit (ulimit -v, the container's memory)";
  }
  const auto* const known = dynamic_cast<const Error*>(&error);
  return known != nullptr ? known->message() : error.what();
}

void throw_error(ErrorKind kind, const std::string& message) {
  throw_as<std::type_identity_t>(kind, message);
}

}  // namespace farandole
