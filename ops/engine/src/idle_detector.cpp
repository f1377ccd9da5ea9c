// SPDX-License-Identifier: Apache-2.0
#include "idle_detector.h"

#include <ctime>
#include <utility>

namespace farandole {
namespace {

using std::chrono::milliseconds;

// Minimum time between two readings of the process's CPU time, and before the first reading.
constexpr milliseconds kSampleInterval{50};
// CPU time that an idle process may use: kPollingTime for the polling with which each wait begins, and this share of
// the waiting time for background threads that wake now and then.
constexpr milliseconds kPollingTime{50};
constexpr double kBackgroundShare = 0.03;

}  // namespace

IdleDetector::IdleDetector(Seconds threshold, std::function<ProcessorTime()> processor_time)
    : threshold_(threshold), processor_time_(std::move(processor_time)) {}

IdleDetector::ProcessorTime IdleDetector::processor_time_of_process() {
  timespec time{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void IdleDetector::end() {
  last_poll_.reset();
  idle_since_.reset();
  is_idle_ = false;
}

bool IdleDetector::update(std::uint64_t progress, Clock::time_point now) {
  // After a gap between polls (the process was stopped), other threads may be about to submit what peers wait for.
  if (!last_poll_ || progress != progress_ || now - *last_poll_ > StopDetector::kMaxGap) {
    end();
    progress_ = progress;
    last_sample_ = now;
  }
  last_poll_ = now;
  if (now - last_sample_ < kSampleInterval) return false;
  last_sample_ = now;
  const Sample sample{now, processor_time_()};
  if (!idle_since_) idle_since_ = sample;
  const Seconds waited = now - idle_since_->at;
  if (sample.used - idle_since_->used > kPollingTime + kBackgroundShare * waited) {
    idle_since_ = sample;
    is_idle_ = false;
    return false;
  }
  return !std::exchange(is_idle_, waited >= threshold_) && is_idle_;
}

}  // namespace farandole
