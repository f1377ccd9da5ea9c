// SPDX-License-Identifier: Apache-2.0
#include "schedule_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace farandole::tools {
namespace {

std::string memory_text(const Region& region) {
  switch (region.space) {
    case Space::kInput:
      return "input";
    case Space::kData:
      return "data";
    case Space::kScratch:
      return fmt::format("scratch {}", region.slot);
  }
  return "";
}

/// Source and destination of the step's values.
std::string flow_text(const Step& step) {
  switch (step.kind) {
    case StepKind::kSend:
      return memory_text(step.operand) + " -> message";
    case StepKind::kRecv:
      return "message -> " + memory_text(step.target);
    case StepKind::kRecvReduce:
      return fmt::format("{} op message -> {}", memory_text(step.operand), memory_text(step.target));
    case StepKind::kReduce:
      return fmt::format("{} op {} -> {}", memory_text(step.operand), memory_text(step.other),
                         memory_text(step.target));
    case StepKind::kCopy:
      return fmt::format("{} -> {}", memory_text(step.operand), memory_text(step.target));
    case StepKind::kFinish:
      return fmt::format("{} * scale -> {}", memory_text(step.operand), memory_text(step.target));
  }
  return "";
}

std::string peer_text(const Step& step) {
  if (step.peer < 0) return "";
  return fmt::format("{} {}", step.kind == StepKind::kSend ? "to" : "from", step.peer);
}

}  // namespace

std::vector<Schedule> make_schedules(const Algorithm& algorithm, int size, int root, int segments) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < size; ++rank) {
    schedules.push_back(algorithm.make({rank, size, root}, segments));
  }
  return schedules;
}

std::string step_table(const Algorithm& algorithm, const Schedule& schedule) {
  const std::string root = is_rooted(algorithm.collective) ? fmt::format(", root {}", schedule.place.root) : "";
  std::string text = fmt::format("{} {}: rank {} of {}{}; {} chunk{} of {} segment{}, {} round{}, {} scratch slot{}\n",
                                 name(algorithm.collective), algorithm.name, schedule.place.rank, schedule.place.size,
                                 root, schedule.chunks, schedule.chunks == 1 ? "" : "s", schedule.segments,
                                 schedule.segments == 1 ? "" : "s", schedule.rounds, schedule.rounds == 1 ? "" : "s",
                                 schedule.scratch_slots, schedule.scratch_slots == 1 ? "" : "s");
  text += fmt::format("{:>5} {:>5}  {:<12} {:<10} {:<18} {:<32} {}\n", "step", "round", "action", "peer", "pieces",
                      "memory", "waits for");
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    const Region& region = step.kind == StepKind::kSend ? step.operand : step.target;
    std::string waits = step.after.empty() ? "-" : fmt::format("{}", fmt::join(step.after, ", "));
    if (step.posted_after >= 0) waits += fmt::format("; posted after {}", step.posted_after);
    text += fmt::format("{:>5} {:>5}  {:<12} {:<10} {:<18} {:<32} {}\n", i, step.round, name(step.kind),
                        peer_text(step), describe(schedule, region), flow_text(step), waits);
  }
  return text;
}

Prediction predict(const Algorithm& algorithm, const Place& place, int segments, double bytes, const Network& network) {
  Prediction prediction;
  prediction.segments = segments;
  prediction.cost = algorithm.cost(place, segments);
  std::vector<double> max_in_round(static_cast<std::size_t>(prediction.cost.rounds), 0.0);
  for (int rank = 0; rank < place.size; ++rank) {
    const Schedule schedule = algorithm.make({rank, place.size, place.root}, segments);
    const double piece = algorithm.piece_bytes(schedule.place.size, schedule.segments, bytes);
    std::vector<double> sent(max_in_round.size(), 0.0);
    std::vector<double> received = sent;
    double sent_by_rank = 0;
    for (const Step& step : schedule.steps) {
      const auto round = static_cast<std::size_t>(step.round);
      if (step.kind == StepKind::kSend) {
        sent[round] += step.operand.count * piece;
        sent_by_rank += step.operand.count * piece;
      } else if (step.kind == StepKind::kRecv || step.kind == StepKind::kRecvReduce) {
        received[round] += step.target.count * piece;
      }
    }
    for (std::size_t round = 0; round < max_in_round.size(); ++round) {
      max_in_round[round] = std::max({max_in_round[round], sent[round], received[round]});
    }
    prediction.bytes_sent = std::max(prediction.bytes_sent, sent_by_rank);
  }
  for (const double max_bytes : max_in_round) {
    prediction.seconds += network.latency_seconds + max_bytes / network.bytes_per_second;
  }
  return prediction;
}

std::span<const Link> links() {
  constexpr double kKernel = 8.4, kNvlink = kKernel + 3.4, kPcie = kKernel + 5.7, kNetwork = kKernel + 14;
  static constexpr std::array kLinks{
      Link{"nvlink3", kNvlink, 2400}, Link{"nvlink4", kNvlink, 3600}, Link{"nvlink5", kNvlink, 7200},
      Link{"pcie3", kPcie, 126},      Link{"pcie4", kPcie, 252},      Link{"pcie5", kPcie, 504},
      Link{"hdr", kNetwork, 200},     Link{"ndr", kNetwork, 400},     Link{"10gbe", kNetwork, 10},
      Link{"25gbe", kNetwork, 25},    Link{"100gbe", kNetwork, 100},
  };
  return kLinks;
}

Prediction predict_best(const Algorithm& algorithm, const Place& place, double bytes, const Network& network) {
  Prediction best = predict(algorithm, place, 1, bytes, network);
  // Algorithms with a chunk per rank need only 1 segment: their number of rounds does not depend on the number of
  // segments, so the model predicts the same time for all numbers.
  const bool few_chunks = algorithm.chunks(2) == algorithm.chunks(3);
  for (int segments = 2; algorithm.pipelined && few_chunks && segments <= 256; segments *= 2) {
    const Prediction next = predict(algorithm, place, segments, bytes, network);
    if (next.seconds < best.seconds) best = next;
  }
  return best;
}

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.2f} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.2f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

std::string bytes_text(double bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) {
    bytes /= 1024;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, kUnits[unit]);
}

}  // namespace farandole::tools
