// SPDX-License-Identifier: Apache-2.0
// The exception class of each kind of error, and the kind of each exception.
#pragma once

#include <exception>
#include <new>

#include "farandole/core/error.h"

namespace farandole {

/// Throws `As<Class>(arguments…)`, where Class is the exception class of `kind`.
template <template <class> class As, class... Arguments>
[[noreturn]] void throw_as(ErrorKind kind, const Arguments&... arguments) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      throw As<InvalidArgument>(arguments...);
    case ErrorKind::kUnsupported:
      throw As<Unsupported>(arguments...);
    case ErrorKind::kMismatch:
      throw As<Mismatch>(arguments...);
    case ErrorKind::kDuplicateName:
      throw As<DuplicateName>(arguments...);
    case ErrorKind::kTimeout:
      throw As<Timeout>(arguments...);
    case ErrorKind::kPeerLost:
      throw As<PeerLost>(arguments...);
    case ErrorKind::kTransportError:
      throw As<TransportError>(arguments...);
    case ErrorKind::kDeviceError:
      throw As<DeviceError>(arguments...);
    case ErrorKind::kDataError:
      throw As<DataError>(arguments...);
    case ErrorKind::kInternal:
      break;
  }
  throw As<InternalError>(arguments...);
}

/// The kind of an Error; kDataError for std::bad_alloc, kInternal for any other exception.
inline ErrorKind kind_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return ErrorKind::kDataError;
  const auto* const known = dynamic_cast<const Error*>(&error);
  return known != nullptr ? known->kind() : ErrorKind::kInternal;
}

}  // namespace farandole
