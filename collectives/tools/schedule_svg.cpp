// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "schedule_report.h"

namespace farandole::tools {
namespace {

constexpr int kLeft = 84, kTop = 92, kColumn = 130, kRow = 54, kBottom = 24, kRight = 24;

constexpr const char* kStyle = R"(<style>
text { font: 12px 'DejaVu Sans', Verdana, sans-serif; fill: #1f2937 }
.title { font-size: 16px; font-weight: bold }
.label { font-size: 11px; paint-order: stroke; stroke: #fff; stroke-width: 4px }
.faint { fill: #6b7280 }
.rank { stroke: #d1d5db }
.round { stroke: #e5e7eb; stroke-dasharray: 3 4 }
.move { stroke: #2563eb; stroke-width: 1.6; fill: none; marker-end: url(#move) }
.reduce { stroke: #c2410c; stroke-width: 1.6; fill: none; marker-end: url(#reduce) }
.plus { fill: #fff7ed; stroke: #c2410c; stroke-width: 1.6 }
.finish { fill: #15803d }
</style>
)";

/// An arrow: all messages from one rank to another rank in a round.
struct Arrow {
  bool reduces = false;
  std::vector<Region> regions;
};

int column_x(int round) {
  return kLeft + round * kColumn;
}
int row_y(int rank) {
  return kTop + rank * kRow + kRow / 2;
}

std::string label_of(const Schedule& schedule, const std::vector<Region>& regions) {
  std::string label;
  for (std::size_t i = 0; i < regions.size() && i < 3; ++i) {
    const std::string text = describe(schedule, regions[i]);
    label += (i == 0 ? "" : ", ") + text.substr(text.find(' ') + 1);
  }
  return regions.size() > 3 ? label + ", …" : label;
}

void append(std::vector<Region>& regions, const Region& region) {
  if (!regions.empty() && regions.back().first + regions.back().count == region.first) {
    regions.back().count += region.count;
  } else {
    regions.push_back(region);
  }
}

std::string marker(const char* id, const char* color) {
  return fmt::format(
      "<marker id=\"{}\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" markerHeight=\"7\" "
      "orient=\"auto\"><path d=\"M0 0 10 5 0 10z\" fill=\"{}\"/></marker>\n",
      id, color);
}

std::string plus_mark(int x, int y) {
  return fmt::format(
      "<circle class=\"plus\" cx=\"{0}\" cy=\"{1}\" r=\"7\"/><path class=\"plus\" d=\"M{2} {1}h8M{0} {3}v8\"/>\n", x, y,
      x - 4, y - 4);
}

std::string finish_mark(int x, int y) {
  return fmt::format("<path class=\"finish\" d=\"M{} {}l6 6-6 6-6-6z\"/>\n", x, y - 6);
}

std::string legend() {
  const int y = 50;
  return fmt::format(
             "<line class=\"move\" x1=\"16\" y1=\"{0}\" x2=\"52\" y2=\"{0}\"/><text x=\"60\" "
             "y=\"{1}\">received</text>\n",
             y, y + 4) +
         fmt::format(
             "<line class=\"reduce\" x1=\"140\" y1=\"{0}\" x2=\"176\" y2=\"{0}\"/><text x=\"204\" "
             "y=\"{1}\">reduced</text>\n",
             y, y + 4) +
         plus_mark(188, y) + finish_mark(284, y) +
         fmt::format(
             "<text x=\"296\" y=\"{}\">fully reduced, final scale</text>\n"
             "<text class=\"faint\" x=\"470\" y=\"{}\">numbers on arrows: chunk, or chunk.segment</text>\n",
             y + 4, y + 4);
}

std::string grid(int ranks, int rounds) {
  std::string svg;
  for (int round = 0; round < rounds; ++round) {
    svg += fmt::format("<text class=\"faint\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">round {}</text>\n",
                       column_x(round) + kColumn / 2, kTop - 8, round);
    svg += fmt::format("<line class=\"round\" x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\"/>\n", column_x(round), kTop,
                       kTop + ranks * kRow);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    svg += fmt::format("<text x=\"16\" y=\"{}\">rank {}</text>\n", row_y(rank) + 4, rank);
    svg += fmt::format("<line class=\"rank\" x1=\"{0}\" y1=\"{2}\" x2=\"{1}\" y2=\"{2}\"/>\n", kLeft, column_x(rounds),
                       row_y(rank));
  }
  return svg;
}

std::string line_svg(int round, int from, int to, bool reduces) {
  return fmt::format("<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", reduces ? "reduce" : "move",
                     column_x(round) + 10, row_y(from), column_x(round) + kColumn - 36, row_y(to));
}

/// Draws a label beside the tail of an arrow, on the side to which the arrow points, so that labels of different ranks
/// do not overlap. @param earlier  number of characters of the labels that are already there
std::string label_svg(int round, int from, int to, std::size_t earlier, const std::string& label) {
  return fmt::format("<text class=\"label\" x=\"{}\" y=\"{}\">{}<title>round {}: rank {} to rank {}</title></text>\n",
                     column_x(round) + 18 + 7 * static_cast<int>(earlier), row_y(from) + (to > from ? 20 : -12), label,
                     round, from, to);
}

std::string count_text(int count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

std::string svg_picture(const Algorithm& algorithm, const std::vector<Schedule>& schedules) {
  std::map<std::tuple<int, int, int>, Arrow> arrows;  // by round, sender, receiver
  std::set<std::pair<int, int>> reduced, finished;    // by round, rank
  int rounds = 1;
  for (const Schedule& schedule : schedules) {
    const int rank = schedule.place.rank;
    for (const Step& step : schedule.steps) {
      rounds = std::max(rounds, step.round + 1);
      if (step.kind == StepKind::kRecv || step.kind == StepKind::kRecvReduce) {
        Arrow& arrow = arrows[{step.round, step.peer, rank}];
        // Messages received into scratch memory are reduced afterwards.
        arrow.reduces = step.kind == StepKind::kRecvReduce || step.target.space == Space::kScratch;
        append(arrow.regions, step.target);
      }
      if (step.kind == StepKind::kRecvReduce || step.kind == StepKind::kReduce) {
        reduced.emplace(step.round, rank);
      } else if (step.kind == StepKind::kFinish) {
        finished.emplace(step.round, rank);
      }
    }
  }
  const int ranks = static_cast<int>(schedules.size());
  const int width = std::max(kLeft + rounds * kColumn + kRight, 760);
  const int height = kTop + ranks * kRow + kBottom;
  std::string svg =
      fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\">\n",
                  width, height);
  svg += kStyle;
  svg += "<defs>" + marker("move", "#2563eb") + marker("reduce", "#c2410c") + "</defs>\n";
  svg += fmt::format("<rect width=\"{}\" height=\"{}\" fill=\"#fff\"/>\n", width, height);
  svg +=
      fmt::format("<text class=\"title\" x=\"16\" y=\"26\">{} {}: {}, {}, {}, {}</text>\n", name(algorithm.collective),
                  algorithm.name, count_text(ranks, "rank"), count_text(schedules[0].chunks, "chunk"),
                  count_text(schedules[0].segments, "segment"), count_text(rounds, "round"));
  svg += legend() + grid(ranks, rounds);
  for (const auto& [key, arrow] : arrows) {
    const auto [round, from, to] = key;
    svg += line_svg(round, from, to, arrow.reduces);
  }
  std::map<std::tuple<int, int, bool>, std::size_t> label_lengths;  // by round, sender, direction
  for (const auto& [key, arrow] : arrows) {
    const auto [round, from, to] = key;
    const std::string label = label_of(schedules[static_cast<std::size_t>(to)], arrow.regions);
    std::size_t& length = label_lengths[{round, from, to > from}];
    svg += label_svg(round, from, to, length, label);
    length += label.size() + 1;
  }
  for (const auto& [round, rank] : reduced) {
    svg += plus_mark(column_x(round) + kColumn - 26, row_y(rank));
  }
  for (const auto& [round, rank] : finished) {
    svg += finish_mark(column_x(round) + kColumn - 10, row_y(rank));
  }
  return svg + "</svg>\n";
}

}  // namespace farandole::tools
