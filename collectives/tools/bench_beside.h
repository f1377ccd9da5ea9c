// SPDX-License-Identifier: Apache-2.0
// farandole-bench: what else the ranks reduce while something is measured.
#pragma once

#include <cstddef>
#include <cstdint>

#include "farandole/collectives/communicator.h"
#include "farandole/core/buffer.h"

namespace farandole::bench {

/// An asynchronous allreduce on a communicator of its own, again and again.
class Beside {
 public:
  /// Collective over `ranks`, which outlive this. @param bytes  of the vector, f32
  Beside(Communicator& ranks, std::size_t bytes);
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  /// Begins the next one, unless the last is still in flight. Never blocks.
  void keep_running();
  /// Waits until all ranks have completed as many. Collective over the ranks.
  void finish();

 private:
  void begin();

  Communicator& ranks_;
  Communicator own_;
  Buffer values_;
  std::int64_t begun_ = 0;
  Work work_;  // last: it waits before its buffer goes
};

}  // namespace farandole::bench
