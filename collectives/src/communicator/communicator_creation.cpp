// SPDX-License-Identifier: Apache-2.0
// Creation of communicators: `of_world`, `split`, `duplicate` and `of_members`.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "communicator/communicator_state.h"
#include "communicator/creation.h"
#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"

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

/// Arguments of one rank's `split`, which the ranks gather.
struct SplitArguments {
  std::int64_t color, key;
  CreationArguments creation;
  IdOffer offer;
};

/// True if the ranks of each color offer the same ids. The same on all ranks.
bool offer_same_ids(std::span<const SplitArguments> members) {
  std::map<std::int64_t, IdOffer> offers;  // by color
  return std::all_of(members.begin(), members.end(), [&](const SplitArguments& member) {
    if (member.color < 0) return true;
    const IdOffer& first = offers.try_emplace(member.color, member.offer).first->second;
    return member.offer.first != IdOffer::kNone && member.offer.has_same_ids(first);
  });
}

/// Step 2 of the agreement on ids, see creation.h. Collective over all ranks of the parent; ranks that need no ids pass
/// `needed` 0. @throws InvalidArgument  too few ids are free
IdOffer agree_again(Communicator& ranks, const Group& parent, std::size_t needed, CommunicatorIds::Reservation& ids) {
  for (std::uint64_t attempt = 0;; ++attempt) {
    ids.clear();
    std::vector<std::uint8_t> used = parent.endpoint->communicator_ids().used();
    if (needed == 0) std::fill(used.begin(), used.end(), std::uint8_t{0});
    ranks.allreduce(used, ReduceOp::kMax);
    const std::vector<std::uint16_t> chosen = choose_ids(used, needed, seed_of(parent, 0, attempt));
    const bool has_failed = !chosen.empty() && !ids.take(chosen);
    std::array<std::int64_t, 2> outcome{has_failed ? 1 : 0, static_cast<std::int64_t>(ids.generation())};
    ranks.allreduce(outcome, ReduceOp::kMax);
    if (outcome[0] != 0) continue;
    if (chosen.size() < needed) throw InvalidArgument(describe_lack_of_ids());
    IdOffer agreed = IdOffer::of(ids);
    agreed.generation = outcome[1];
    return agreed;
  }
}

}  // namespace

Communicator Communicator::split(int color, int key, const CommunicatorOptions& options) {
  const Group& parent = state().group();
  check_own(options);
  CommunicatorIds::Reservation ids(parent.endpoint->communicator_ids());
  SplitArguments own{color, key, creation_arguments(options, *parent.endpoint), {}};
  const std::size_t needed = color < 0 ? 0 : ids_needed(own.creation);
  if (needed > 0) ids.take_lowest(needed);
  own.offer = IdOffer::of(ids);
  std::vector<SplitArguments> members(static_cast<std::size_t>(size()));
  constexpr std::size_t kFields = sizeof(SplitArguments) / sizeof(std::int64_t);
  allgather({&own.color, kFields, DType::kI64}, {&members.front().color, kFields * members.size(), DType::kI64});
  NewCommunicator agreed;
  std::vector<std::pair<std::int64_t, int>> order;  // (key, rank in the parent)
  std::string different;
  for (int rank = 0; rank < size() && different.empty(); ++rank) {
    const SplitArguments& member = members[static_cast<std::size_t>(rank)];
    if (color < 0 || member.color != color) continue;
    order.emplace_back(member.key, rank);
    agreed.add(member.creation);
    agreed.add(member.offer);
    const int first = order.front().second;
    const std::string_view what = different_option(members[static_cast<std::size_t>(first)].creation, member.creation);
    if (!what.empty()) different = describe_difference(first, rank, what);
  }
  // Ranks that throw below, and ranks without a color, take part, too.
  if (!offer_same_ids(members)) agreed.add(agree_again(*this, parent, different.empty() ? needed : 0, ids));
  if (!different.empty()) throw Mismatch(different);
  if (color < 0) return {};
  std::sort(order.begin(), order.end());
  std::vector<int> ranks;
  for (const auto& [unused, rank] : order) ranks.push_back(rank);
  Communicator made(std::make_shared<State>(make_group(parent, ranks, options, agreed)));
  ids.keep();
  return made;
}

Communicator Communicator::duplicate(const CommunicatorOptions& options) {
  return split(0, rank(), options);
}

namespace {

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

}  // namespace

std::shared_ptr<Communicator::State> Communicator::State::make_of_members(std::span<const int> ranks,
                                                                          const CommunicatorOptions& options,
                                                                          CreationTag tag) {
  group_.endpoint->faults().check();
  CommunicatorIds::Reservation ids(group_.endpoint->communicator_ids());
  const NewCommunicator agreed = agree_with_members(messages(), group_, ranks, options, tag, ids);
  Group group = make_group(group_, ranks, options, agreed);
  group.carries_messages = tag == CreationTag::kDeviceMessages;
  auto made = std::make_shared<State>(std::move(group));
  ids.keep();
  return made;
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
