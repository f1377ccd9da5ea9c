// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/error.h"

#include "farandole/core/version.h"

namespace farandole {

std::string_view version() {
  return FARANDOLE_VERSION;
}

std::string_view name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return "InvalidArgument";
    case ErrorKind::kUnsupported:
      return "Unsupported";
    case ErrorKind::kMismatch:
      return "Mismatch";
    case ErrorKind::kDuplicateName:
      return "DuplicateName";
    case ErrorKind::kTimeout:
      return "Timeout";
    case ErrorKind::kPeerLost:
      return "PeerLost";
    case ErrorKind::kTransportError:
      return "TransportError";
    case ErrorKind::kDeviceError:
      return "DeviceError";
    case ErrorKind::kDataError:
      return "DataError";
    case ErrorKind::kInternal:
      return "Internal";
  }
  return "unknown";
}

bool poisons_job(ErrorKind kind) {
  return kind == ErrorKind::kTimeout || kind == ErrorKind::kPeerLost || kind == ErrorKind::kTransportError ||
         kind == ErrorKind::kDeviceError;
}

void throw_error(ErrorKind kind, const std::string& message) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      throw InvalidArgument(message);
    case ErrorKind::kUnsupported:
      throw Unsupported(message);
    case ErrorKind::kMismatch:
      throw Mismatch(message);
    case ErrorKind::kDuplicateName:
      throw DuplicateName(message);
    case ErrorKind::kTimeout:
      throw Timeout(message);
    case ErrorKind::kPeerLost:
      throw PeerLost(message);
    case ErrorKind::kTransportError:
      throw TransportError(message);
    case ErrorKind::kDeviceError:
      throw DeviceError(message);
    case ErrorKind::kDataError:
      throw DataError(message);
    case ErrorKind::kInternal:
      break;
  }
  throw InternalError(message);
}

}  // namespace farandole
