// SPDX-License-Identifier: Apache-2.0
// What runs, and why.
#include <fmt/core.h>

#include "communicator/communicator_state.h"

namespace farandole {

namespace {

/// How processes read what is in no window.
std::string explain_single_copies(Collective collective, const Group& group) {
  const std::int64_t least = group.endpoint->settings().single_copy_bytes;
  if (reduces(collective) || least == 0) return "";
  if (!group.endpoint->memory().can_copy()) return "; the kernel does not let the processes read each other's memory";
  return fmt::format("; between processes the kernel copies chunks from {} bytes out of other memory", least);
}

/// Why shared memory is used for `bytes` bytes, and how.
std::string explain_shared_memory(const Selection& selection, Collective collective, std::size_t bytes,
                                  const Group& group) {
  const bool one_shot = bytes <= group.one_shot_bytes;
  if (selection.is_hierarchical()) {
    return fmt::format("the ranks live on several hosts and share memory on each: {}",
                       one_shot ? "reduced to each host's first rank, among these, and broadcast on each host"
                                : "each rank allreduces its part of its host's sum with its counterparts");
  }
  return fmt::format("the ranks live on one host and share memory: {}",
                     one_shot ? "one shot, every rank reads what it needs of all others"
                              : fmt::format("two shots, in parts of {} bytes; windows are read and written in place{}",
                                            group.slice_bytes, explain_single_copies(collective, group)));
}

/// What has chosen: a setting, the table, or the built-in rules; and what became of the table.
std::string explain_reason(const SelectionQuery& asked, const Group& group, const std::string& forced) {
  const TuningTable* const table = group.table.get();
  if (forced != "auto") {
    return fmt::format("forced by a setting ({}){}", forced,
                       table == nullptr ? "" : fmt::format(", which goes before the table {}", table->file));
  }
  if (table == nullptr) return "chosen by Farandole";
  if (const TuningTable::Entry* entry = measured_entry(asked)) {
    return fmt::format("chosen by the table {}: {} us were measured for up to {} bytes, with Farandole {} on {}",
                       table->file, entry->time_us, entry->up_to_bytes, table->version, describe(table->shape));
  }
  std::string why;
  if (!group.table_fits) {
    why = fmt::format("is for {}, and this is {}", describe(table->shape), describe(group.shape()));
  } else if (const auto* entry = table->find(asked.collective, asked.bytes)) {
    why = fmt::format("says {}, but the ranks share no memory here", entry->algorithm);
  } else if (table->of(asked.collective).empty()) {
    why = fmt::format("has nothing for {}", name(asked.collective));
  } else {
    why =
        fmt::format("ends at {} bytes for {}", table->of(asked.collective).back().up_to_bytes, name(asked.collective));
  }
  return fmt::format("chosen by Farandole, because the table {} {}", table->file, why);
}

}  // namespace

std::string Communicator::explain(Collective collective, std::size_t bytes) const {
  const SelectionQuery asked = state().query(collective, bytes);
  const Selection selection = state().select(asked);
  std::string text =
      fmt::format("{} of {} bytes among {} ranks: {}", name(collective), bytes, size(), selection.name());
  if (selection.kind == Selection::Kind::kSchedule) {
    text += fmt::format(", {} segment{}", selection.segments, selection.segments == 1 ? "" : "s");
  }
  const std::string& forced = forced_algorithm(collective, settings());
  text += fmt::format("\n{}", explain_reason(asked, state().group(), forced));
  const bool by_messages = selection.kind == Selection::Kind::kSchedule || selection.is_vendor();
  text += by_messages ? "\n"
                      : fmt::format("{}{}\n", state().group().table ? "\n" : ": ",
                                    explain_shared_memory(selection, collective, bytes, state().group()));
  text += fmt::format("{} {} ({} us per message, {} GB/s) the cost model expects:\n",
                      by_messages ? "Over" : "By messages, over", transport(), asked.link.latency_us,
                      1e-3 / asked.link.us_per_byte);
  for (const Candidate& candidate : candidates(asked, settings())) {
    text += fmt::format("  {:<22} {:>3} segments {:>14.2f} us predicted\n", candidate.algorithm->name,
                        candidate.segments, candidate.predicted_us);
  }
  return text;
}

std::string Communicator::choose(Collective collective, std::size_t bytes) const {
  endpoint().check_process();
  return std::string(state().select(state().query(collective, bytes)).name());
}

std::string Communicator::transport() const {
  return state().group().shape().transport;
}

TuningShape Communicator::tuning_shape() const {
  return state().group().shape();
}

}  // namespace farandole
