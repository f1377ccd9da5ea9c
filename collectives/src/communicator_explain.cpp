// What runs, and why.
#include <fmt/core.h>

#include "communicator_state.h"

namespace farandole {

namespace {

/// Why shared memory is used for `bytes` bytes, and how.
std::string explain_shared_memory(const Choice& choice, std::size_t bytes, const Settings& settings) {
  const bool at_once = bytes <= static_cast<std::size_t>(settings.one_shot_bytes);
  if (choice.is_hierarchical()) {
    return fmt::format("the ranks live on several hosts and share memory on each: {}",
                       at_once ? "reduced to each host's first rank, among these, and broadcast on each host"
                               : "each rank allreduces its part of its host's sum with its counterparts");
  }
  return fmt::format("the ranks live on one host and share memory: {}",
                     at_once ? "one shot, every rank reads everybody's data once"
                             : fmt::format("two shots, in parts of {} bytes; windows are read and written in place",
                                           settings.part_bytes));
}

}  // namespace

std::string Communicator::explain(Collective collective, std::size_t bytes) const {
  const Question asked = state_->question(collective, bytes);
  const Choice choice = state_->choose(asked);
  std::string text = fmt::format("{} of {} bytes among {} ranks: {}", name(collective), bytes, size(), choice.name());
  if (choice.kind == Choice::Kind::kSchedule) {
    text += fmt::format(", {} segment{}", choice.segments, choice.segments == 1 ? "" : "s");
  }
  const std::string& forced = forced_algorithm(collective, settings());
  text += forced == "auto" ? "\nchosen by Farandole" : fmt::format("\nforced by a setting ({})", forced);
  const bool by_messages = choice.kind == Choice::Kind::kSchedule || choice.is_vendor();
  text += by_messages ? "\n" : fmt::format(": {}\n", explain_shared_memory(choice, bytes, settings()));
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
  return std::string(state_->choose(state_->question(collective, bytes)).name());
}

std::string Communicator::transport() const {
  const Group& group = state_->group();
  std::string names;
  for (int peer = 0; peer < size(); ++peer) {
    const std::string route(group.route(peer).name());
    if (peer == group.rank && size() > 1) continue;
    if (names.find(route) == std::string::npos) names += (names.empty() ? "" : "+") + route;
  }
  return names;
}

}  // namespace farandole
