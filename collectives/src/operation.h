// Operations: collectives in progress, moved on by whoever has time.
#pragma once

#include <vector>

namespace farandole {

/// Advanced by one thread at a time. Destroying an unfinished one withdraws its messages.
class Operation {
 public:
  enum class State { kWaiting, kMoved, kDone };
  virtual ~Operation() = default;
  /// Moves on without blocking. @throws Error  the collective has failed
  virtual State advance() = 0;
  /// Ranks of the job whose messages it waits for.
  virtual std::vector<int> waits_for() const = 0;
};

}  // namespace farandole
