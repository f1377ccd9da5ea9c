// SPDX-License-Identifier: Apache-2.0
// What runs, and why.
#include <fmt/core.h>

#include "communicator/communicator_state.h"

namespace farandole {
namespace {

/// What has chosen: a setting, the table, or the built-in rules; and what became of the table.
std::string explain_reason(const SelectionQuery& asked, const Selection& selection, const Group& group,
                           const std::string& forced) {
  const bool on_host = asked.memory == MemoryKind::kHost;
  const TuningTable* const table = group.table.get();
  if (forced == selection.name()) {
    return fmt::format("forced by a setting ({}){}", forced,
                       table == nullptr ? "" : fmt::format(", which goes before the table {}", table->file));
  }
  if (const TuningTable::Entry* entry = measured_entry(asked)) {
    return fmt::format("chosen by the table {}: {} us were measured for up to {} bytes, with Farandole {} on {}",
                       table->file, entry->time_us, entry->up_to_bytes, table->version, describe(table->shape));
  }
  if (const Method* const method = find_method(asked.collective, forced, asked.memory)) {
    return fmt::format("chosen by Farandole, because {}, which a setting forces, needs {}", forced, method->needs);
  }
  if (find_algorithm(asked.collective, forced) != nullptr) {
    return fmt::format("chosen by Farandole, because {}, which a setting forces, does not work for {} ranks", forced,
                       asked.size);
  }
  if (table == nullptr) return "chosen by Farandole";
  const std::vector<TuningTable::Entry>& entries = table->of(asked.collective, asked.memory);
  const std::string called = fmt::format("{}{}", name(asked.collective), on_host ? "" : " of device memory");
  std::string why;
  if (!group.table_fits) {
    why = fmt::format("is for {}, and this is {}", describe(table->shape), describe(group.shape()));
  } else if (const auto* entry = table->find(asked.collective, asked.bytes, asked.memory)) {
    const Method* const method = find_method(asked.collective, entry->algorithm, asked.memory);
    why = fmt::format(
        "says {}, but {}", entry->algorithm,
        on_host || method == nullptr ? "the ranks share no memory here" : fmt::format("that needs {}", method->needs));
  } else if (entries.empty()) {
    why = fmt::format("has nothing for {}", called);
  } else {
    why = fmt::format("ends at {} bytes for {}", entries.back().up_to_bytes, called);
  }
  return fmt::format("chosen by Farandole, because the table {} {}", table->file, why);
}

}  // namespace

std::string Communicator::explain(Collective collective, std::size_t bytes, MemoryKind memory) const {
  const SelectionQuery asked = state().query(collective, bytes, memory);
  const Selection selection = state().select(asked);
  const bool on_host = memory == MemoryKind::kHost;
  std::string text = fmt::format("{} of {} bytes {}among {} ranks: {}", name(collective), bytes,
                                 on_host ? "" : "of device memory ", size(), selection.name());
  if (selection.algorithm != nullptr) {
    text += fmt::format(", {} segment{}", selection.segments, selection.segments == 1 ? "" : "s");
  }
  const std::string& forced = forced_algorithm(collective, settings());
  text += fmt::format("\n{}", explain_reason(asked, selection, state().group(), forced));
  const bool by_messages = selection.method->explain == nullptr;
  if (!by_messages) {
    text += (state().group().table ? "\n" : ": ") + selection.method->explain(collective, bytes, state().group());
  }
  text += "\n";
  text += fmt::format("{} {} ({} us per message, {} GB/s) the cost model expects:\n",
                      by_messages ? "Over" : "By messages, over", on_host ? transport() : "NCCL", asked.link.latency_us,
                      1e-3 / asked.link.us_per_byte);
  for (const Candidate& candidate : candidates(asked, settings())) {
    text += fmt::format("  {:<22} {:>3} segments {:>14.2f} us predicted\n", candidate.algorithm->name,
                        candidate.segments, candidate.predicted_us);
  }
  return text;
}

std::string Communicator::choose(Collective collective, std::size_t bytes, MemoryKind memory) const {
  endpoint().faults().check_process();
  return std::string(state().select(state().query(collective, bytes, memory)).name());
}

std::string Communicator::transport() const {
  return state().group().shape().transport;
}

TuningShape Communicator::tuning_shape() const {
  return state().group().shape();
}

}  // namespace farandole
