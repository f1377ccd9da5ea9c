// SPDX-License-Identifier: Apache-2.0
// Watches direct calls: compares them among the ranks, and ends a job whose device hangs or has wrong data.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/direct_comparison.h"
#include "device/direct_log.h"
#include "farandole/internal/progress.h"
#include "farandole/internal/stall_monitor.h"
#include "operation/group.h"

namespace farandole {

class DeviceContext;

/// The watch of one communicator whose device order is the caller's. The calling thread enqueues and writes to the log;
/// `tick`, on the thread of DirectWatchThread, does the rest:
///
/// 1. Each rank reports its calls to the next rank of the communicator, by control messages. A rank compares the
/// reports of the rank before it with its own calls; so all ranks are compared, in a ring. The first difference poisons
/// the job with a Mismatch.
/// 2. A call that has not ended on the device after FARANDOLE_WARN_AFTER is a warning, at FARANDOLE_TIMEOUT a Timeout;
/// both name the ranks that have not made the call. The same holds for a call that has not returned from the vendor's
/// library.
/// 3. Once the job has failed while calls are on the device, or calls differed, the process is ended, or the device's
/// collectives are aborted (FARANDOLE_DEVICE_FAULT).
class DirectWatch final : public Progressable {
 public:
  /// @param context  outlives the watch up to `close`
  DirectWatch(const Group& group, DeviceContext& context, std::shared_ptr<DeviceGroup> devices);

  DirectLog& calls() { return calls_; }
  /// True if calls were made since the last tick, or are on the device.
  bool is_active() const { return is_active_; }
  /// Called every few milliseconds by one thread. Never throws.
  void tick(Clock::time_point now);
  /// Waits until all calls have ended on the device, or the job has failed, and compares what is left. Idempotent.
  /// Never throws.
  void close() override;

  // The progress thread has nothing to do: the watch must also run where the program's thread waits for the device.
  State advance() override { return State::kIdle; }
  void poll_health() override {}

 private:
  /// True once all calls have ended on the device and were compared.
  bool is_settled() const;
  void check_deadline(Clock::time_point now);
  void check_devices(Clock::time_point now);
  void end_after_fault(Clock::time_point now);
  std::string describe_self() const { return group_.endpoint->topology().describe(group_.endpoint->rank()); }
  std::string describe_stall(const DirectLog::Pending& pending, bool is_enqueued, Clock::time_point now) const;

  const Group group_;
  const std::string label_;
  DeviceContext& context_;
  const std::shared_ptr<DeviceGroup> devices_;
  DirectLog calls_;
  bool is_active_ = false;
  DirectComparison comparison_;
  StallMonitor stall_;
  Clock::time_point next_device_check_{};
  std::optional<Clock::time_point> fault_seen_;
  std::mutex close_mutex_;
  bool is_closed_ = false;  // guarded by close_mutex_
};

/// Thread that ticks the watches of a rank: every 10 ms while calls are on the device, else every 100 ms. Thread-safe.
class DirectWatchThread {
 public:
  ~DirectWatchThread();
  /// Starts the thread if necessary. @throws Unsupported  the system refuses another thread
  void add(std::shared_ptr<DirectWatch> watch);
  /// Blocks while the watch ticks. No-op for an unknown watch.
  void remove(const DirectWatch& watch);

 private:
  void run(const std::stop_token& stop);

  std::mutex mutex_;                     // guards watches_; held during ticks
  std::condition_variable_any changed_;  // signalled by the destructor's request to stop
  std::vector<std::shared_ptr<DirectWatch>> watches_;
  std::jthread thread_;
};

}  // namespace farandole
