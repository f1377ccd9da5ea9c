// SPDX-License-Identifier: Apache-2.0
// Times of training steps on a device, by phase, measured by events in the stream of the execution.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "farandole/sdk/device.h"
#include "farandole/trainer/execution.h"
#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// Part of a training step on a device.
enum class DevicePhase : std::uint8_t {
  kInput,          ///< copy of the batch
  kForward,        ///< with loss and metrics
  kBackward,       ///< with accumulation
  kCommunication,  ///< waiting for the replicas' gradients after backward
  kGraph,          ///< a graph with the three phases above
  kUpdate,
};
inline constexpr std::size_t kDevicePhases = 6;

/// Seconds of a training step, by phase.
using DevicePhaseSeconds = std::array<double, kDevicePhases>;

/// The newest measured training steps.
class DeviceTimeSamples {
 public:
  void add(const DevicePhaseSeconds& step);
  void add(const DeviceTimeSamples& others);
  void clear() { steps_.clear(); }
  /// Medians; empty if no training step was measured.
  std::optional<DeviceTimes> medians() const;

 private:
  static constexpr std::size_t kMaxSteps = 1024;
  std::deque<DevicePhaseSeconds> steps_;
};

/// Measures training steps. Each phase ends with an event, and lasts from the event before. It so includes the time in
/// which the stream waits for the host to enqueue the phase.
///
///     timer.begin_step();
///     timer.start();                        // whatever was enqueued before belongs to no phase
///     …enqueue the copy of the batch…
///     timer.end(DevicePhase::kInput);
///     …
///     timer.end_step();
///     …the host waits for the device…
///     timer.collect(samples);
///
/// The host never waits for events: `collect` reads the training steps that are complete. Events of two training steps
/// exist, and are used again: those of a training step that was not read two steps later are lost. So with
/// TrainerOptions::check_every = 1 each training step is read in the check of the next one. With larger numbers only
/// the training step before each check is read, whose work was enqueued behind that of earlier training steps.
///
/// Events that are captured into a graph have no time. A graph is measured as a whole, from outside: kGraph.
///
/// No-op if the timer is off, or the execution is in host memory. Not thread-safe.
class DeviceTimer {
 public:
  /// @param execution  outlives this object
  DeviceTimer(const Execution& execution, bool is_on) : execution_(execution), is_on_(is_on && on_device()) {}

  bool is_on() const { return is_on_; }
  void begin_step();
  /// Begins a phase: the time since the last event belongs to no phase. @throws DeviceError
  void start();
  /// Ends a phase, which may have several parts in a training step. @throws DeviceError
  void end(DevicePhase phase);
  void end_step();
  /// Adds the training steps that are complete and were not read. @throws DeviceError
  void collect(DeviceTimeSamples& samples);

 private:
  struct Mark {
    std::unique_ptr<DeviceEvent> event;
    std::optional<DevicePhase> phase;  // that ends here
  };
  struct Step {
    std::vector<Mark> marks;
    std::size_t used = 0;   // number of marks
    bool is_whole = false;  // and not read
  };

  bool on_device() const { return !execution_.space().is_host(); }
  void record(std::optional<DevicePhase> phase);
  DevicePhaseSeconds seconds_of(const Step& step) const;

  const Execution& execution_;
  const bool is_on_;
  std::array<Step, 2> steps_;
  std::size_t current_ = 0;
};

}  // namespace farandole::trainer
