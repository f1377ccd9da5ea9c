// SPDX-License-Identifier: Apache-2.0
// Waits that are not silent.
#pragma once

#include <fmt/format.h>

#include "farandole/core/error.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/log.h"

namespace farandole {

/// Waits, but not in silence: a warning after FARANDOLE_WARN_AFTER, the next after twice as long, and so on; an error
/// after FARANDOLE_TIMEOUT.
class StallMonitor {
 public:
  /// @param timeout  0: never
  StallMonitor(std::chrono::duration<double> warn_after, std::chrono::duration<double> timeout)
      : interval_(warn_after),
        timeout_(timeout),
        warning_(Deadline::after(warn_after)),
        deadline_(timeout.count() > 0 ? Deadline::after(timeout) : Deadline::never()) {}

  /// To be called now and then. @param describe  returns which ranks wait for which   @throws Timeout
  template <class Describe>
  void check(const Describe& describe) {
    if (deadline_.passed()) {
      throw Timeout(
          fmt::format("the deadline of {} s (FARANDOLE_TIMEOUT) has passed: {}", timeout_.count(), describe()));
    }
    if (!warning_.passed()) return;
    log(LogLevel::kWarning, describe());
    interval_ *= 2;
    warning_ = Deadline::after(interval_);
  }

 private:
  std::chrono::duration<double> interval_;
  const std::chrono::duration<double> timeout_;
  Deadline warning_;
  const Deadline deadline_;
};

}  // namespace farandole
