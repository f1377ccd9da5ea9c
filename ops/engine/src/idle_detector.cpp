// SPDX-License-Identifier: Apache-2.0
#include "idle_detector.h"

#include <ctime>
#include <utility>

namespace farandole {
namespace {

using std::chrono::milliseconds;

// The processor time is read this often at most; the first time when the rank has waited so long.
constexpr milliseconds kBetweenSamples{50};
// What waiting itself takes, which begins with polling; and the share of one processor for threads that look around now
// and then.
constexpr milliseconds kPolling{50};
constexpr double kHardlyUsed = 0.03;

}  // namespace

IdleDetector::IdleDetector(Seconds lasts, std::function<ProcessorTime()> processor_time)
    : lasts_(lasts), processor_time_(std::move(processor_time)) {}

IdleDetector::ProcessorTime IdleDetector::processor_time_of_process() {
  timespec time{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void IdleDetector::end() {
  looked_.reset();
  first_.reset();
  holds_ = false;
}

bool IdleDetector::look(std::uint64_t happened, Clock::time_point now) {
  // After a gap what its peers were waiting for may come now.
  if (!looked_ || happened != happened_ || now - *looked_ > StopDetector::kMaxGap) {
    end();
    happened_ = happened;
    sampled_ = now;
  }
  looked_ = now;
  if (now - sampled_ < kBetweenSamples) return false;
  sampled_ = now;
  const Sample sample{now, processor_time_()};
  if (!first_) first_ = sample;
  const Seconds waited = now - first_->at;
  if (sample.used - first_->used > kPolling + kHardlyUsed * waited) {
    first_ = sample;
    holds_ = false;
    return false;
  }
  return !std::exchange(holds_, waited >= lasts_) && holds_;
}

}  // namespace farandole
