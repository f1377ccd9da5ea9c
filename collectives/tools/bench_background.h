// SPDX-License-Identifier: Apache-2.0
// farandole-bench --beside: a collective in the background of the measurement.
#pragma once

#include <cstddef>
#include <cstdint>

#include "farandole/collectives/communicator.h"
#include "farandole/core/buffer.h"

namespace farandole::bench {

/// Repeats an asynchronous allreduce on a communicator of its own, beside the measured calls.
class BackgroundAllreduce {
 public:
  /// Collective over `ranks`, which must outlive this object. @param bytes  size of the vector, whose type is f32
  BackgroundAllreduce(Communicator& ranks, std::size_t bytes);
  BackgroundAllreduce(const BackgroundAllreduce&) = delete;
  BackgroundAllreduce& operator=(const BackgroundAllreduce&) = delete;

  /// Begins the next allreduce, unless the last one is still in flight. Non-blocking.
  void keep_running();
  /// Waits until all ranks have completed the same number of allreduces. Collective over the ranks.
  void finish();

 private:
  void begin();

  Communicator& ranks_;
  Communicator own_;
  Buffer values_;
  std::int64_t begun_ = 0;
  Work work_;  // last member: its destructor waits before the buffer is released
};

}  // namespace farandole::bench
