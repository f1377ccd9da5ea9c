// SPDX-License-Identifier: Apache-2.0
#include "step_graphs.h"

#include <cstring>
#include <exception>
#include <utility>

#include "farandole/core/error.h"
#include "kernels/memory_log.h"
#include "kernels/transfer.h"

namespace farandole::trainer {

StepGraphs::StepGraphs(const Execution& execution, bool is_on)
    : execution_(execution), is_on_(is_on && !execution.space().is_host()) {
  if (!is_on_) return;
  numbers_ = allocate(execution.memory(), sizeof(StepNumbers), DType::kU8);
  for (auto& stage : stages_) {
    stage = std::make_unique<PinnedStage>(device());
    stage->reserve(sizeof(StepNumbers));
  }
}

StepGraphs::~StepGraphs() {
  if (!is_on_) return;
  try {
    forget();
  } catch (const std::exception&) {
    // The device has failed; whoever waits for results reports it.
  }
}

void StepGraphs::set_numbers(const StepNumbers& numbers) {
  if (!is_on_) return;
  next_stage_ = (next_stage_ + 1) % stages_.size();
  PinnedStage& stage = *stages_[next_stage_];
  std::byte* const pinned = stage.memory();
  std::memcpy(pinned, &numbers, sizeof numbers);
  stage.send(numbers_.view().data, pinned, sizeof numbers, execution_.stream());
}

const StepNumbers* StepGraphs::numbers() const {
  return is_on_ ? static_cast<const StepNumbers*>(numbers_.view().data) : nullptr;
}

bool StepGraphs::must_forget() const {
  return is_on_ && execution_.memory_log()->has_moved();
}

void StepGraphs::forget() {
  finish(execution_);
  pieces_.clear();
  execution_.memory_log()->forget();
}

StepGraphs::Next StepGraphs::next(std::size_t piece, const Key& key) {
  if (must_forget()) {
    throw Unsupported(
        "memory that the training step's graphs use was released between two training steps of one check: "
        "TrainerOptions::before_step has used the model with larger batches than the training; use the model in other "
        "callbacks, or train without TrainerOptions::graph");
  }
  if (pieces_.size() <= piece) pieces_.resize(piece + 1);
  Piece& known = pieces_[piece];
  if (known.key == key && known.graph) return Next::kLaunch;
  if (known.key == key && known.has_run) return Next::kCapture;
  if (!known.graph) known = {.key = key, .has_run = true, .graph = nullptr};
  return Next::kEnqueue;
}

void StepGraphs::launch(std::size_t piece) {
  pieces_[piece].graph->launch(execution_.stream());
}

Device& StepGraphs::device() const {
  return device_of(execution_);
}

StepGraphs::Capture::Capture(StepGraphs& graphs) : graphs_(graphs) {
  graphs_.device().begin_capture(graphs_.execution_.stream());
  graphs_.is_capturing_ = true;
}

StepGraphs::Capture::~Capture() {
  if (!graphs_.is_capturing_) return;
  try {
    end();
  } catch (const std::exception&) {
    // The capture has failed, and what has made it fail is being thrown.
  }
}

std::unique_ptr<DeviceGraph> StepGraphs::Capture::end() {
  graphs_.is_capturing_ = false;
  graphs_.execution_.memory_log()->record();
  return graphs_.device().end_capture(graphs_.execution_.stream());
}

}  // namespace farandole::trainer
