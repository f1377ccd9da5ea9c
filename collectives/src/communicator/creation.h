// SPDX-License-Identifier: Apache-2.0
// Agreement of ranks on a new communicator.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/internal/communicator_ids.h"
#include "operation/group.h"
#include "point_to_point/message_queue.h"

namespace farandole {

// How the ranks agree on ids that are free on all of them, while other threads of each rank do the same for other
// communicators:
//
// 1. Each rank reserves its lowest free ids, and offers them. If all ranks offer the same ids, these are the new
//    communicator's.
// 2. Otherwise the ranks agree again: each rank frees its ids and shows which ids it uses, the ranks choose ids that
//    none of them uses (choose_ids), and each rank tries to reserve these. If another thread of a rank has reserved one
//    meanwhile, step 2 begins anew, with another choice.
//
// No rank holds a lock while it waits for another rank. docs/decisions/0070 has the reasons.

/// Arguments of one rank that creates a communicator, which the ranks of the new communicator must agree on.
struct CreationArguments {
  std::int64_t compares = 0;
  std::int64_t table_digest = 0;  ///< 0 for the parent's table
  std::int64_t device_order = 0;
  std::int64_t may_be_direct = 0;  ///< 1 if this rank may enqueue calls directly, see DirectCalls
};
CreationArguments creation_arguments(const CommunicatorOptions& options, const Endpoint& endpoint);
/// Name of an option that must be the same on two ranks and is not; empty if there is none.
std::string_view different_option(const CreationArguments& one, const CreationArguments& other);
/// Text of a Mismatch between two ranks of the parent.
std::string describe_difference(int first_rank, int rank, std::string_view what);

/// Number of ids of a communicator with these options.
std::size_t ids_needed(const CreationArguments& arguments);
/// `count` ids that are free on all ranks; empty if fewer are free. @param used  flags by id, of all ranks
/// @param seed  of the choice; 0 for the lowest ids
std::vector<std::uint16_t> choose_ids(std::span<const std::uint8_t> used, std::size_t count, std::uint64_t seed);
/// Seed for `choose_ids`: 0 at first, then another one for each attempt and communicator, so that threads which are in
/// each other's way choose different ids.
std::uint64_t seed_of(const Group& parent, std::uint64_t ranks_digest, std::uint64_t attempt);
/// Text of an InvalidArgument: too few ids are free.
std::string describe_lack_of_ids();

/// What a rank has reserved.
struct IdOffer {
  static constexpr std::int64_t kNone = -1;
  std::int64_t generation = 0;
  std::int64_t first = kNone, last = kNone;  ///< kNone if nothing is reserved

  static IdOffer of(const CommunicatorIds::Reservation& ids);
  bool has_same_ids(const IdOffer& other) const { return first == other.first && last == other.last; }
};

/// The values on which the ranks of a new communicator have agreed.
struct NewCommunicator {
  std::int64_t generation = 0;
  std::int64_t may_be_direct = 1;  ///< 1 if all ranks may enqueue calls directly
  std::int64_t first_id = 0, last_id = 0;

  void add(const CreationArguments& member) { may_be_direct = may_be_direct != 0 && member.may_be_direct != 0 ? 1 : 0; }
  void add(const IdOffer& member) {
    generation = std::max(generation, member.generation);
    first_id = member.first;
    last_id = member.last;
  }
};

/// Agrees with the other members by messages of the parent, and reserves the ids. The member with the lowest rank in
/// the parent is the coordinator, so that lists of the same ranks in different orders are compared.
/// @throws Mismatch, InvalidArgument  on all members alike   @throws Error  the fault of the job
NewCommunicator agree_with_members(MessageQueue& messages, const Group& parent, std::span<const int> ranks,
                                   const CommunicatorOptions& options, CreationTag tag,
                                   CommunicatorIds::Reservation& ids);

}  // namespace farandole
