// SPDX-License-Identifier: Apache-2.0
// Agreement of ranks on a new communicator: options and ids; by messages among its members.
#include "communicator/creation.h"

#include <fmt/format.h>

#include <array>

#include "communicator/direct_calls.h"
#include "farandole/core/error.h"
#include "farandole/internal/digest.h"
#include "farandole/internal/fixed_text.h"

namespace farandole {
namespace {

std::int64_t digest(const TuningTable& table) {
  return static_cast<std::int64_t>(Digest().add(table.to_json()).value());
}

}  // namespace

CreationArguments creation_arguments(const CommunicatorOptions& options, const Endpoint& endpoint) {
  return {options.compare, options.table == nullptr ? 0 : digest(*options.table),
          static_cast<std::int64_t>(options.device_order), DirectCalls::are_possible(endpoint)};
}

std::string_view different_option(const CreationArguments& one, const CreationArguments& other) {
  if (one.device_order != other.device_order) return "values of `device_order`";
  if (one.compares != other.compares) return "values of `compare`";
  return one.table_digest != other.table_digest ? "tables" : "";
}

std::string describe_difference(int first_rank, int rank, std::string_view what) {
  return fmt::format(
      "making a communicator: rank {} and rank {} pass different {}; all of its ranks must pass the same", first_rank,
      rank, what);
}

std::size_t ids_needed(const CreationArguments& arguments) {
  return arguments.device_order == static_cast<std::int64_t>(CommunicatorOptions::DeviceOrder::kCaller) ? 2 : 1;
}

std::vector<std::uint16_t> choose_ids(std::span<const std::uint8_t> used, std::size_t count, std::uint64_t seed) {
  std::vector<std::uint16_t> free;
  for (std::size_t id = 0; id < used.size(); ++id) {
    if (used[id] == 0) free.push_back(static_cast<std::uint16_t>(id));
  }
  if (free.size() < count) return {};
  std::vector<std::uint16_t> chosen;
  while (chosen.size() < count) chosen.push_back(free[(seed + chosen.size()) % free.size()]);
  return chosen;
}

std::uint64_t seed_of(const Group& parent, std::uint64_t ranks_digest, std::uint64_t attempt) {
  if (attempt == 0) return 0;
  return Digest().add(parent.id).add(parent.generation).add(ranks_digest).add(attempt).value();
}

std::string describe_lack_of_ids() {
  return fmt::format("no communicator id is free: the ranks use {} of them; destroy some communicators",
                     kMaxCommunicators);
}

IdOffer IdOffer::of(const CommunicatorIds::Reservation& ids) {
  if (ids.ids().empty()) return {};
  return {static_cast<std::int64_t>(ids.generation()), ids.ids().front(), ids.ids().back()};
}

namespace {

/// Message of a member to the coordinator of a new communicator, at the start and after each Decision of kAgain.
struct Proposal {
  std::uint64_t ranks_digest = 0;
  CreationArguments arguments;
  IdOffer offer;
  std::array<std::uint8_t, kMaxCommunicators> used{};  ///< see CommunicatorIds::used; without the offered ids
};
static_assert(sizeof(Proposal) <= kMaxShortBytes);

/// Answer of the coordinator to each member.
struct Decision {
  static constexpr std::int64_t kAgreed = -1;
  static constexpr std::int64_t kAgain = -2;  ///< reserve the ids of `agreed`, and propose again
  std::int64_t outcome = kAgreed;             ///< or an ErrorKind
  NewCommunicator agreed;
  char text[512] = {};  ///< of the error
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

/// Writes the reserved ids, and the ids that this rank uses besides.
void offer(const CommunicatorIds& all, const CommunicatorIds::Reservation& ids, Proposal& proposal) {
  proposal.offer = IdOffer::of(ids);
  const std::vector<std::uint8_t> used = all.used();
  std::copy(used.begin(), used.end(), proposal.used.begin());
  for (const std::uint16_t id : ids.ids()) proposal.used[id] = 0;
}

/// Decisions of the coordinator. @param members  of the new communicator, ascending; this rank is the first
class Coordinator {
 public:
  Coordinator(const Group& parent, std::span<const int> members) : parent_(parent), members_(members) {}

