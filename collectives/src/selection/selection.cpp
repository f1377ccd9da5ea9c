// SPDX-License-Identifier: Apache-2.0
#include "selection/selection.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "farandole/core/error.h"
#include "farandole/core/float_mode.h"
#include "farandole/internal/choice.h"

namespace farandole {
namespace {

constexpr double kReduceUsPerByte = 1e-4;  // one pass over memory that is not in the cache
// A rank spends this share of the latency on posting and completing each message, even if messages overlap.
constexpr double kMessageShare = 0.25;

int segments_for(const Algorithm& algorithm, const SelectionQuery& query, const Settings& settings) {
  if (query.segments > 0) return query.segments;
  return segments_for_size(algorithm, query.size, query.bytes,
                           static_cast<std::size_t>(settings.collectives.segment_bytes));
}

/// Visits all algorithms that support the number of ranks, in the order of the table; `segments(algorithm)` is the
/// number of segments of each. FloatMode makes all ranks predict the same times, whichever floating-point mode their
/// threads have.
template <class Segments, class Visit>
void visit_candidates(const SelectionQuery& query, const Segments& segments, const Visit& visit) {
  const FloatMode mode;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != query.collective || !algorithm.supports(query.size)) continue;
    const int count = segments(algorithm);
    visit(Candidate{&algorithm, count, predict_us(algorithm, count, query)});
  }
}

const Algorithm& require_algorithm(const SelectionQuery& query, std::string_view forced) {
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
  if (const Method* method = find_method(query.collective, entry.algorithm, query.memory)) return {method, nullptr, 1};
  const Algorithm& algorithm = require_algorithm(query, entry.algorithm);
  const bool from_table = query.segments == 0 && entry.segments > 0;
  return Selection::schedule(algorithm, from_table ? entry.segments : segments_for(algorithm, query, settings),
                             query.memory);
}

/// The first available preferred method; null if there is none.
const Method* preferred_method(const SelectionQuery& query) {
  for (const Method* method : methods()) {
    if (!method->is_preferred || method->memory != query.memory) continue;
    if (!method->supports(query.collective) || !method->is_available(query, false)) continue;
    if (method->is_cheapest == nullptr || method->is_cheapest(query)) return method;
  }
  return nullptr;
}

MemoryKind other_than(MemoryKind memory) {
  return memory == MemoryKind::kHost ? MemoryKind::kCuda : MemoryKind::kHost;
}

/// True if selection must skip the algorithm that a setting forces, instead of raising an error. A setting applies to
/// all collectives of the job, so it may not suit each of them. It is skipped if it names a method for the other kind
/// of memory, if the vector is too long for the method, and in communicators of only some ranks of the job: these ranks
/// may be too few, or all on one host.
bool is_skipped(const SelectionQuery& query, std::string_view forced) {
  const Method* const method = find_method(query.collective, forced, query.memory);
  const bool is_of_other_memory = find_method(query.collective, forced, other_than(query.memory)) != nullptr;
  if (method == nullptr) {
    const Algorithm* const algorithm = find_algorithm(query.collective, forced);
    return is_of_other_memory || (query.is_part_of_job && algorithm != nullptr && !algorithm->supports(query.size));
  }
  if (method->is_available(query, false)) return false;
  SelectionQuery shorter = query;
  shorter.bytes = 0;
  const bool is_too_long = method->is_available(shorter, false);
  return is_too_long || query.is_part_of_job || (is_of_other_memory && query.memory == MemoryKind::kCuda);
}

Selection select_freely(const SelectionQuery& query, const Settings& settings) {
  if (const TuningTable::Entry* entry = measured_entry(query)) return selection_of(*entry, query, settings);
  if (const Method* method = preferred_method(query)) return {method, nullptr, 1};
  const Candidate best = candidates(query, settings).front();
  return Selection::schedule(*best.algorithm, best.segments, query.memory);
}

}  // namespace

Selection Selection::schedule(const Algorithm& algorithm, int segments, MemoryKind memory) {
  return {&schedule_method(memory), &algorithm, segments};
}

const Method* find_method(Collective collective, std::string_view name, MemoryKind memory) {
  for (const Method* method : methods()) {
    if (name.empty() || method->name != name || method->memory != memory) continue;
    if (method->supports(collective)) return method;
  }
  return nullptr;
}

const Method& schedule_method(MemoryKind memory) {
  const auto all = methods();
  return **std::find_if(all.begin(), all.end(),
                        [&](const Method* method) { return method->name.empty() && method->memory == memory; });
}

std::vector<std::string_view> algorithm_names(Collective collective) {
  std::vector<std::string_view> names;
  for (const Algorithm& known : algorithms()) {
    if (known.collective == collective) names.push_back(known.name);
  }
  for (const Method* method : methods()) {
    const bool is_named = !method->name.empty() && method->supports(collective);
    if (is_named && std::find(names.begin(), names.end(), method->name) == names.end()) names.push_back(method->name);
  }
  return names;
}

const std::string& forced_algorithm(Collective collective, const Settings& settings) {
  static const std::string automatic = "auto";
  static constexpr std::array kMembers{&CollectiveSettings::allreduce,      &CollectiveSettings::broadcast,
                                       &CollectiveSettings::reduce,         &CollectiveSettings::allgather,
                                       &CollectiveSettings::reduce_scatter, &CollectiveSettings::gather,
                                       &CollectiveSettings::scatter};
  const auto place = static_cast<std::size_t>(collective);
  return place < kMembers.size() ? settings.collectives.*kMembers[place] : automatic;
}

