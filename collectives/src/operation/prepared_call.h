// SPDX-License-Identifier: Apache-2.0
// A call, and everything that follows from its arguments.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "operation/call.h"
#include "operation/descriptor.h"
#include "selection/selection.h"

namespace farandole {

/// A call on its way into the queue. The constructor computes what follows from the arguments, once: validation and
/// selection, the descriptor and the queue read it here. Then either `accept` or `refuse` completes the call. Lives on
/// the stack of the caller, allocates nothing for a valid call, and refers to the caller's arguments.
struct PreparedCall {
  /// @param arguments  outlive this object   @param size  ranks of the communicator
  PreparedCall(const Call& arguments, int size) : call(arguments), space(space_of(call)) {
    if (has_parts(call.collective)) parts = parts_of(call, size);
    if (call.collective == Collective::kAlltoall) recv_parts = recv_parts_of(call, size);
    total = has_parts(call.collective) ? std::max(parts.total(), recv_parts.total()) : call.input.count;
    bytes = call.exchanges_counts() ? kUnknownBytes : total * size_in_bytes(call.input.dtype);
  }

  /// Completes a valid call.
  void accept(const Selection& selected) {
    selection = selected;
    descriptor = describe_call(*this);
  }
  /// Completes a call that this rank refuses: the ranks compare their calls, then this rank throws InvalidArgument.
  void refuse(std::string error) {
    validation_error = std::move(error);
    selection = Selection::schedule(algorithms().front(), 1);
    descriptor = describe_call(*this);
  }
  bool is_valid() const { return validation_error.empty(); }

  const Call& call;
  MemorySpace space;      ///< of the buffers, see space_of()
  Parts parts;            ///< see parts_of(); empty for collectives that do not divide the vector
  Parts recv_parts;       ///< see recv_parts_of(); empty for all collectives but alltoall
  std::size_t total = 0;  ///< elements of the whole vector, see total_count()
  std::size_t bytes = 0;  ///< of the whole vector, see selected_bytes()
  Selection selection;
  Descriptor descriptor;
  std::string validation_error;  ///< why this rank refuses the call; empty for a valid call
};

}  // namespace farandole
