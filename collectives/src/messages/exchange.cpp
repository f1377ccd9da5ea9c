// SPDX-License-Identifier: Apache-2.0
#include "messages/exchange.h"

#include <fmt/core.h>

#include <bit>
#include <set>

#include "farandole/core/float_mode.h"
#include "operation/method_inputs.h"

namespace farandole {
namespace {

/// Copies of each payload: into a message, and out of the message.
constexpr double kPayloadCopies = 2;

using ShownTo = ShortCollective::ShownTo;

/// With two ranks each rank sends only the data that the peer needs. With more ranks, peers pass each payload on to all
/// ranks.
ShownTo shown_to(int size) {
  return size == 2 ? ShownTo::kOtherOfTwo : ShownTo::kAll;
}

/// True if each rank's payload is a whole vector when payloads go to all ranks. False if only the root has a payload,
/// or if each rank's payload is a part of the vector.
bool sends_whole_vectors(Collective collective) {
  return reduces(collective) || collective == Collective::kAlltoall;
}

/// Maximum number of payload bytes that a rank receives from its peers. @param bytes  size of the whole vector
std::size_t received_bytes(Collective collective, std::size_t bytes, int size) {
  return sends_whole_vectors(collective) ? bytes * static_cast<std::size_t>(size - 1) : bytes;
}
/// Payload bytes of all ranks together. @param bytes  size of the whole vector
std::size_t payload_bytes(Collective collective, std::size_t bytes, int size) {
  return sends_whole_vectors(collective) ? bytes * static_cast<std::size_t>(size) : bytes;
}

bool fits_comparison(const SelectionQuery& query) {
  if (query.bytes > Dissemination::kMaxPayloadBytes) return false;
  // In a hierarchy the first rank's answer to its host holds the payloads of all ranks.
  if (query.hosts > 0)
    return payload_bytes(query.collective, query.bytes, query.size) <= ShmLayout::kHierarchyBufferBytes;
  return received_bytes(query.collective, query.bytes, query.size) <= Dissemination::kMaxPayloadBytes;
}

/// Bytes that a host receives from other hosts in the hierarchical method, as a multiple of the vector's bytes.
double hierarchy_traffic(Collective collective, double hosts, double ranks_per_host) {
  const double of_others = 1 - 1 / hosts;
  switch (collective) {
    case Collective::kAllreduce:
      return 2 * of_others;
    case Collective::kScatter:
      return of_others / hosts;
    case Collective::kAlltoall:
      return ranks_per_host * of_others;
    default:
      return of_others;
  }
}

/// Bytes that a rank receives from its peers in an exchange without shared memory, as a multiple of the vector's bytes.
double exchange_traffic(Collective collective, int size) {
  const double of_peers = 1 - 1.0 / size;
  switch (collective) {
    case Collective::kAllgather:
    case Collective::kGather:
      return of_peers;
    case Collective::kReduceScatter:
    case Collective::kAlltoall:
    case Collective::kScatter:
      if (shown_to(size) == ShownTo::kOtherOfTwo) return of_peers;
      break;
    default:
      break;
  }
  return sends_whole_vectors(collective) ? size - 1 : 1;
}

/// True if the exchange is cheaper than the hierarchical method, both over hosts of several ranks. The hierarchical
/// method takes an additional latency, because it compares the calls first. In its favour, hosts reduce before they
/// send, and all ranks of a host copy at the same time; in an exchange the first rank alone copies all payloads.
bool is_cheaper_than_hierarchy(const SelectionQuery& query) {
  const double hosts = query.hosts, ranks_per_host = query.size / hosts;
  const auto bytes = static_cast<double>(query.bytes);
  const auto payload = static_cast<double>(payload_bytes(query.collective, query.bytes, query.size));
  const double hierarchy_bytes = bytes * hierarchy_traffic(query.collective, hosts, ranks_per_host);
  const double extra_us = (payload * (1 - 1 / hosts) - hierarchy_bytes) * query.link.us_per_byte;
  return extra_us + kPayloadCopies * kCopyUsPerByte * payload <= query.link.latency_us;
}

/// True if the exchange is cheaper than the cheapest schedule. A schedule receives fewer bytes and, without a
/// reduction, receives directly into the output, without copies. But the schedule begins only after the rounds of the
/// comparison.
bool is_cheaper_than_schedule(const SelectionQuery& query) {
  const double received = static_cast<double>(query.bytes) * exchange_traffic(query.collective, query.size);
  const auto copied = static_cast<double>(received_bytes(query.collective, query.bytes, query.size));
  const double copies_us = reduces(query.collective) ? 0 : kPayloadCopies * kCopyUsPerByte * copied;
  return received * query.link.us_per_byte + copies_us <= cheapest_schedule_us(query);
}

/// Decides for FARANDOLE_CHECK=off. An exchange runs the rounds of a comparison even then; a schedule saves them. In a
/// schedule the root of a broadcast, and the non-root ranks of a reduce, wait for no peer. So prefer an exchange only
/// for collectives without a root, over several hosts with shared memory, if it is cheaper than the hierarchical
/// method.
bool is_cheapest_without_comparison(const SelectionQuery& query) {
  return query.hosts > 0 && !is_rooted(query.collective) && is_cheaper_than_hierarchy(query);
}

bool is_cheapest_exchange(const SelectionQuery& query) {
  const FloatMode mode;  // all ranks must compute the same answer, whatever floating-point mode their threads are in
  if (!query.compares) return is_cheapest_without_comparison(query);
  return query.hosts > 0 ? is_cheaper_than_hierarchy(query) : is_cheaper_than_schedule(query);
}

std::string explain_exchange(Collective, std::size_t, const Group& group) {
  std::set<int> hosts;
  for (int rank = 0; rank < group.size(); ++rank) hosts.insert(group.host_of(rank));
  return fmt::format("short vectors travel with the comparison of calls; between {} hosts it takes {} rounds",
                     hosts.size(), std::bit_width(hosts.size() - 1));
}

}  // namespace

constinit const Method kExchangeMethod{
    .name = "exchange",
    .number = 0xfa,
    .needs = "ranks that exchange messages, and a vector that is short",
    .is_preferred = true,
    .is_cheapest = is_cheapest_exchange,
    .compares_calls = true,
    .sends_no_partial_sums = true,
    .supports = [](Collective collective) { return collective != Collective::kBarrier; },
    .fits = [](const TuningShape& shape) { return shape.ranks > 1; },
    .is_available = [](const SelectionQuery& query,
                       bool) { return !query.shares_memory && query.size > 1 && fits_comparison(query); },
    .make = [](const MethodInputs& inputs) -> std::unique_ptr<Operation> {
      return std::make_unique<Exchange>(inputs.group, inputs.hierarchy, inputs.host, inputs.prepared, inputs.sequence);
    },
    .explain = explain_exchange,
};

Exchange::Exchange(const Group& group, const Hierarchy* hierarchy, ShmGroup* host, const PreparedCall& prepared,
                   std::uint64_t sequence)
    : group_(group),
      part_offsets_(prepared.call.is_uneven() ? prepared.parts.offsets() : std::vector<std::size_t>{}),
      collective_(prepared, group.rank, group.size(), part_offsets_, shown_to(group.size())),
      comparison_(CallComparison::make(group, hierarchy, host, LaneLedger::first_number(sequence), prepared.descriptor,
                                       blocks())) {}

PayloadBlocks Exchange::blocks() const {
  PayloadBlocks blocks;
  for (int rank = 0; rank < group_.size(); ++rank) {
    blocks.bytes.push_back(collective_.bytes(collective_.shown_by(rank).count));
  }
  blocks.write = [this](std::byte* to) { collective_.show(to); };
  return blocks;
}

Operation::State Exchange::advance() {
  const State state = comparison_->advance();
  if (state != State::kDone) return state;
  std::vector<const void*> pointers(static_cast<std::size_t>(group_.size()));
  collective_.take([this](int rank) { return comparison_->block(rank); }, pointers);
  return State::kDone;
}

}  // namespace farandole
