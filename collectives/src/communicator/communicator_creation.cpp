// SPDX-License-Identifier: Apache-2.0
// Creation of communicators: `of_world`, `split`, `duplicate` and `of_members`.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "communicator/communicator_state.h"
#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/internal/digest.h"
#include "farandole/internal/fixed_text.h"

namespace farandole {

Communicator Communicator::of_world(World& world, int replica) {
  if (replica < 0 || replica >= world.replicas()) {
    throw InvalidArgument(fmt::format("replica {} is not one of this process's 0 … {}", replica, world.replicas() - 1));
  }
  constexpr std::uint16_t kWorldId = 0;
  Group group;
  group.endpoint = world.endpoint(replica).share();
  if (group.endpoint->communicator_ids().used()[kWorldId] != 0) {
    throw InvalidArgument("the communicator of this world exists already; use its duplicate()");
  }
  const std::string& file = group.endpoint->settings().collectives.tuning;
  if (!file.empty()) {
    group.table = std::make_shared<TuningTable>(TuningTable::parse(group.endpoint->tuning_text(), file));
  }
  group.endpoint->late_ranks().set_has_left(false);
  group.compares = group.endpoint->settings().collectives.check != "off";
  group.id = kWorldId;
  group.generation = group.endpoint->communicator_ids().generation_of(kWorldId) + 1;
  group.rank = group.endpoint->rank();
  for (int rank = 0; rank < world.size(); ++rank) group.members.push_back(rank);
  return Communicator(std::make_shared<State>(std::move(group)));
}

namespace {

/// Arguments of one rank that creates a communicator, which the ranks of the new communicator must agree on.
struct CreationArguments {
  std::int64_t compares = 0;
  std::int64_t table_digest = 0;  ///< 0 for the parent's table
  std::int64_t device_order = 0;
  std::int64_t may_be_direct = 0;  ///< 1 if this rank may enqueue calls directly, see DirectCalls
  std::int64_t generation = 0;     ///< proposed by the rank, see CommunicatorIds
};

/// Arguments of one rank's `split`, which the ranks gather.
struct SplitArguments {
  std::int64_t color, key;
  CreationArguments creation;
};

std::int64_t digest(const TuningTable& table) {
  return static_cast<std::int64_t>(Digest().add(table.to_json()).value());
}

CreationArguments creation_arguments(const CommunicatorOptions& options, const Endpoint& endpoint,
                                     const CommunicatorIds& ids) {
  return {options.compare, options.table == nullptr ? 0 : digest(*options.table),
          static_cast<std::int64_t>(options.device_order), DirectCalls::are_possible(endpoint),
          static_cast<std::int64_t>(ids.propose_generation())};
}

/// Name of an option that must be the same on two ranks and is not; empty if there is none.
std::string_view different_option(const CreationArguments& one, const CreationArguments& other) {
  if (one.device_order != other.device_order) return "values of `device_order`";
  if (one.compares != other.compares) return "values of `compare`";
  return one.table_digest != other.table_digest ? "tables" : "";
}

/// Text of a Mismatch between two ranks of the parent.
std::string describe_difference(int first_rank, int rank, std::string_view what) {
  return fmt::format(
      "making a communicator: rank {} and rank {} pass different {}; all of its ranks must pass the same", first_rank,
      rank, what);
}

/// The lowest `count` ids that no rank uses. @throws InvalidArgument  fewer ids are free
std::vector<std::uint16_t> free_ids(std::span<const std::uint8_t> used, std::size_t count) {
  std::vector<std::uint16_t> ids;
  for (std::size_t id = 0; id < used.size() && ids.size() < count; ++id) {
    if (used[id] == 0) ids.push_back(static_cast<std::uint16_t>(id));
  }
  if (ids.size() < count) {
    throw InvalidArgument(fmt::format("no communicator id is free: {} are in use; destroy some", used.size()));
  }
  return ids;
}

/// Number of ids of a communicator with these options.
std::size_t ids_needed(const CreationArguments& arguments) {
  return arguments.device_order == static_cast<std::int64_t>(CommunicatorOptions::DeviceOrder::kCaller) ? 2 : 1;
}

/// The values on which the ranks of a new communicator have agreed.
struct NewCommunicator {
  std::int64_t generation = 0;
  std::int64_t may_be_direct = 1;  ///< 1 if all ranks may enqueue calls directly
  std::int64_t first_id = 0, last_id = 0;

