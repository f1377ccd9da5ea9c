// SPDX-License-Identifier: Apache-2.0
// NCCL's collectives as messages, in one round: every rank sends its part of the input to each rank that needs the
// part, and each rank reduces the received parts in the order of ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "cuda/nccl_api.h"
#include "fake_memory.h"
#include "fake_messages.h"

namespace farandole::fake {

/// A collective or message that a program has called, and that its group will enqueue.
struct PlannedCall {
  std::vector<Message> messages;
  std::function<void(Random&)> begin;   ///< runs before the messages; may be empty
  std::function<void(Random&)> finish;  ///< runs after the messages; may be empty
  std::vector<Access> accesses;         ///< to the user's memory
};

struct CollectiveArguments {
  CollectiveCall call;
  const void* input = nullptr;
  void* output = nullptr;
  int rank = 0;
  int size = 0;
  double factor = 1.0;  ///< of this rank's input (ncclRedOpCreatePreMulSum)
};

/// Returns the size of an element in bytes; 0 if NCCL has no such type.
std::size_t bytes_of_type(int type);
/// Returns why the double cannot reduce this type by this operation; empty if it can.
std::string why_no_reduction(int type, int op);
/// Plans a collective. @param arguments  of a collective that the double supports, with a count above 0
PlannedCall plan_collective(const CollectiveArguments& arguments);

}  // namespace farandole::fake
