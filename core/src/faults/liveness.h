// SPDX-License-Identifier: Apache-2.0
// Whether the other processes of this host still live.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "farandole/internal/deadline.h"

namespace farandole {

/// A process id names a process only together with its PID namespace, and only until the process has ended: later
/// another process may get the number. A start time tells the two apart.
struct ProcessIdentity {
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;     ///< clock ticks since the machine has started; 0: unknown
  std::uint64_t pid_namespace = 0;  ///< its inode; 0: unknown
  static constexpr std::uint64_t kOtherNamespace = ~std::uint64_t{0};  ///< unknown, and not this process's
};
ProcessIdentity own_identity();

/// What a line of /proc/<pid>/stat says.
struct ProcessStat {
  char state = '?';
  std::uint64_t start_time = 0;
  std::uint64_t threads = 1;
  /// A process that has ended and whose parent has not asked for its status yet is as dead as one that is gone. One
  /// whose main thread has ended while others go on says the same of its state.
  bool is_dead() const { return (state == 'Z' && threads <= 1) || state == 'X' || state == 'x'; }
};
/// Nothing if the line is none, or cut. The name of the program may hold blanks and parentheses.
std::optional<ProcessStat> parse_process_stat(std::string_view line);

/// Sees that processes of this host die: by a pidfd of each or, where the kernel refuses those, by reading
/// /proc/<pid>/stat through a descriptor that is kept open, which sees no other process of the same number either. Not
/// thread-safe. Costs a descriptor per process; a look costs one poll(2), or a read per process each kProcInterval.
class Liveness {
 public:
  /// How often /proc is read, at most: 5 µs per process.
  static constexpr std::chrono::milliseconds kProcInterval{50};

  /// @param way  a value of FARANDOLE_LIVENESS: auto, pidfd, proc, off
  explicit Liveness(std::string_view way);
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  /// Starts to watch; a process that is not there any more is dead. Returns why its death would not be noticed and what
  /// to do about that, or nothing.
  std::string watch(int process, const ProcessIdentity& identity);
  /// The watched processes that have died so far.
  const std::set<int>& dead(Clock::time_point now = Clock::now());
  /// "pidfd", "proc", or "nothing": what has been used so far.
  std::string_view used() const;

 private:
  struct Watched {
    int descriptor = -1;
    std::uint64_t start_time = 0;  // by /proc; 0: the descriptor is a pidfd
  };
  std::string watch_by_pidfd(int process, const ProcessIdentity& identity);
  std::string watch_by_proc(int process, const ProcessIdentity& identity);
  void look_at_pidfds();
  void look_at_proc(Clock::time_point now);
  void bury(int process);

  const bool tries_pidfd_, tries_proc_;
  std::map<int, Watched> by_pidfd_, by_proc_;  // by process
  std::set<int> dead_;
  Clock::time_point next_proc_{};
};

}  // namespace farandole
