// SPDX-License-Identifier: Apache-2.0
// The description of a request (its name, and everything else that must be the same on all ranks), which the ranks
// compare, and the messages in which the ranks announce requests.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/buffer.h"
#include "farandole/core/dtype.h"
#include "farandole/core/error.h"

namespace farandole {

/// Kinds of requests. The first six are the values of farandole_collective; only the engine makes the others.
enum class RequestKind : std::uint8_t {
  kAllreduce,
  kAllgather,
  kBroadcast,
  kAlltoall,
  kReduceScatter,
  kBarrier,
  kAddSet,     ///< makes a process set; `arguments` are its ranks in the job
  kRemoveSet,  ///< removes a process set; `arguments` is its id
  kRefused,    ///< takes the place of a request that this rank cannot make, for the reason `about`
};
std::string_view name(RequestKind kind);

/// The part of a tensor that must be the same on all ranks.
struct TensorSpec {
  DType dtype = DType::kU8;
  /// The dimensions. For allgather and alltoall without the first dimension, which may differ from rank to rank.
  std::vector<std::int64_t> shape;
  MemoryKind memory = MemoryKind::kHost;  ///< without the device's ordinal, because each rank uses its own device
  bool operator==(const TensorSpec&) const = default;

  std::size_t count() const;
  std::size_t size_in_bytes() const { return count() * farandole::size_in_bytes(dtype); }
};

/// Maximum size of a tensor in bytes: the address space of a process.
inline constexpr std::int64_t kMaxTensorBytes = std::int64_t{1} << 47;
/// True if a tensor of this shape can exist: no length is negative, and their product times the element's size is at
/// most kMaxTensorBytes.
bool is_possible(DType dtype, const std::vector<std::int64_t>& shape);

/// Description of a request: ranks that submit the same name must submit equal descriptions.
struct RequestSpec {
  std::string name;
  RequestKind kind = RequestKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  bool adasum = false;
  int root = -1;  ///< rank in the process set; -1: the collective has no root
  double prescale = 1.0, postscale = 1.0;
  std::vector<TensorSpec> tensors;
  std::vector<std::int64_t> arguments;
  std::string about;      ///< further property that the ranks must agree on, as text for people
  bool by_order = false;  ///< the name was made from the order of calls, and is reused for other tensors
  bool operator==(const RequestSpec&) const = default;

  std::size_t size_in_bytes() const;
};
using SharedSpec = std::shared_ptr<const RequestSpec>;

/// Text for messages: "allreduce 'w' f32[3, 4] sum".
std::string describe(const RequestSpec& spec);
/// Messages about many requests or ranks list at most this many of them.
inline constexpr std::size_t kNamesShown = 5;

/// Error of a failed request. Exceptions are converted to this type before they cross threads or ranks.
struct RequestError {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
};
RequestError as_request_error(const std::exception& error);

/// Number of a request, unique on its rank. 0: no request, because the rank has joined.
using Ticket = std::uint64_t;

struct FailedRequest {
  Ticket ticket = 0;
  RequestError error;
};

/// Who waits for a request. A greater value is a stronger promise that this rank does nothing else meanwhile.
enum class Waiting : std::uint8_t {
  kNobody,
  kProgram,  ///< the program, which may submit more meanwhile from other threads
  kCaller,   ///< the submitting thread, which does nothing else meanwhile
};

/// A rank's announcement of a request.
struct Announcement {
  SharedSpec spec;       ///< null: the rank has not announced the request
  bool in_step = false;  ///< belongs to a step (StepFailures), and fails with it
};

/// Why a rank leaves a process set.
enum class Departure : std::uint8_t { kNone, kLeavesJob, kSetRemoved };

/// All announcements of a rank in a negotiation.
struct Announcements {
  std::vector<Announcement> requests;  ///< requests without a slot
  bool joins = false;
  Departure departs = Departure::kNone;
  /// Confirms a suspected deadlock (DeadlockDetector): this rank waits for requests of these names, and does nothing
  /// else until one of these requests is done.
  std::vector<std::string> waits_for;
  bool empty() const { return requests.empty() && !joins && departs == Departure::kNone && waits_for.empty(); }

  /// Maximum length of an encoded message in bytes; receivers reject longer messages.
  static constexpr std::int64_t kMaxBytes = 256 << 20;
  /// Encodes as CBOR.
  std::string encode() const;
  /// @throws TransportError  `encode` cannot have made the bytes; for example, a type, operation or shape does not
  /// exist
  static Announcements decode(std::string_view bytes);
};

}  // namespace farandole
