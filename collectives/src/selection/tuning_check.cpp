// SPDX-License-Identifier: Apache-2.0
// Validation of tuning tables.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "farandole/collectives/tuning.h"
#include "farandole/core/error.h"
#include "farandole/core/settings.h"
#include "selection/selection.h"

namespace farandole {
namespace {

constexpr int kMaxRanks = 1 << 20;

/// Reason why `algorithm` cannot run `collective` in a communicator of this shape; empty if it can.
std::string objection(Collective collective, MemoryKind memory, const std::string& algorithm,
                      const TuningShape& shape) {
  const bool on_host = memory == MemoryKind::kHost;
  if (!on_host && collective == Collective::kBarrier) return "a barrier has no memory";
  if (const Method* method = find_method(collective, algorithm, memory)) {
    return method->fits(shape) ? "" : fmt::format("{} needs {}", algorithm, method->needs);
  }
  if (find_method(collective, algorithm, on_host ? MemoryKind::kCuda : MemoryKind::kHost) != nullptr) {
    return fmt::format("{} works on {} memory only", algorithm, on_host ? "device" : "host");
  }
  const Algorithm* const found = find_algorithm(collective, algorithm);
  if (found != nullptr) {
    return found->supports(shape.ranks) ? "" : fmt::format("{} does not work for {} ranks", algorithm, shape.ranks);
  }
  return describe_no_such_algorithm(collective, algorithm);
}

void check_entry(Collective collective, MemoryKind memory, const TuningTable& table, std::size_t index) {
  const std::vector<TuningTable::Entry>& entries = table.of(collective, memory);
  const TuningTable::Entry& entry = entries[index];
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(fmt::format("{}{}, entry {} (up to {} bytes, {}): {}",
                                      memory == MemoryKind::kHost ? "" : "device memory, ", name(collective), index + 1,
                                      entry.up_to_bytes, entry.algorithm, why));
  };
  const std::string text = objection(collective, memory, entry.algorithm, table.shape);
  if (!text.empty()) refuse(text);
  if (index > 0 && entry.up_to_bytes <= entries[index - 1].up_to_bytes) {
    refuse(fmt::format("up_to_bytes must be more than in the entry before, {}", entries[index - 1].up_to_bytes));
  }
  if (entry.segments < 0 || entry.segments > kMaxSegments) {
    refuse(fmt::format("segments is {}; it must be 0 (from the size) … {}", entry.segments, kMaxSegments));
  }
  if (!std::isfinite(entry.time_us) || entry.time_us < 0) {
    refuse(fmt::format("time_us is {}; it must be a time in microseconds", entry.time_us));
  }
}

/// Requires that `value` is in the range of the setting `variable`.
void check_limit(std::string_view key, std::string_view variable, std::optional<std::size_t> value) {
  if (!value) return;
  const auto settings = settings_table();
  const SettingInfo& info = *std::find_if(settings.begin(), settings.end(),
                                          [&](const SettingInfo& setting) { return setting.variable == variable; });
  const auto number = static_cast<double>(*value);
  if (number >= info.minimum && number <= info.maximum) return;
  throw InvalidArgument(fmt::format("shared_memory, {} is {}; it must be {}", key, *value, expected_text(info)));
}

}  // namespace

void TuningTable::check() const {
  const auto within = [](std::string_view key, int value, int max) {
    if (value >= 1 && value <= max) return;
    throw InvalidArgument(fmt::format("measured_on, {} is {}; it must be 1 … {}", key, value, max));
  };
  within("ranks", shape.ranks, kMaxRanks);
  within("hosts", shape.hosts, shape.ranks);
  check_limit("one_shot_bytes", "FARANDOLE_ONE_SHOT_BYTES", one_shot_bytes);
  check_limit("slice_bytes", "FARANDOLE_SLICE_BYTES", slice_bytes);
  for (const MemoryKind memory : {MemoryKind::kHost, MemoryKind::kCuda}) {
    for (int i = 0; i < kCollectiveCount; ++i) {
      const auto collective = static_cast<Collective>(i);
      for (std::size_t k = 0; k < of(collective, memory).size(); ++k) check_entry(collective, memory, *this, k);
    }
  }
}

}  // namespace farandole
