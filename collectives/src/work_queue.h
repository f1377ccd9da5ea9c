// The collectives of one communicator that are queued or in flight.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "collective_operation.h"
#include "farandole/collectives/communicator.h"
#include "farandole/core/progress.h"
#include "group.h"

namespace farandole {

class WorkQueue;

/// One collective from its submission to its end. `done` is set last; its release pairs with the acquire of waiters, so
/// that they see the result and `error`. The queue's lock guards `operation` and the times.
class Work::State {
 public:
  std::shared_ptr<WorkQueue> queue;
  std::uint64_t sequence = 0;
  Descriptor descriptor;
  FlightRecorder::Id record = 0;
  std::unique_ptr<CollectiveOperation> operation;
  std::exception_ptr error;
  std::atomic<bool> done{false};
  bool started = false;
  Clock::time_point queued{}, moved{};
  Clock::time_point next_warning{};
  Seconds warning_interval{0};
  bool asked = false;  ///< how far the others are
};

/// Runs up to kLanes operations at a time, started in the order of submission; each has its own lane. Any thread may
/// advance it; a mutex makes it one at a time.
class WorkQueue final : public Progressable, public std::enable_shared_from_this<WorkQueue> {
 public:
  explicit WorkQueue(const Group& group) : group_(group) {}

  std::shared_ptr<Work::State> submit(Call call, const Choice& choice, std::string refusal);
  /// Waits until `work` is done, advancing the queue meanwhile.
  void wait(const Work::State& work);
  /// Advances everything once, unless another thread is at it.
  Progressable::State advance() override;
  bool is_empty();
  /// Waits until nothing is left.
  void drain();

 private:
  bool advance_locked();
  bool advance_one(Work::State& work);
  void end(Work::State& work, std::exception_ptr error);
  void fail(const std::exception_ptr& error, Work::State& work);
  void fail_all(const std::exception_ptr& error);
  /// Warns about, and bounds, waiting; asks who is missing. For slow paths.
  void check_stalls();
  void check_stall(Work::State& work, Clock::time_point now);
  std::string describe_stall(const Work::State& work, Clock::time_point now) const;
  bool waits_for_someone_who_left(const Work::State& work) const;

  const Group& group_;
  std::mutex mutex_;  // guards everything below, and the operations
  std::deque<std::shared_ptr<Work::State>> pending_;
  std::uint64_t next_sequence_ = 1;
  VendorSlot vendor_;
};

}  // namespace farandole
