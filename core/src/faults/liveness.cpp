// SPDX-License-Identifier: Apache-2.0
#include "faults/liveness.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <system_error>
#include <vector>

#include "farandole/internal/standard_descriptors.h"

namespace farandole {
namespace {

constexpr std::string_view kTooManyFiles =
    "this process has too many open files: raise the limit (ulimit -n), one more per process of the host is needed";

bool is_short_of_files(int error) {
  return error == EMFILE || error == ENFILE;
}

/// Reads from the beginning of the file, so that the descriptor can be read repeatedly.
std::optional<ProcessStat> read_stat(int descriptor, int& error) {
  std::array<char, 1024> line{};
  const ssize_t bytes = pread(descriptor, line.data(), line.size(), 0);
  error = bytes < 0 ? errno : 0;
  if (bytes <= 0) return std::nullopt;
  return parse_process_stat({line.data(), static_cast<std::size_t>(bytes)});
}

int open_stat(std::int32_t pid) {
  return above_standard_descriptors(open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
}

/// True if another process has got the process id of `identity`.
bool is_reused(const ProcessStat& stat, const ProcessIdentity& identity) {
  return identity.start_time != 0 && stat.start_time != identity.start_time;
}

}  // namespace

ProcessIdentity own_identity() {
  ProcessIdentity identity{getpid(), 0, 0};
  struct stat space {};
  if (stat("/proc/self/ns/pid", &space) == 0) identity.pid_namespace = space.st_ino;
  if (const int descriptor = open_stat(identity.pid); descriptor >= 0) {
    int error = 0;
    if (const auto own = read_stat(descriptor, error)) identity.start_time = own->start_time;
    close(descriptor);
  }
  return identity;
}

std::optional<ProcessStat> parse_process_stat(std::string_view line) {
  // Numbers of fields after the state, which is field 3 of the line.
  constexpr int kThreads = 17, kStartTime = 19;
  const auto name_end = line.rfind(") ");
  if (name_end == std::string_view::npos) return std::nullopt;
  line.remove_prefix(name_end + 2);
  if (line.empty()) return std::nullopt;
  ProcessStat stat{line.front(), 0};
  for (int field = 1; field <= kStartTime; ++field) {
    const auto blank = line.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    line.remove_prefix(blank + 1);
    if (field == kThreads) (void)std::from_chars(line.data(), line.data() + line.size(), stat.threads);
  }
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), stat.start_time);
  // A number at the end of the text may be truncated.
  if (error != std::errc{} || end == line.data() + line.size()) return std::nullopt;
  return stat;
}

Liveness::Liveness(std::string_view way)
    : tries_pidfd_(way == "auto" || way == "pidfd"), tries_proc_(way == "auto" || way == "proc") {}

Liveness::~Liveness() {
  for (const auto* watched : {&by_pidfd_, &by_proc_}) {
    for (const auto& [process, entry] : *watched) close(entry.descriptor);
  }
}

std::string Liveness::watch(int process, const ProcessIdentity& identity) {
  if (!tries_pidfd_ && !tries_proc_) return {};
  static const std::uint64_t own_namespace = own_identity().pid_namespace;
  const bool is_other = identity.pid_namespace == ProcessIdentity::kOtherNamespace;
  const bool are_known = identity.pid_namespace != 0 && own_namespace != 0;
  if (is_other || (are_known && identity.pid_namespace != own_namespace)) {
    return "it lives in another PID namespace, where the same number means another process: start the ranks of a host "
           "in one (docker run --pid=host, shareProcessNamespace in Kubernetes)";
  }
  std::string by_pidfd, by_proc;
  if (tries_pidfd_) by_pidfd = watch_by_pidfd(process, identity);
  if (tries_pidfd_ && by_pidfd.empty()) return {};
  if (tries_proc_) by_proc = watch_by_proc(process, identity);
  if (tries_proc_ && by_proc.empty()) return {};
  return by_pidfd + (by_pidfd.empty() || by_proc.empty() ? "" : ", and ") + by_proc;
}

std::string Liveness::watch_by_pidfd(int process, const ProcessIdentity& identity) {
  const auto descriptor = above_standard_descriptors(static_cast<int>(syscall(SYS_pidfd_open, identity.pid, 0)));
  if (descriptor < 0) {
    if (errno == ESRCH) return dead_.insert(process), std::string();
    if (is_short_of_files(errno)) return std::string(kTooManyFiles);
    return fmt::format("pidfd_open is refused ({}): allow it in the sandbox's system calls",
                       std::generic_category().message(errno));
  }
  by_pidfd_.emplace(process, Watched{descriptor, 0});
  // The kernel may have reused the number before pidfd_open.
  if (const int stat_descriptor = open_stat(identity.pid); stat_descriptor >= 0) {
    int error = 0;
    const auto stat = read_stat(stat_descriptor, error);
    close(stat_descriptor);
    if (stat && is_reused(*stat, identity)) mark_dead(process);
  }
  return {};
}

std::string Liveness::watch_by_proc(int process, const ProcessIdentity& identity) {
  const int descriptor = open_stat(identity.pid);
  if (descriptor < 0) {
    const int error = errno;
    if (is_short_of_files(error)) return std::string(kTooManyFiles);
    // /proc may be hidden although the process exists; kill(pid, 0) tells.
    if (kill(identity.pid, 0) != 0 && errno == ESRCH) return dead_.insert(process), std::string();
    return fmt::format("/proc/{}/stat cannot be read ({}): mount /proc without hidepid", identity.pid,
                       std::generic_category().message(error));
  }
  int error = 0;
  const auto stat = read_stat(descriptor, error);
  if (!stat && error != ESRCH) {
    close(descriptor);
    return fmt::format("/proc/{}/stat cannot be understood: mount the kernel's own /proc", identity.pid);
  }
  by_proc_.emplace(process, Watched{descriptor, stat ? stat->start_time : 1});
  if (!stat || is_reused(*stat, identity)) mark_dead(process);
  return {};
}

const std::set<int>& Liveness::dead(Clock::time_point now) {
  if (!by_pidfd_.empty()) check_pidfds();
  if (!by_proc_.empty() && now >= next_proc_) check_proc(now);
  return dead_;
}

void Liveness::check_pidfds() {
  std::vector<pollfd> entries;
  for (const auto& [process, entry] : by_pidfd_) entries.push_back({entry.descriptor, POLLIN, 0});
  if (poll(entries.data(), entries.size(), 0) <= 0) return;
  auto entry = entries.begin();
  for (auto watched = by_pidfd_.begin(); watched != by_pidfd_.end(); ++entry) {
    const int process = (watched++)->first;
    if (entry->revents != 0) mark_dead(process);
  }
}

void Liveness::check_proc(Clock::time_point now) {
  next_proc_ = now + kProcInterval;
  for (auto watched = by_proc_.begin(); watched != by_proc_.end();) {
    const auto [process, entry] = *watched++;
    int error = 0;
    const auto stat = read_stat(entry.descriptor, error);
    const bool is_gone = stat ? stat->is_dead() || stat->start_time != entry.start_time : error == ESRCH;
    if (is_gone) mark_dead(process);
  }
}

void Liveness::mark_dead(int process) {
  for (auto* watched : {&by_pidfd_, &by_proc_}) {
    if (const auto found = watched->find(process); found != watched->end()) {
      close(found->second.descriptor);
      watched->erase(found);
    }
  }
  dead_.insert(process);
}

std::string_view Liveness::used() const {
  if (!by_pidfd_.empty()) return "pidfd";
  return by_proc_.empty() ? "nothing" : "proc";
}

}  // namespace farandole
