// SPDX-License-Identifier: Apache-2.0
#include "fake_graphs.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "fake_calls.h"
#include "fake_devices.h"
#include "fake_program_api.h"

namespace farandole::fake {

namespace {

std::atomic<int> captures{0};                    // captures that have not ended
std::atomic<int> global_captures{0};             // those of them that were begun in global mode
thread_local int strict_captures_of_thread = 0;  // captures that this thread began in a mode other than relaxed

void count_capture(int mode, int change) {
  captures.fetch_add(change, std::memory_order_relaxed);
  if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL) global_captures.fetch_add(change, std::memory_order_relaxed);
  if (mode != cuda::CU_STREAM_CAPTURE_MODE_RELAXED) strict_captures_of_thread += change;
}

void add_missing(std::vector<std::size_t>& nodes, const std::vector<std::size_t>& more) {
  for (const std::size_t node : more) {
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
  }
}

}  // namespace

int active_captures() {
  return captures.load(std::memory_order_relaxed);
}

bool captures_forbid_unsafe_calls() {
  const int mode = capture_mode_of_thread();
  if (mode == cuda::CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (strict_captures_of_thread > 0) return true;
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL && global_captures.load(std::memory_order_relaxed) > 0;
}

void GraphNodes::drop_owner() {
  if (owners.fetch_sub(1, std::memory_order_relaxed) != 1) return;
  for (const GraphNode& node : nodes) {
    if (node.release) node.release();
  }
}

void ExecutableGraph::launch(Stream& stream) {
  if (last_launch.stream != nullptr && last_launch.stream != &stream) {
    stream.device.enqueue(stream, {.call = "cuGraphLaunch", .after = {last_launch}});
  }
  for (const GraphNode& node : nodes.nodes) node.enqueue(stream);
  last_launch = {&stream, stream.pushed()};
}

Capture::Capture(Stream& origin, int mode)
    : Handle(Kind::kCapture),
      origin_(origin),
      mode_(mode),
      thread_(this_thread_number()),
      nodes_(make_kept<GraphNodes>(origin.device)),
      streams_{&origin} {
  count_capture(mode_, 1);
  origin.set_capture(this);
}

bool Capture::is_of_another_thread() const {
  return mode_ != cuda::CU_STREAM_CAPTURE_MODE_RELAXED && thread_ != this_thread_number();
}

void Capture::invalidate() {
  State active = State::kActive;
  state_.compare_exchange_strong(active, State::kInvalid, std::memory_order_relaxed);
}

void Capture::add(Stream& stream, std::function<void(Stream&)> enqueue, std::function<void()> release) {
  const std::lock_guard guard(mutex_);
  if (!is_valid()) return;
  std::vector<std::size_t>& end = ends_[&stream];
  nodes_.nodes.push_back({std::move(enqueue), std::move(release), std::exchange(end, {nodes_.nodes.size()})});
}

void Capture::add(Stream& stream, Item item) {
  // Items of launches refer to the work and do not share ownership, so no shared count of owners orders them.
  auto kept = std::make_shared<const Item>(std::move(item));
  add(stream,
      [kept = std::move(kept)](Stream& target) {
        target.device.enqueue(target, {.call = kept->call, .work = std::cref(kept->work), .uses = kept->uses});
      },
      {});
}

CapturedRecord Capture::record(const Stream& stream) {
  const std::lock_guard guard(mutex_);
  return {this, ends_[&stream]};
}

void Capture::wait(Stream& stream, const CapturedRecord& record) {
  const std::lock_guard guard(mutex_);
  if (!is_valid()) return;
  add_missing(ends_[&stream], record.nodes);
  if (stream.capture() == this) return;
  streams_.push_back(&stream);
  stream.set_capture(this);
}

Capture::End Capture::end() {
  const std::lock_guard guard(mutex_);
  for (Stream* const stream : streams_) stream->set_capture(nullptr);
  count_capture(mode_, -1);
  const bool was_valid = state_.exchange(State::kEnded, std::memory_order_relaxed) == State::kActive;
  const bool joins = is_joined();
  if (was_valid && joins) return {&nodes_, true};
  nodes_.drop_owner();
  return {nullptr, joins};
}

bool Capture::is_joined() const {
  std::vector<std::size_t> reached;
  if (const auto end = ends_.find(&origin_); end != ends_.end()) reached = end->second;
  for (std::size_t i = 0; i < reached.size(); ++i) {
    add_missing(reached, nodes_.nodes[reached[i]].predecessors);
  }
  return reached.size() == nodes_.nodes.size();
}

}  // namespace farandole::fake