double predict_us(const Algorithm& algorithm, int segments, const SelectionQuery& query) {
  const AlgorithmCost cost = algorithm.cost(Place{0, query.size, 0}, segments);
  if (cost.messages == 0) return 0;
  const double sent_bytes = static_cast<double>(cost.pieces_sent) *
                            algorithm.piece_bytes(query.size, segments, static_cast<double>(query.bytes));
  // A round takes as long as an average message, or as all bytes that a rank sends in an average round if these are
  // more.
  const double message_bytes = sent_bytes / static_cast<double>(cost.messages);
  const double rank_bytes = sent_bytes / (static_cast<double>(query.size) * cost.rounds);
  // Share of the received pieces whose reduction takes extra time. All reductions but the last segment's overlap with
  // messages.
  const double reduced_share =
      static_cast<double>(cost.pieces_reduced) / (static_cast<double>(cost.pieces_sent) * segments);
  const double us_per_byte = query.link.us_per_byte + reduced_share * kReduceUsPerByte;
  const double round_us = query.link.latency_us + std::max(message_bytes, rank_bytes) * us_per_byte;
  const double messages_per_rank = static_cast<double>(cost.messages) / query.size;
  return cost.rounds * round_us + messages_per_rank * kMessageShare * query.link.latency_us;
}

std::vector<Candidate> candidates(const SelectionQuery& query, const Settings& settings) {
  std::vector<Candidate> found;
  visit_candidates(
      query, [&](const Algorithm& algorithm) { return segments_for(algorithm, query, settings); },
      [&](const Candidate& candidate) { found.push_back(candidate); });
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return a.predicted_us < b.predicted_us; });
  return found;
}

double cheapest_schedule_us(const SelectionQuery& query) {
  double cheapest_us = std::numeric_limits<double>::infinity();
  visit_candidates(
      query, [](const Algorithm&) { return 1; },
      [&](const Candidate& candidate) { cheapest_us = std::min(cheapest_us, candidate.predicted_us); });
  return cheapest_us;
}

std::string describe_no_such_algorithm(Collective collective, std::string_view wanted) {
  const std::vector<std::string_view> names = algorithm_names(collective);
  return fmt::format("there is no algorithm '{}'{}; it must be one of {}", wanted, suggestion(wanted, names),
                     fmt::join(names, ", "));
}

const TuningTable::Entry* measured_entry(const SelectionQuery& query) {
  if (query.table == nullptr || query.bytes == kUnknownBytes) return nullptr;
  const TuningTable::Entry* const entry = query.table->find(query.collective, query.bytes, query.memory);
  if (entry == nullptr) return nullptr;
  // The method may be unavailable: whether ranks share memory is a setting, not part of a table's shape.
  const Method* const method = find_method(query.collective, entry->algorithm, query.memory);
  return method != nullptr && !method->is_available(query, true) ? nullptr : entry;
}

ShortVectors select_short_vectors(const SelectionQuery& query, const Settings& settings) {
  const std::string& forced = forced_algorithm(query.collective, settings);
  const bool is_free = forced == "auto";
  const Method* const method = is_free ? preferred_method(query) : find_method(query.collective, forced, query.memory);
  if (method == nullptr || !method->is_preferred || !method->is_available(query, false)) return {};
  SelectionQuery longest = query;
  longest.bytes = kUnknownBytes - 1;
  if (!method->is_available(longest, false) || (is_free && preferred_method(longest) != method)) return {};
  ShortVectors found{kUnknownBytes, {method, nullptr, 1}};
  if (!is_free || query.table == nullptr) return found;
  std::size_t below = 0;
  for (const TuningTable::Entry& entry : query.table->of(query.collective)) {
    if (entry.algorithm != method->name) return {below, found.selection};
    if (entry.up_to_bytes == kUnknownBytes) break;
    below = entry.up_to_bytes + 1;
  }
  return found;
}

Selection select(const SelectionQuery& query, const Settings& settings) {
  const bool is_callers = !query.forced.empty();
  const std::string_view forced = is_callers ? query.forced : forced_algorithm(query.collective, settings);
  if (forced == "auto" || (!is_callers && is_skipped(query, forced))) return select_freely(query, settings);
  const Method* const method = find_method(query.collective, forced, query.memory);
  if (method == nullptr && find_method(query.collective, forced, other_than(query.memory)) != nullptr) {
    throw InvalidArgument(fmt::format("{} by {} does not work on {}; leave the choice to Farandole (auto)",
                                      name(query.collective), forced,
                                      query.memory == MemoryKind::kHost ? "host memory" : "device memory"));
  }
  if (method == nullptr) {
    const Algorithm& algorithm = require_algorithm(query, forced);
    return Selection::schedule(algorithm, segments_for(algorithm, query, settings), query.memory);
  }
  if (method->is_available(query, false)) return {method, nullptr, 1};
  if (query.size == 1) return select_freely(query, settings);  // a single rank has no peer with which to share memory
  throw InvalidArgument(fmt::format("{} by {} needs {}; leave the choice to Farandole (auto)", name(query.collective),
                                    method->name, method->needs));
}

}  // namespace farandole
