// SPDX-License-Identifier: Apache-2.0
// NCCL's collectives as messages: every rank that has a part of the input sends it to each rank that needs it, and each
// rank reduces what it received in the order of ranks. One round, so a collective is one more entry of a group.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "cuda/nccl_api.h"
#include "fake_memory.h"
#include "fake_messages.h"

namespace farandole::fake {

/// A call that enqueues, before its group ends.
struct PlannedCall {
  std::vector<Message> messages;
  std::function<void(Random&)> begin;   ///< before its messages; may be empty
  std::function<void(Random&)> finish;  ///< after its messages; may be empty
  std::vector<Access> accesses;         ///< of the user's memory
};

struct CollectiveArguments {
  CollectiveCall call;
  const void* input = nullptr;
  void* output = nullptr;
  int rank = 0;
  int size = 0;
  double factor = 1.0;  ///< of this rank's input (ncclRedOpCreatePreMulSum)
};

/// Bytes of an element; 0 if NCCL has no such type.
std::size_t bytes_of_type(int type);
/// Why the double cannot reduce so; empty if it can.
std::string why_no_reduction(int type, int op);
/// @param arguments  of a collective that it can do, with a count above 0
PlannedCall plan_collective(const CollectiveArguments& arguments);

}  // namespace farandole::fake
