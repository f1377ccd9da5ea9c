// SPDX-License-Identifier: Apache-2.0
// Watches direct calls (DirectCalls): compares them among the ranks, and ends the process if its device hangs or has
// wrong data.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "device/captured_calls.h"
#include "device/device_context.h"
#include "device/device_scratch.h"
#include "device/direct_comparison.h"
#include "device/direct_log.h"
#include "device/watch_thread.h"
#include "farandole/internal/progress.h"
#include "farandole/internal/stall_monitor.h"
#include "operation/group.h"

namespace farandole {

/// Watches the direct calls of one communicator. The calling thread enqueues calls and adds them to the log; `tick`, on
/// the watch thread of the rank's device, then:
///
/// 1. Compares the calls with those of the rank before this one (DirectComparison). The first difference poisons the
/// job: all ranks raise a Mismatch.
/// 2. Logs a warning if a call has not ended on the device after FARANDOLE_WARN_AFTER, and poisons the job with a
/// Timeout after FARANDOLE_TIMEOUT. Both texts name the ranks that have not made the call. The same limits hold for a
/// call that does not return from the vendor's library, and for a replay of a graph with a captured call; the watch
/// cannot tell which ranks have not replayed the graph.
/// 3. After a fault of the job, if calls have not ended, are in graphs, or differ: ends the process, or aborts the
/// device's collectives (FARANDOLE_DEVICE_FAULT).
///
/// The watch closes itself when the World ends, even if the communicator lives longer.
class DirectWatch final : public Watched, public Progressable {
 public:
  /// @param words  see DirectLog   @param devices  null if this rank is alone
  DirectWatch(const Group& group, DeviceScratch words, std::shared_ptr<DeviceGroup> devices);

  DirectLog& calls() { return calls_; }
  CapturedCalls& captured() { return captured_; }
  void tick(Clock::time_point now) override;
  bool is_active() const override { return is_active_; }
  bool has_running() const override {
    return calls_.being_enqueued().has_value() || !calls_.ends()->include(calls_.count()) || captured_.has_running();
  }
  /// Blocks until all calls and replays have ended on the device and all calls were compared, or until the job fails.
  /// Idempotent. Never throws.
  void close() override;
  /// True if `close` saw the end of all calls. If false, the device may still use the memory of calls.
  bool has_closed_well() const { return closed_well_.value_or(false); }

  // No-ops, because the watch has a thread of its own. It is Progressable only so that the World's end closes the
  // watch.
  State advance() override { return State::kIdle; }
  void poll_health() override {}

 private:
  /// A call that has not ended, and the reason why this rank waits.
  struct Wait {
    enum class For : std::uint8_t { kEnqueue, kCall, kReplay };
    For what;
    DirectLog::Pending call;
    Descriptor descriptor;                     ///< unknown while the call is being enqueued
    std::optional<DirectLog::Pending> behind;  ///< for a replay: the oldest call that has not ended
  };
  /// True if calls or replays have not ended on the device.
  bool is_on_device() const { return calls_.ended() < calls_.count() || captured_.has_running(); }
  /// True once all calls and replays have ended on the device, and all calls were compared.
  bool is_settled() const;
  /// Compares calls, and checks deadlines, peers and the device. Poisons the job if one of these fails.
  void look(Clock::time_point now);
  /// To be called after a fault of the job. True if calls may hang or have wrong results: they have not ended, differ,
  /// or are in graphs.
  bool is_affected();
  std::optional<DirectLog::Pending> give_up_ended(Clock::time_point now);
  /// Returns what this rank has waited for longest: a replay, else the oldest call; nothing if all have ended.
  std::optional<Wait> oldest_wait(Clock::time_point now);
  void check_deadline(Clock::time_point now);
  /// @throws PeerLost  a rank has left the job without making the call
  void check_departures(const DirectLog::Pending& pending) const;
  void check_devices(Clock::time_point now);
  void end_after_fault(Clock::time_point now);
  std::string describe_self() const { return group_.endpoint->topology().describe(group_.endpoint->rank()); }
  std::string describe_stall(const Wait& wait, Clock::time_point now) const;
  std::string describe_closing() const;

  const Group group_;
  const std::string label_;
  std::optional<DeviceContext::ContextRef> context_ref_;  // empty after close()
  DeviceContext& context_;
  std::shared_ptr<DeviceGroup> devices_;  // null after close()
  DirectLog calls_;
  CapturedCalls captured_;
  std::atomic<bool> is_active_{false};
  DirectComparison comparison_;
  StallMonitor stall_;
  Clock::time_point last_end_{};  // when a call or replay was last seen to end; the next deadline counts from it
  Clock::time_point next_device_check_{};
  std::optional<Clock::time_point> fault_seen_;
  std::mutex close_mutex_;
  std::optional<bool> closed_well_;  // empty until close(), which sets it under close_mutex_
};

}  // namespace farandole