  void add(const CreationArguments& member) {
    generation = std::max(generation, member.generation);
    may_be_direct = may_be_direct != 0 && member.may_be_direct != 0 ? 1 : 0;
  }
  void set_ids(const std::vector<std::uint16_t>& ids) {
    first_id = ids.front();
    last_id = ids.back();
  }
};

/// Checks the options of this rank. @throws InvalidArgument
void check_own(const CommunicatorOptions& options) {
  if (options.table != nullptr) options.table->check();
  if (!(options.timeout.count() >= 0)) {
    throw InvalidArgument(
        fmt::format("making a communicator: timeout is {} s; expected a time, or 0 for FARANDOLE_TIMEOUT",
                    options.timeout.count()));
  }
}

/// @param ranks  ranks of the parent, in the order of the new communicator
Group make_group(const Group& parent, std::span<const int> ranks, const CommunicatorOptions& options,
                 const NewCommunicator& agreed) {
  Group group;
  group.endpoint = parent.endpoint;
  group.table = options.table == nullptr ? parent.table : std::make_shared<TuningTable>(*options.table);
  group.progress = options.progress;
  group.compares = options.compare || parent.endpoint->settings().collectives.check != "off";
  group.watches = options.watch;
  group.timeout = options.timeout;
  group.name = options.name;
  group.id = static_cast<std::uint16_t>(agreed.first_id);
  group.generation = static_cast<std::uint64_t>(agreed.generation);
  const bool is_direct = options.device_order == CommunicatorOptions::DeviceOrder::kCaller && agreed.may_be_direct != 0;
  if (is_direct) group.direct = CommunicatorKey{static_cast<std::uint16_t>(agreed.last_id), group.generation};
  for (const int rank : ranks) {
    if (rank == parent.rank) group.rank = group.size();
    group.members.push_back(parent.member(rank));
  }
  return group;
}

}  // namespace

Communicator Communicator::split(int color, int key, const CommunicatorOptions& options) {
  const Group& parent = state().group();
  check_own(options);
  CommunicatorIds& ids = parent.endpoint->communicator_ids();
  const std::lock_guard creating(ids.creation_mutex());
  const SplitArguments own{color, key, creation_arguments(options, *parent.endpoint, ids)};
  std::vector<SplitArguments> members(static_cast<std::size_t>(size()));
  constexpr std::size_t kFields = sizeof(SplitArguments) / sizeof(std::int64_t);
  allgather({&own.color, kFields, DType::kI64}, {&members.front().color, kFields * members.size(), DType::kI64});
  std::vector<std::uint8_t> used = ids.used();
  allreduce(used, ReduceOp::kMax);
  if (color < 0) return {};
  NewCommunicator agreed;
  agreed.set_ids(free_ids(used, ids_needed(own.creation)));
  std::vector<std::pair<std::int64_t, int>> order;  // (key, rank in the parent)
  for (int rank = 0; rank < size(); ++rank) {
    const SplitArguments& member = members[static_cast<std::size_t>(rank)];
    agreed.generation = std::max(agreed.generation, member.creation.generation);
    if (member.color != color) continue;
    order.emplace_back(member.key, rank);
    const int first = order.front().second;
    const std::string_view different =
        different_option(members[static_cast<std::size_t>(first)].creation, member.creation);
    if (!different.empty()) throw Mismatch(describe_difference(first, rank, different));
    agreed.add(member.creation);
  }
  ids.accept_generation(static_cast<std::uint64_t>(agreed.generation));
  std::sort(order.begin(), order.end());
  std::vector<int> ranks;
  for (const auto& [unused, rank] : order) ranks.push_back(rank);
  return Communicator(std::make_shared<State>(make_group(parent, ranks, options, agreed)));
}

Communicator Communicator::duplicate(const CommunicatorOptions& options) {
  return split(0, rank(), options);
}

namespace {

/// Message of a member to the coordinator of a new communicator.
struct Proposal {
  std::uint64_t ranks_digest = 0;
  CreationArguments arguments;
  std::array<std::uint8_t, kMaxCommunicators> used{};  ///< ids, see CommunicatorIds::used
};
static_assert(sizeof(Proposal) <= kMaxShortBytes);

/// Answer of the coordinator to each member.
struct Decision {
  std::int64_t error = kNoError;  ///< an ErrorKind, or kNoError
  NewCommunicator agreed;
  char text[512] = {};  ///< of the error
  static constexpr std::int64_t kNoError = -1;
};
static_assert(sizeof(Decision) <= kMaxShortBytes);

template <class Part>
BufferView bytes_of(Part& part) {
  return {&part, sizeof part, DType::kU8};
}

std::uint64_t digest_of_ranks(std::span<const int> ranks) {
  Digest digest;
  for (const int rank : ranks) digest.add(static_cast<std::uint64_t>(rank));
  return digest.value();
}

Proposal propose(const Group& parent, std::span<const int> ranks, const CommunicatorOptions& options) {
  const CommunicatorIds& ids = parent.endpoint->communicator_ids();
  Proposal proposal;
  proposal.ranks_digest = digest_of_ranks(ranks);
  proposal.arguments = creation_arguments(options, *parent.endpoint, ids);
  const std::vector<std::uint8_t> used = ids.used();
  std::copy(used.begin(), used.end(), proposal.used.begin());
  return proposal;
}

/// @throws InvalidArgument  `ranks` is no list of different ranks of the parent that includes this rank
void check_members(const Group& parent, std::span<const int> ranks) {
  if (ranks.empty()) throw InvalidArgument("of_members: the list of ranks is empty");
  std::vector<bool> is_listed(static_cast<std::size_t>(parent.size()));
  for (const int rank : ranks) {
    if (rank < 0 || rank >= parent.size()) {
      throw InvalidArgument(
          fmt::format("of_members: rank {} is not one of 0 … {}, the ranks of the parent", rank, parent.size() - 1));
    }
    if (is_listed[static_cast<std::size_t>(rank)]) {
      throw InvalidArgument(fmt::format("of_members: rank {} is in the list twice", rank));
    }
    is_listed[static_cast<std::size_t>(rank)] = true;
  }
  if (!is_listed[static_cast<std::size_t>(parent.rank)]) {
    throw InvalidArgument(
        fmt::format("of_members: the caller, rank {}, is not in the list of ranks; only the members of the new "
                    "communicator call of_members",
                    parent.rank));
  }
}

Decision decide(const Group& parent, std::span<const int> members, std::span<const Proposal> proposals) {
  Decision decision;
  const auto refuse = [&](ErrorKind kind, const std::string& text) {
    decision.error = static_cast<std::int64_t>(kind);
    write_text(decision.text, text);
    return decision;
  };
  const Proposal& own = proposals.front();
  std::array<std::uint8_t, kMaxCommunicators> used{};
  for (std::size_t i = 0; i < proposals.size(); ++i) {
    const Proposal& proposal = proposals[i];
    const std::string_view different = proposal.ranks_digest != own.ranks_digest
                                           ? "lists of ranks"
                                           : different_option(own.arguments, proposal.arguments);
    if (!different.empty()) {
      return refuse(ErrorKind::kMismatch, describe_difference(parent.rank, members[i], different));
    }
    decision.agreed.add(proposal.arguments);
    for (std::size_t id = 0; id < used.size(); ++id) used[id] = std::max(used[id], proposal.used[id]);
  }
  try {
    decision.agreed.set_ids(free_ids(used, ids_needed(own.arguments)));
  } catch (const InvalidArgument& error) {
    return refuse(error.kind(), error.message());
  }
  return decision;
}

/// Agrees with the other members, by messages. The member with the lowest rank in the parent is the coordinator, so
/// that lists of the same ranks in different orders are compared.
Decision agree_with_members(MessageQueue& messages, const Group& parent, std::span<const int> ranks,
                            const CommunicatorOptions& options, CreationTag creation_tag) {
  constexpr MessageSpace kSpace = MessageSpace::kCreation;
  const int tag = static_cast<int>(creation_tag);
  Proposal own = propose(parent, ranks, options);
  std::vector<int> members(ranks.begin(), ranks.end());
  std::sort(members.begin(), members.end());
  Decision decision;
  if (parent.rank != members.front()) {
    messages.send(bytes_of(own), members.front(), tag, kSpace);
    messages.recv(bytes_of(decision), members.front(), tag, kSpace);
    return decision;
  }
  std::vector<Proposal> proposals(members.size(), own);
  for (std::size_t i = 1; i < members.size(); ++i) {
    messages.recv(bytes_of(proposals[i]), members[i], tag, kSpace);
  }
  decision = decide(parent, members, proposals);
  for (std::size_t i = 1; i < members.size(); ++i) {
    messages.send(bytes_of(decision), members[i], tag, kSpace);
  }
  return decision;
}

}  // namespace

std::shared_ptr<Communicator::State> Communicator::State::make_of_members(std::span<const int> ranks,
                                                                          const CommunicatorOptions& options,
                                                                          CreationTag tag) {
  group_.endpoint->faults().check();
  CommunicatorIds& ids = group_.endpoint->communicator_ids();
  const std::lock_guard creating(ids.creation_mutex());
  const Decision decision = agree_with_members(messages(), group_, ranks, options, tag);
  if (decision.error != Decision::kNoError) throw_error(static_cast<ErrorKind>(decision.error), text_of(decision.text));
  ids.accept_generation(static_cast<std::uint64_t>(decision.agreed.generation));
  Group group = make_group(group_, ranks, options, decision.agreed);
  group.carries_messages = tag == CreationTag::kDeviceMessages;
  return std::make_shared<State>(std::move(group));
}

Communicator Communicator::of_members(Communicator& parent, std::span<const int> ranks,
                                      const CommunicatorOptions& options) {
  const Group& group = parent.state().group();
  group.endpoint->faults().check();
  check_own(options);
  check_members(group, ranks);
  return Communicator(parent.state().make_of_members(ranks, options, CreationTag::kOfMembers));
}

}  // namespace farandole
