// SPDX-License-Identifier: Apache-2.0
#include "selection/selection.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "choice.h"
#include "farandole/core/error.h"
#include "farandole/core/float_mode.h"

namespace farandole {
namespace {

constexpr std::string_view kSharedMemory = "shared_memory";
constexpr std::string_view kHierarchical = "hierarchical";
constexpr std::string_view kVendor = "vendor";
constexpr double kReduceUsPerByte = 1e-4;  // one pass over memory that is not in the cache
constexpr double kMessageShare = 0.25;     // of the latency: posting and completing a message, however much overlaps

int segments_for(const Algorithm& algorithm, const SelectionQuery& query, const Settings& settings) {
  if (query.segments > 0) return query.segments;
  return segments_for_size(algorithm, query.size, query.bytes, static_cast<std::size_t>(settings.segment_bytes));
}

const Algorithm& find_or_explain(const SelectionQuery& query, std::string_view forced) {
  const Algorithm* found = find_algorithm(query.collective, forced);
  if (found == nullptr) {
    throw InvalidArgument(
        fmt::format("{}: {}", name(query.collective), describe_no_such_algorithm(query.collective, forced)));
  }
  if (!found->supports(query.size)) {
    throw InvalidArgument(fmt::format("{} by {} does not work for {} ranks; leave the choice to Farandole (auto)",
                                      name(query.collective), forced, query.size));
  }
  return *found;
}

Selection selection_of(const TuningTable::Entry& entry, const SelectionQuery& query, const Settings& settings) {
  if (entry.algorithm == kSharedMemory) return {Selection::Kind::kSharedMemory, nullptr, 1};
  if (entry.algorithm == kHierarchical) return {Selection::Kind::kHierarchical, nullptr, 1};
  if (entry.algorithm == kVendor) return {Selection::Kind::kVendor, nullptr, 1};
  const Algorithm& algorithm = find_or_explain(query, entry.algorithm);
  const bool from_table = query.segments == 0 && entry.segments > 0;
  return {Selection::Kind::kSchedule, &algorithm,
          from_table ? entry.segments : segments_for(algorithm, query, settings)};
}

}  // namespace

std::string_view Selection::name() const {
  switch (kind) {
    case Kind::kVendor:
      return kVendor;
    case Kind::kSharedMemory:
      return kSharedMemory;
    case Kind::kHierarchical:
      return kHierarchical;
    default:
      return algorithm->name;
  }
}

const std::string& forced_algorithm(Collective collective, const Settings& settings) {
  static const std::string automatic = "auto";
  switch (collective) {
    case Collective::kAllreduce:
      return settings.allreduce;
    case Collective::kBroadcast:
      return settings.broadcast;
    case Collective::kReduce:
      return settings.reduce;
    case Collective::kAllgather:
      return settings.allgather;
    case Collective::kReduceScatter:
      return settings.reduce_scatter;
    case Collective::kGather:
      return settings.gather;
    case Collective::kScatter:
      return settings.scatter;
    default:
      return automatic;
  }
}

double predict_us(const Algorithm& algorithm, int segments, const SelectionQuery& query) {
  const AlgorithmCost cost = algorithm.cost(Place{0, query.size, 0}, segments);
  if (cost.messages == 0) return 0;
  const double piece_bytes = static_cast<double>(query.bytes) / (algorithm.chunks(query.size) * segments);
  const double sent_bytes = static_cast<double>(cost.pieces_sent) * piece_bytes;
  // A round takes as long as its longest message, or as what a rank sends in it on average.
  const double message_bytes = sent_bytes / static_cast<double>(cost.messages);
  const double rank_bytes = sent_bytes / (static_cast<double>(query.size) * cost.rounds);
  // Of what arrives, this share is also reduced; only the last segment's reduction does not overlap with messages.
  const double reduced_share =
      static_cast<double>(cost.pieces_reduced) / (static_cast<double>(cost.pieces_sent) * segments);
  const double us_per_byte = query.link.us_per_byte + reduced_share * kReduceUsPerByte;
  const double round_us = query.link.latency_us + std::max(message_bytes, rank_bytes) * us_per_byte;
  const double messages_per_rank = static_cast<double>(cost.messages) / query.size;
  return cost.rounds * round_us + messages_per_rank * kMessageShare * query.link.latency_us;
}

std::vector<Candidate> candidates(const SelectionQuery& query, const Settings& settings) {
  const FloatMode mode;  // the ranks must find the same order, whatever mode their threads are in
  std::vector<Candidate> found;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != query.collective || !algorithm.supports(query.size)) continue;
    const int segments = segments_for(algorithm, query, settings);
    found.push_back({&algorithm, segments, predict_us(algorithm, segments, query)});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return a.predicted_us < b.predicted_us; });
  return found;
}

