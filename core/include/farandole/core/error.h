// SPDX-License-Identifier: Apache-2.0
// Errors: one base class, one class per kind, so that callers catch what they can act on.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// What went wrong. The kinds from kTimeout to kDeviceError poison the job: every rank raises, now or in its next call.
enum class ErrorKind {
  kInvalidArgument,  ///< A call, option or setting that can not work; nothing happened.
  kUnsupported,      ///< Valid, but not available here; the message names the way out.
  kMismatch,         ///< Ranks called different collectives; raised on every rank, data untouched, communicator usable.
  kDuplicateName,    ///< A tensor name is already pending.
  kTimeout,          ///< A deadline passed; the message names the ranks that were missing.
  kPeerLost,         ///< A rank died or left the job.
  kTransportError,   ///< The network or MPI reported a fault.
  kDeviceError,      ///< An accelerator reported a fault.
  kDataError,        ///< A file is missing, cut, altered, or does not fit.
  kInternal,         ///< A broken invariant of Farandole itself.
};

/// The kind's name as it appears in messages, e.g. "PeerLost".
std::string_view name(ErrorKind kind);

/// True for the kinds after which no collective of the job can succeed.
bool poisons_job(ErrorKind kind);

/// Base of all exceptions that Farandole throws on purpose.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

/// The class of one kind; use the aliases below.
template <ErrorKind kKind>
class ErrorOfKind : public Error {
 public:
  explicit ErrorOfKind(const std::string& message) : Error(kKind, message) {}
};

using InvalidArgument = ErrorOfKind<ErrorKind::kInvalidArgument>;
using Unsupported = ErrorOfKind<ErrorKind::kUnsupported>;
using Mismatch = ErrorOfKind<ErrorKind::kMismatch>;
using DuplicateName = ErrorOfKind<ErrorKind::kDuplicateName>;
using Timeout = ErrorOfKind<ErrorKind::kTimeout>;
using PeerLost = ErrorOfKind<ErrorKind::kPeerLost>;
using TransportError = ErrorOfKind<ErrorKind::kTransportError>;
using DeviceError = ErrorOfKind<ErrorKind::kDeviceError>;
using DataError = ErrorOfKind<ErrorKind::kDataError>;
using InternalError = ErrorOfKind<ErrorKind::kInternal>;

/// Throws the class that belongs to `kind`.
[[noreturn]] void throw_error(ErrorKind kind, const std::string& message);

}  // namespace FARANDOLE_API
