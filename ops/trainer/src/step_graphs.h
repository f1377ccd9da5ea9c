// SPDX-License-Identifier: Apache-2.0
// Training steps on a device as CUDA graphs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "farandole/sdk/device.h"
#include "farandole/trainer/execution.h"
#include "farandole/trainer/step_numbers.h"
#include "pinned_stage.h"

namespace farandole::trainer {

/// Runs the work of training steps, which is the same in each of them, in pieces. In a first training step all pieces
/// are enqueued, so that tensors grow and collectives run once; in a second one they are captured into a graph each,
/// and launched; from then on the graphs are launched. What changes from training step to training step the work reads
/// in device memory: inputs at fixed addresses, and StepNumbers.
///
///     const auto wanted = graphs.propose(has_full_batch);
///     graphs.begin(/* the least of all replicas' */ wanted);
///     graphs.run(0, [&] { …enqueue forward, backward, averaging… });
///     graphs.run_alone(1, [&] { …enqueue the update… });
///     graphs.end();
///
/// If graphs are off, or the execution is in host memory, all work is enqueued. Not thread-safe.
class StepGraphs {
 public:
  /// How a training step runs. All replicas run it in the same way, because collectives in graphs match only each
  /// other.
  enum class Mode : std::uint8_t { kEnqueue, kCapture, kLaunch };

  /// @param execution  outlives this object
  StepGraphs(const Execution& execution, bool is_on);
  /// Waits until no graph runs.
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  bool is_on() const { return is_on_; }
  /// True if the training step at hand runs without graphs.
  bool is_enqueuing() const { return mode_ == Mode::kEnqueue; }
  /// True while `run` captures a piece.
  bool is_capturing() const { return is_capturing_; }
  /// Sets the numbers of the training step at hand, in the order of the stream. No-op if graphs are off.
  void set_numbers(const StepNumbers& numbers);
  /// The numbers on the device; null if graphs are off.
  const StepNumbers* numbers() const;

  /// Returns how this replica can run the next training step. Drops the graphs if memory that they use was released, or
  /// if the last training step was not ended; blocks then until none runs.
  /// @param is_usual  the batch has the usual size. Other training steps, such as the last of an epoch, are enqueued
  Mode propose(bool is_usual);
  /// Begins a training step. @param mode  at most what `propose` returned
  void begin(Mode mode);
  /// Runs a piece. `enqueue()` enqueues its work in the stream of the execution, and in streams that this one waits
  /// for.
  /// @param piece  numbers from 0 on, as many as needed   @throws DeviceError
  template <class Enqueue>
  void run(std::size_t piece, const Enqueue& enqueue) {
    if (mode_ == Mode::kEnqueue) return enqueue();
    if (mode_ == Mode::kCapture) {
      Capture capture(*this);
      enqueue();
      pieces_.resize(std::max(pieces_.size(), piece + 1));
      pieces_[piece] = capture.end();
    }
    launch(piece);
  }
  /// Runs a piece without collectives. Enqueues its work if memory has moved since `begin`.
  template <class Enqueue>
  void run_alone(std::size_t piece, const Enqueue& enqueue) {
    const bool has_graph = mode_ == Mode::kLaunch;
    if (has_graph && must_forget()) return enqueue();
    run(piece, enqueue);
  }
  /// Ends a training step all of whose pieces have run.
  void end();

 private:
  /// Ends the capture in any case: a stream that stays captured could not be used again.
  class Capture {
   public:
    explicit Capture(StepGraphs& graphs);
    ~Capture();
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    std::unique_ptr<DeviceGraph> end();

   private:
    StepGraphs& graphs_;
  };

  bool must_forget() const;
  void forget();
  void launch(std::size_t piece);
  Device& device() const;

  const Execution& execution_;
  const bool is_on_;
  Mode mode_ = Mode::kEnqueue;  // of the training step at hand
  bool is_usual_ = false;       // likewise
  bool has_ended_ = true;       // the last training step has
  bool has_run_ = false;        // a usual training step was enqueued; with its memory the work can be captured
  bool is_captured_ = false;    // all pieces are
  bool is_capturing_ = false;   // a piece is being captured
  std::vector<std::unique_ptr<DeviceGraph>> pieces_;
  Buffer numbers_;
  std::optional<PinnedStages> stages_;  // for the numbers; empty if graphs are off
};

}  // namespace farandole::trainer
