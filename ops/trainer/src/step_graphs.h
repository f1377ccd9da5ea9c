// SPDX-License-Identifier: Apache-2.0
// Training steps on a device as CUDA graphs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "farandole/sdk/device.h"
#include "farandole/trainer/execution.h"
#include "farandole/trainer/step_numbers.h"
#include "pinned_stage.h"

namespace farandole::trainer {

/// Runs the work of training steps, which is the same in each of them, in pieces. A piece is enqueued when it comes the
/// first time, and captured into a graph when it comes again; from then on the graph is launched. So each piece has run
/// once outside a graph, and its tensors have grown. What changes from training step to training step the work reads in
/// device memory: inputs at fixed addresses, and StepNumbers.
///
/// If graphs are off, or the execution is in host memory, every piece is enqueued. Not thread-safe.
class StepGraphs {
 public:
  /// What the work of a piece depends on, beside the model: numbers of samples. Pieces with other values than the first
  /// ones, such as those of an epoch's last batch, are enqueued.
  using Key = std::array<std::int64_t, 4>;

  /// @param execution  outlives this object
  StepGraphs(const Execution& execution, bool is_on);
  /// Waits until no graph runs.
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  bool is_on() const { return is_on_; }
  /// True while `run` captures a piece.
  bool is_capturing() const { return is_capturing_; }
  /// Sets the numbers of the training step at hand, in the order of the stream. No-op if graphs are off.
  void set_numbers(const StepNumbers& numbers);
  /// The numbers on the device; null if graphs are off.
  const StepNumbers* numbers() const;

  /// Runs a piece. `enqueue()` enqueues its work in the stream of the execution, and in streams that this one waits
  /// for.
  /// @param piece  numbers from 0 on, as many as needed
  /// @throws Unsupported  `must_forget`
  template <class Enqueue>
  void run(std::size_t piece, const Key& key, const Enqueue& enqueue) {
    if (!is_on_) return enqueue();
    switch (next(piece, key)) {
      case Next::kEnqueue:
        return enqueue();
      case Next::kCapture: {
        Capture capture(*this);
        enqueue();
        pieces_[piece].graph = capture.end();
        break;
      }
      case Next::kLaunch:
        break;
    }
    launch(piece);
  }

  /// True if memory that graphs use was released since they were captured. Replicas must `forget` together, because
  /// collectives in graphs match only each other.
  bool must_forget() const;
  /// Drops all graphs. Blocks until none runs. The pieces are enqueued and captured again.
  void forget();

 private:
  enum class Next { kEnqueue, kCapture, kLaunch };
  struct Piece {
    Key key{};
    bool has_run = false;
    std::unique_ptr<DeviceGraph> graph;
  };
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

  Next next(std::size_t piece, const Key& key);
  void launch(std::size_t piece);
  Device& device() const;

  const Execution& execution_;
  const bool is_on_;
  bool is_capturing_ = false;
  std::vector<Piece> pieces_;
  Buffer numbers_;
  std::array<std::unique_ptr<PinnedStage>, 2> stages_;  // the host fills one while the device copies from the other
  std::size_t next_stage_ = 0;
};

}  // namespace farandole::trainer
