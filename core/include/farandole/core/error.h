// SPDX-License-Identifier: Apache-2.0
// Exceptions of Farandole: one base class, and one class per kind, so that callers catch the kinds they can handle.
//
//   try {
//     ranks.allreduce(values, ReduceOp::kSum);
//   } catch (const PeerLost& error) {  // the job is poisoned: save what you need, and exit
//     …
//   }
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// Kind of an error. The kinds from kTimeout to kDeviceError poison the job: every rank raises the error, in this
/// collective or in its next, and no collective succeeds afterwards. kInvalidArgument and kMismatch leave the
/// communicator usable. Exception: a Mismatch that reports a deadlock between communicators poisons the job.
enum class ErrorKind {
  kInvalidArgument,  ///< An argument, option or setting is wrong. Nothing has happened.
  kUnsupported,      ///< The request is valid but not available here; the message names a way out.
  kMismatch,         ///< Ranks called different collectives. Raised on every rank; the data is untouched.
  kDuplicateName,    ///< A tensor of this name is already pending.
  kTimeout,          ///< A deadline passed; the message names the missing ranks.
  kPeerLost,         ///< A rank died or left the job.
  kTransportError,   ///< The network or MPI reported a fault.
  kDeviceError,      ///< An accelerator reported a fault.
  kDataError,        ///< A file is missing, truncated or corrupt, or does not match the program.
  kInternal,         ///< An invariant of Farandole is broken: a bug.
};

/// Name of a kind as it appears in messages, e.g. "PeerLost".
std::string_view name(ErrorKind kind);

/// True for the kinds that poison the job.
bool poisons_job(ErrorKind kind);

/// Base class of Farandole's exceptions.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

/// Exception class of one kind; use the aliases below.
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

/// Throws the exception class of `kind`.
[[noreturn]] void throw_error(ErrorKind kind, const std::string& message);

}  // namespace FARANDOLE_API
