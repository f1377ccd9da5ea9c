// SPDX-License-Identifier: Apache-2.0
// What a caller asked for, where there is little to say.
#pragma once

#include <cstddef>

#include "operation/call.h"

namespace farandole {

/// A call with equal parts, nothing to scale, and the choice of an algorithm left to us; without memory of its own.
struct ShortCall {
  Collective collective = Collective::kBarrier;
  ConstBufferView input;  ///< of a rank that has none: without elements, and of the output's type
  BufferView output;
  ReduceOp op = ReduceOp::kSum;
  int root = -1;
};

/// Elements of the whole vector among `size` ranks, as for a Call.
std::size_t total_count(const ShortCall& call, int size);
/// True if validate() would have nothing to say; false also where it would only have to look closer.
bool is_plainly_valid(const ShortCall& call, int rank, int size);
/// The same call in full. The call is plainly valid.
Call in_full(const ShortCall& call, int size);

}  // namespace farandole
