// SPDX-License-Identifier: Apache-2.0
#include "faults/clean_shutdown.h"

#include <algorithm>
#include <utility>

namespace farandole {

ShutdownTree ShutdownTree::of(const Topology& topology, int process) {
  std::vector<int> first_of_host(static_cast<std::size_t>(topology.host_count()), -1);
  const auto parent_of = [&](int p) {
    int& first = first_of_host[static_cast<std::size_t>(topology.process(p).host_index)];
    if (first < 0) first = p;
    return first == p ? 0 : first;
  };
  ShutdownTree tree;
  for (int p = 0; p < topology.process_count(); ++p) {
    const int parent = parent_of(p);
    if (p == 0) continue;
    if (p == process) tree.parent = parent;
    if (parent == process) tree.children.push_back(p);
  }
  return tree;
}

CleanShutdown::CleanShutdown(const Topology& topology, int process, Post post)
    : process_(process), tree_(ShutdownTree::of(topology, process)), post_(std::move(post)) {}

void CleanShutdown::post(int process, ControlMessage::Kind kind) const {
  ControlMessage control;
  control.kind = kind;
  control.process = process_;
  control.sequence = round_;
  post_(process, control);
}

void CleanShutdown::handle(const ControlMessage& control) {
  if (control.sequence >= kRounds) return;
  Round& round = rounds_[control.sequence];
  const auto& children = tree_.children;
  if (control.kind == ControlMessage::Kind::kAllLeave) round.is_over = round.is_over || tree_.parent == control.process;
  if (control.kind == ControlMessage::Kind::kLeave &&
      std::find(children.begin(), children.end(), control.process) != children.end()) {
    round.ready.insert(control.process);
  }
}

bool CleanShutdown::advance() {
  while (has_begun_ && round_ < kRounds && all_ready()) {
    Round& round = rounds_[round_];
    if (tree_.parent && !round.has_reported) post(*tree_.parent, ControlMessage::Kind::kLeave);
    round.has_reported = true;
    if (tree_.parent && !round.is_over) return false;
    for (const int child : tree_.children) post(child, ControlMessage::Kind::kAllLeave);
    ++round_;
  }
  return round_ == kRounds;
}

bool CleanShutdown::must_be_alive(int process) const {
  if (round_ == kRounds) return false;
  if (round_ + 1 < kRounds || !rounds_[round_].has_reported) return true;
  const auto& children = tree_.children;
  return tree_.parent == process || std::find(children.begin(), children.end(), process) != children.end();
}

std::vector<int> CleanShutdown::waits_for() const {
  std::vector<int> processes;
  if (round_ == kRounds) return processes;
  const Round& round = rounds_[round_];
  for (const int child : tree_.children) {
    if (round.ready.count(child) == 0) processes.push_back(child);
  }
  if (processes.empty() && tree_.parent && !round.is_over) processes.push_back(*tree_.parent);
  return processes;
}

}  // namespace farandole
