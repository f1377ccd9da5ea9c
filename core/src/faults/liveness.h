// SPDX-License-Identifier: Apache-2.0
// Detects that other processes of this host have died.
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

/// Identity of a process. A process id is valid only within its PID namespace, and only until the process has ended:
/// the kernel may reuse the number. The start time distinguishes the processes.
struct ProcessIdentity {
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;     ///< clock ticks since the machine has started; 0: unknown
  std::uint64_t pid_namespace = 0;  ///< inode of the namespace; 0: unknown
  static constexpr std::uint64_t kOtherNamespace = ~std::uint64_t{0};  ///< unknown, but not this process's namespace
};
ProcessIdentity own_identity();

/// Fields of a line of /proc/<pid>/stat.
struct ProcessStat {
  char state = '?';
  std::uint64_t start_time = 0;
  std::uint64_t threads = 1;
  /// A zombie counts as dead. A process whose main thread has ended while other threads run is also in state Z, but
  /// alive.
  bool is_dead() const { return (state == 'Z' && threads <= 1) || state == 'X' || state == 'x'; }
};
/// Parses a line of /proc/<pid>/stat, in which the program's name may contain blanks and parentheses. Returns nothing
/// if the line is invalid or truncated.
std::optional<ProcessStat> parse_process_stat(std::string_view line);

/// Detects deaths of processes of this host: by a pidfd for each process or, if the kernel refuses pidfds, by reading
/// /proc/<pid>/stat through a descriptor that is kept open. Neither mechanism confuses a process with a later process
/// of the same number. Costs a descriptor per process; a check costs one poll(2), or a read per process every
/// kProcInterval. Not thread-safe.
class Liveness {
 public:
  /// Minimum interval between reads of /proc; a read costs 5 µs per process.
  static constexpr std::chrono::milliseconds kProcInterval{50};

  /// @param way  value of FARANDOLE_LIVENESS: auto, pidfd, proc or off
  explicit Liveness(std::string_view way);
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  /// Starts to watch a process; a process that does not exist any more counts as dead. Returns an empty text, or the
  /// reason why the death of the process would not be detected, with advice.
  std::string watch(int process, const ProcessIdentity& identity);
  /// Checks the watched processes, and returns all that have died so far.
  const std::set<int>& dead(Clock::time_point now = Clock::now());
  /// Mechanism used so far: "pidfd", "proc", or "nothing".
  std::string_view used() const;

 private:
  struct Watched {
    int descriptor = -1;
    std::uint64_t start_time = 0;  // of a process watched by /proc; unused for pidfds
  };
  std::string watch_by_pidfd(int process, const ProcessIdentity& identity);
  std::string watch_by_proc(int process, const ProcessIdentity& identity);
  void check_pidfds();
  void check_proc(Clock::time_point now);
  void mark_dead(int process);

  const bool tries_pidfd_, tries_proc_;
  std::map<int, Watched> by_pidfd_, by_proc_;  // by process
  std::set<int> dead_;
  Clock::time_point next_proc_{};
};

}  // namespace farandole
