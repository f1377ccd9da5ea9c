// SPDX-License-Identifier: Apache-2.0
// How often processes that wait for each other announce which processes are late.
#pragma once

#include <algorithm>
#include <chrono>

#include "farandole/core/settings.h"
#include "farandole/internal/deadline.h"

namespace farandole::sockets {

/// Returns the interval between announcements of late processes: 1 s, or a fifth of the time until the first warning or
/// the timeout if that is shorter. So the receivers know the late processes before their own warning and timeout.
/// @param timeout  0: there is none
inline Clock::duration announcement_interval(Seconds warn_after, Seconds timeout) {
  constexpr Seconds kMaxInterval{1};
  constexpr double kFractionOfWait = 0.2;
  Seconds interval = std::min(kMaxInterval, kFractionOfWait * warn_after);
  if (timeout.count() > 0) interval = std::min(interval, kFractionOfWait * timeout);
  return std::chrono::duration_cast<Clock::duration>(interval);
}

}  // namespace farandole::sockets