std::string describe_no_such_algorithm(Collective collective, std::string_view wanted) {
  std::vector<std::string_view> names;
  for (const Algorithm& known : algorithms()) {
    if (known.collective == collective) names.push_back(known.name);
  }
  names.push_back(kSharedMemory);
  if (collective == Collective::kAllreduce) names.insert(names.end(), {kHierarchical, kVendor});
  return fmt::format("there is no algorithm '{}'{}; it must be one of {}", wanted, suggestion(wanted, names),
                     fmt::join(names, ", "));
}

const TuningTable::Entry* measured_entry(const SelectionQuery& query) {
  if (query.table == nullptr || query.bytes == kUnknownBytes) return nullptr;
  const TuningTable::Entry* const entry = query.table->find(query.collective, query.bytes);
  if (entry == nullptr) return nullptr;
  // Whether memory is shared is a setting, and no part of what a table is for.
  if (entry->algorithm == kSharedMemory && !query.shares_memory) return nullptr;
  if (entry->algorithm == kHierarchical && !query.has_hierarchy) return nullptr;
  if (entry->algorithm == kVendor && !query.table_may_say_vendor) return nullptr;
  return entry;
}

std::size_t shared_memory_below(const SelectionQuery& query, const Settings& settings) {
  const std::string& forced = forced_algorithm(query.collective, settings);
  if (!query.shares_memory || (forced != "auto" && forced != kSharedMemory)) return 0;
  if (forced == kSharedMemory || query.table == nullptr) return kUnknownBytes;
  std::size_t below = 0;
  for (const TuningTable::Entry& entry : query.table->of(query.collective)) {
    if (entry.algorithm != kSharedMemory) return below;
    if (entry.up_to_bytes == kUnknownBytes) break;
    below = entry.up_to_bytes + 1;
  }
  return kUnknownBytes;
}

Selection select(const SelectionQuery& query, const Settings& settings) {
  std::string_view forced =
      query.forced.empty() ? std::string_view(forced_algorithm(query.collective, settings)) : query.forced;
  // A rank alone has nobody to share with, and a setting that suits its job must not keep it from running.
  if (forced == kSharedMemory && query.size == 1) forced = "auto";
  if (forced == kVendor && query.collective == Collective::kAllreduce) return {Selection::Kind::kVendor, nullptr, 1};
  if (forced == "auto") {
    if (const TuningTable::Entry* entry = measured_entry(query)) return selection_of(*entry, query, settings);
  }
  if (forced == kSharedMemory && !query.shares_memory) {
    throw InvalidArgument(fmt::format(
        "{} by shared_memory needs all ranks on one host, more than one of them, and FARANDOLE_SHARED_MEMORY "
        "on; leave the choice to Farandole (auto)",
        name(query.collective)));
  }
  if (forced == kSharedMemory || (forced == "auto" && query.shares_memory)) {
    return {Selection::Kind::kSharedMemory, nullptr, 1};
  }
  const bool may_be_hierarchical = query.has_hierarchy && query.collective == Collective::kAllreduce;
  if (forced == kHierarchical && query.collective == Collective::kAllreduce && !may_be_hierarchical) {
    throw InvalidArgument(
        "allreduce by hierarchical needs several hosts, one of them with several ranks, and FARANDOLE_SHARED_MEMORY "
        "on; leave the choice to Farandole (auto)");
  }
  if (may_be_hierarchical && (forced == "auto" || forced == kHierarchical)) {
    return {Selection::Kind::kHierarchical, nullptr, 1};
  }
  if (forced != "auto") {
    const Algorithm& algorithm = find_or_explain(query, forced);
    return {Selection::Kind::kSchedule, &algorithm, segments_for(algorithm, query, settings)};
  }
  const Candidate best = candidates(query, settings).front();
  return {Selection::Kind::kSchedule, best.algorithm, best.segments};
}

}  // namespace farandole
