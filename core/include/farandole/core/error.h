// SPDX-License-Identifier: Apache-2.0
// Exceptions of Farandole: one base class, and one class per kind, so that callers catch the kinds they can handle.
//
//   try {
//     ranks.allreduce(values, ReduceOp::kSum);
//   } catch (const PeerLost& error) {  // the job is poisoned: save what you need, and exit
//     …
//   }
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// Kind of an error. The kinds from kTimeout to kDeviceError poison the job: every rank raises the error, in its
/// current or next collective, and no collective succeeds afterwards. kInvalidArgument and kMismatch leave the
/// communicator usable, with one exception: a Mismatch that reports a deadlock between communicators poisons the job.
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

/// Base class of Farandole's exceptions. `what()` begins with the kind, "Mismatch: rank 0 …", so that the report of an
/// uncaught exception names the kind, too. Use `message()` to embed the text in another message, or to print the kind
/// separately.
class Error : public std::runtime_error {
 public:
  /// @param message  without the kind
  Error(ErrorKind kind, const std::string& message);
  ErrorKind kind() const { return kind_; }
  /// Returns `what()` without the kind: a pointer into that text, valid as long as `what()` is.
  const char* message() const noexcept;

 private:
  ErrorKind kind_;
};

/// Returns `message()` if `error` is an Error, advice for std::bad_alloc, else `what()`.
const char* message_of(const std::exception& error) noexcept;

// One class per kind; ErrorKind says what each kind means.

class InvalidArgument : public Error {
 public:
  explicit InvalidArgument(const std::string& message) : Error(ErrorKind::kInvalidArgument, message) {}
};
class Unsupported : public Error {
 public:
  explicit Unsupported(const std::string& message) : Error(ErrorKind::kUnsupported, message) {}
};
class Mismatch : public Error {
 public:
  explicit Mismatch(const std::string& message) : Error(ErrorKind::kMismatch, message) {}
};
class DuplicateName : public Error {
 public:
  explicit DuplicateName(const std::string& message) : Error(ErrorKind::kDuplicateName, message) {}
};
class Timeout : public Error {
 public:
  explicit Timeout(const std::string& message) : Error(ErrorKind::kTimeout, message) {}
};
class PeerLost : public Error {
 public:
  explicit PeerLost(const std::string& message) : Error(ErrorKind::kPeerLost, message) {}
};
class TransportError : public Error {
 public:
  explicit TransportError(const std::string& message) : Error(ErrorKind::kTransportError, message) {}
};
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message) : Error(ErrorKind::kDeviceError, message) {}
};
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(ErrorKind::kDataError, message) {}
};
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ErrorKind::kInternal, message) {}
};

/// Throws the exception class of `kind`.
[[noreturn]] void throw_error(ErrorKind kind, const std::string& message);

}  // namespace FARANDOLE_API