  Decision decide(std::span<const Proposal> proposals) {
    const Proposal& own = proposals.front();
    Decision decision;
    bool is_agreed = own.offer.first != IdOffer::kNone;
    std::array<std::uint8_t, kMaxCommunicators> used{};
    for (std::size_t i = 0; i < proposals.size(); ++i) {
      const Proposal& proposal = proposals[i];
      const std::string_view different = proposal.ranks_digest != own.ranks_digest
                                             ? "lists of ranks"
                                             : different_option(own.arguments, proposal.arguments);
      if (!different.empty()) {
        return refuse(ErrorKind::kMismatch, describe_difference(parent_.rank, members_[i], different));
      }
      decision.agreed.add(proposal.arguments);
      decision.agreed.add(proposal.offer);
      is_agreed = is_agreed && proposal.offer.has_same_ids(own.offer);
      for (std::size_t id = 0; id < used.size(); ++id) used[id] = std::max(used[id], proposal.used[id]);
    }
    if (is_agreed) return decision;
    const std::vector<std::uint16_t> chosen =
        choose_ids(used, ids_needed(own.arguments), seed_of(parent_, own.ranks_digest, attempt_++));
    if (chosen.empty()) return refuse(ErrorKind::kInvalidArgument, describe_lack_of_ids());
    decision.outcome = Decision::kAgain;
    decision.agreed.first_id = chosen.front();
    decision.agreed.last_id = chosen.back();
    return decision;
  }

 private:
  static Decision refuse(ErrorKind kind, const std::string& text) {
    Decision decision;
    decision.outcome = static_cast<std::int64_t>(kind);
    write_text(decision.text, text);
    return decision;
  }

  const Group& parent_;
  const std::span<const int> members_;
  std::uint64_t attempt_ = 0;
};

}  // namespace

NewCommunicator agree_with_members(MessageQueue& messages, const Group& parent, std::span<const int> ranks,
                                   const CommunicatorOptions& options, CreationTag creation_tag,
                                   CommunicatorIds::Reservation& ids) {
  constexpr MessageSpace kSpace = MessageSpace::kCreation;
  const int tag = static_cast<int>(creation_tag);
  const CommunicatorIds& all = parent.endpoint->communicator_ids();
  Proposal own;
  std::vector<int> members(ranks.begin(), ranks.end());
  std::sort(members.begin(), members.end());
  own.ranks_digest = digest_of_ranks(ranks);
  own.arguments = creation_arguments(options, *parent.endpoint);
  ids.take_lowest(ids_needed(own.arguments));
  std::vector<Proposal> proposals(parent.rank == members.front() ? members.size() : 0);
  Coordinator coordinator(parent, members);
  for (;;) {
    offer(all, ids, own);
    Decision decision;
    if (parent.rank == members.front()) {
      proposals.front() = own;
      for (std::size_t i = 1; i < members.size(); ++i) messages.recv(bytes_of(proposals[i]), members[i], tag, kSpace);
      decision = coordinator.decide(proposals);
      for (std::size_t i = 1; i < members.size(); ++i) messages.send(bytes_of(decision), members[i], tag, kSpace);
    } else {
      messages.send(bytes_of(own), members.front(), tag, kSpace);
      messages.recv(bytes_of(decision), members.front(), tag, kSpace);
    }
    if (decision.outcome == Decision::kAgreed) return decision.agreed;
    if (decision.outcome != Decision::kAgain) {
      throw_error(static_cast<ErrorKind>(decision.outcome), text_of(decision.text));
    }
    const std::array chosen{static_cast<std::uint16_t>(decision.agreed.first_id),
                            static_cast<std::uint16_t>(decision.agreed.last_id)};
    (void)ids.take(std::span(chosen).first(ids_needed(own.arguments)));
  }
}

}  // namespace farandole
