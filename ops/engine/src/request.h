// SPDX-License-Identifier: Apache-2.0
// What ranks compare of a request: its name and everything that must be the same on all of them.
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

/// The first six are those of farandole_collective, the others the engine's own.
enum class RequestKind : std::uint8_t {
  kAllreduce,
  kAllgather,
  kBroadcast,
  kAlltoall,
  kReduceScatter,
  kBarrier,
  kAddSet,     ///< `arguments` are the ranks of the job that form it
  kRemoveSet,  ///< `arguments` is its id
  kRefused,    ///< this rank's request can not work, `about` says why: takes its place where ranks compare
};
std::string_view name(RequestKind kind);

struct TensorSpec {
  DType dtype = DType::kU8;
  /// Without the first dimension where it may differ from rank to rank (allgather, alltoall).
  std::vector<std::int64_t> shape;
  MemoryKind memory = MemoryKind::kHost;  ///< without the ordinal: ranks use devices of their own
  bool operator==(const TensorSpec&) const = default;

  std::size_t count() const;
  std::size_t size_in_bytes() const { return count() * farandole::size_in_bytes(dtype); }
};

/// More bytes than a process has address space for.
inline constexpr std::int64_t kMaxTensorBytes = std::int64_t{1} << 47;
/// Whether there can be a tensor of this shape: no length is negative, and no product of them is more than that.
bool is_possible(DType dtype, const std::vector<std::int64_t>& shape);

struct RequestSpec {
  std::string name;
  RequestKind kind = RequestKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  bool adasum = false;
  int root = -1;  ///< within the process set
  double prescale = 1.0, postscale = 1.0;
  std::vector<TensorSpec> tensors;
  std::vector<std::int64_t> arguments;
  std::string about;      ///< what else the ranks have to agree on, for people
  bool by_order = false;  ///< the name was made from the order of calls, and comes again for other tensors
  bool operator==(const RequestSpec&) const = default;

  std::size_t size_in_bytes() const;
};
using SharedSpec = std::shared_ptr<const RequestSpec>;

/// "allreduce 'w' f32[3, 4] sum"
std::string describe(const RequestSpec& spec);
/// A message that is about many requests, or ranks, names this many.
inline constexpr std::size_t kNamesShown = 5;

/// What became of a request that failed.
struct RequestError {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
};
RequestError as_request_error(const std::exception& error);

/// Tells the requests of one rank apart; 0: the rank has none, because it has joined.
using Ticket = std::uint64_t;

struct FailedRequest {
  Ticket ticket = 0;
  RequestError error;
};

/// What waits for a request.
enum class Waiting : std::uint8_t {
  kNobody,
  kProgram,  ///< the program, which may submit more meanwhile: what else of a function runs beside it
  kCaller,   ///< its thread, which can do nothing else
};

/// A request as its rank announces it.
struct Announcement {
  SharedSpec spec;       ///< null: not announced
  bool in_step = false;  ///< it fails with the step that it belongs to
};

/// Why a rank takes part in a process set no more.
enum class Departure : std::uint8_t { kNone, kLeavesJob, kSetRemoved };

/// What one rank announces in a negotiation in which some rank has announcements.
struct Announcements {
  std::vector<Announcement> requests;  ///< that the other ranks do not know by number
  bool joins = false;
  Departure departs = Departure::kNone;
  /// This rank waits for these names, and can do nothing else until one of them is done.
  std::vector<std::string> waits_for;
  bool empty() const { return requests.empty() && !joins && departs == Departure::kNone && waits_for.empty(); }

  /// Ranks that receive more refuse it.
  static constexpr std::int64_t kMaxBytes = 256 << 20;
  std::string encode() const;
  /// @throws TransportError  another rank can not have meant these bytes: they are none of `encode`, or they speak of
  /// types, operations or shapes that there are not
  static Announcements decode(std::string_view bytes);
};

}  // namespace farandole
