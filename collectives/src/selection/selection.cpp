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

int segments_for(const Algorithm& algorithm, const Question& question, const Settings& settings) {
  if (question.segments > 0) return question.segments;
  return segments_for_size(algorithm, question.size, question.bytes, static_cast<std::size_t>(settings.segment_bytes));
}

const Algorithm& find_or_explain(const Question& question, std::string_view forced) {
  const Algorithm* found = find_algorithm(question.collective, forced);
  if (found == nullptr) {
    throw InvalidArgument(
        fmt::format("{}: {}", name(question.collective), describe_no_such_algorithm(question.collective, forced)));
  }
  if (!found->supports(question.size)) {
    throw InvalidArgument(fmt::format("{} by {} does not work for {} ranks; leave the choice to Farandole (auto)",
                                      name(question.collective), forced, question.size));
  }
  return *found;
}

Choice choice_of(const TuningTable::Entry& entry, const Question& question, const Settings& settings) {
  if (entry.algorithm == kSharedMemory) return {Choice::Kind::kSharedMemory, nullptr, 1};
  if (entry.algorithm == kHierarchical) return {Choice::Kind::kHierarchical, nullptr, 1};
  if (entry.algorithm == kVendor) return {Choice::Kind::kVendor, nullptr, 1};
  const Algorithm& algorithm = find_or_explain(question, entry.algorithm);
  const bool from_table = question.segments == 0 && entry.segments > 0;
  return {Choice::Kind::kSchedule, &algorithm,
          from_table ? entry.segments : segments_for(algorithm, question, settings)};
}

}  // namespace

std::string_view Choice::name() const {
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

double predict_us(const Algorithm& algorithm, int segments, const Question& question) {
  const AlgorithmCost cost = algorithm.cost(Place{0, question.size, 0}, segments);
  if (cost.messages == 0) return 0;
  const double piece_bytes = static_cast<double>(question.bytes) / (algorithm.chunks(question.size) * segments);
  const double sent_bytes = static_cast<double>(cost.pieces_sent) * piece_bytes;
  // A turn takes as long as its longest message, or as what a rank sends in it on average.
  const double message_bytes = sent_bytes / static_cast<double>(cost.messages);
  const double rank_bytes = sent_bytes / (static_cast<double>(question.size) * cost.turns);
  // Of what arrives, this share is also reduced; only the last segment's reduction does not overlap with messages.
  const double reduced_share =
      static_cast<double>(cost.pieces_reduced) / (static_cast<double>(cost.pieces_sent) * segments);
  const double us_per_byte = question.link.us_per_byte + reduced_share * kReduceUsPerByte;
  const double turn_us = question.link.latency_us + std::max(message_bytes, rank_bytes) * us_per_byte;
  const double messages_per_rank = static_cast<double>(cost.messages) / question.size;
  return cost.turns * turn_us + messages_per_rank * kMessageShare * question.link.latency_us;
}

std::vector<Candidate> candidates(const Question& question, const Settings& settings) {
  const FloatMode mode;  // the ranks must find the same order, whatever mode their threads are in
  std::vector<Candidate> found;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != question.collective || !algorithm.supports(question.size)) continue;
    const int segments = segments_for(algorithm, question, settings);
    found.push_back({&algorithm, segments, predict_us(algorithm, segments, question)});
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

const TuningTable::Entry* measured_entry(const Question& question) {
  if (question.table == nullptr || question.bytes == kUnknownBytes) return nullptr;
  const TuningTable::Entry* const entry = question.table->find(question.collective, question.bytes);
  if (entry == nullptr) return nullptr;
  // Whether memory is shared is a setting, and no part of what a table is for.
  if (entry->algorithm == kSharedMemory && !question.shares_memory) return nullptr;
  if (entry->algorithm == kHierarchical && !question.has_two_levels) return nullptr;
  if (entry->algorithm == kVendor && !question.table_may_say_vendor) return nullptr;
  return entry;
}

std::size_t shared_memory_below(const Question& question, const Settings& settings) {
  const std::string& forced = forced_algorithm(question.collective, settings);
  if (!question.shares_memory || (forced != "auto" && forced != kSharedMemory)) return 0;
  if (forced == kSharedMemory || question.table == nullptr) return kUnknownBytes;
  std::size_t below = 0;
  for (const TuningTable::Entry& entry : question.table->of(question.collective)) {
    if (entry.algorithm != kSharedMemory) return below;
    if (entry.up_to_bytes == kUnknownBytes) break;
    below = entry.up_to_bytes + 1;
  }
  return kUnknownBytes;
}

Choice choose(const Question& question, const Settings& settings) {
  std::string_view forced =
      question.forced.empty() ? std::string_view(forced_algorithm(question.collective, settings)) : question.forced;
  // A rank alone has nobody to share with, and a setting that suits its job must not keep it from running.
  if (forced == kSharedMemory && question.size == 1) forced = "auto";
  if (forced == kVendor && question.collective == Collective::kAllreduce) return {Choice::Kind::kVendor, nullptr, 1};
  if (forced == "auto") {
    if (const TuningTable::Entry* entry = measured_entry(question)) return choice_of(*entry, question, settings);
  }
  if (forced == kSharedMemory && !question.shares_memory) {
    throw InvalidArgument(fmt::format(
        "{} by shared_memory needs all ranks on one host, more than one of them, and FARANDOLE_SHARED_MEMORY "
        "on; leave the choice to Farandole (auto)",
        name(question.collective)));
  }
  if (forced == kSharedMemory || (forced == "auto" && question.shares_memory)) {
    return {Choice::Kind::kSharedMemory, nullptr, 1};
  }
  const bool may_be_hierarchical = question.has_two_levels && question.collective == Collective::kAllreduce;
  if (forced == kHierarchical && question.collective == Collective::kAllreduce && !may_be_hierarchical) {
    throw InvalidArgument(
        "allreduce by hierarchical needs several hosts, one of them with several ranks, and FARANDOLE_SHARED_MEMORY "
        "on; leave the choice to Farandole (auto)");
  }
  if (may_be_hierarchical && (forced == "auto" || forced == kHierarchical)) {
    return {Choice::Kind::kHierarchical, nullptr, 1};
  }
  if (forced != "auto") {
    const Algorithm& algorithm = find_or_explain(question, forced);
    return {Choice::Kind::kSchedule, &algorithm, segments_for(algorithm, question, settings)};
  }
  const Candidate best = candidates(question, settings).front();
  return {Choice::Kind::kSchedule, best.algorithm, best.segments};
}

}  // namespace farandole
