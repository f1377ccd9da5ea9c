// SPDX-License-Identifier: Apache-2.0
#include "step_graphs.h"

#include <cstring>
#include <exception>

#include "kernels/memory_log.h"
#include "kernels/transfer.h"

namespace farandole::trainer {

StepGraphs::StepGraphs(const Execution& execution, bool is_on)
    : execution_(execution), is_on_(is_on && !execution.space().is_host()) {
  if (!is_on_) return;
  numbers_ = allocate(execution.memory(), sizeof(StepNumbers), DType::kU8);
  stages_.emplace(device());
  stages_->reserve(sizeof(StepNumbers));
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
  PinnedStage& stage = stages_->next();
  std::byte* const pinned = stage.memory();
  std::memcpy(pinned, &numbers, sizeof numbers);
  stage.send(numbers_.view().data, pinned, sizeof numbers, execution_.stream());
}

const StepNumbers* StepGraphs::numbers() const {
  return is_on_ ? static_cast<const StepNumbers*>(numbers_.view().data) : nullptr;
}

StepGraphs::Mode StepGraphs::propose(bool is_usual) {
  is_usual_ = is_usual;
  if (!is_on_) return Mode::kEnqueue;
  execution_.workspace().settle();  // memory cannot be released during a capture
  if (must_forget() || !has_ended_) forget();
  if (!is_usual || !has_run_) return Mode::kEnqueue;
  return is_captured_ ? Mode::kLaunch : Mode::kCapture;
}

void StepGraphs::begin(Mode mode) {
  mode_ = mode;
  has_ended_ = false;
  if (mode != Mode::kCapture || !is_captured_) return;
  finish(execution_);  // other replicas capture again, and so does this one
  pieces_.clear();
  is_captured_ = false;
}

void StepGraphs::end() {
  has_ended_ = true;
  if (mode_ == Mode::kEnqueue && is_usual_) has_run_ = true;
  if (mode_ == Mode::kCapture) is_captured_ = true;
}

bool StepGraphs::must_forget() const {
  return execution_.memory_log()->has_moved();
}

void StepGraphs::forget() {
  finish(execution_);
  pieces_.clear();
  has_run_ = is_captured_ = false;
  execution_.memory_log()->forget();
}

void StepGraphs::launch(std::size_t piece) {
  pieces_[piece]->launch(execution_.stream());
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
