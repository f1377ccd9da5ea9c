// SPDX-License-Identifier: Apache-2.0
// Report of the limits of this machine, for farandole-info.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <system_error>

#include "farandole/internal/limits.h"
#include "farandole/internal/memory_file.h"

namespace farandole {
namespace {

/// Runs `attempt`, which returns 0 or an errno, in a child process. Returns "works", or the reason of the failure.
std::string try_out(int (*attempt)()) {
  const pid_t child = fork();
  if (child < 0) return fmt::format("not tried: {}", std::generic_category().message(errno));
  if (child == 0) _exit(attempt());
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return fmt::format("a process that asks is killed (signal {})", WTERMSIG(status));
  const int error = WEXITSTATUS(status);
  return error == 0 ? "works" : "refused: " + std::generic_category().message(error);
}

int try_memory_file() {
  return create_memory_file("farandole-trial") >= 0 ? 0 : errno;
}

int try_process_descriptor() {
  return syscall(SYS_pidfd_open, getpid(), 0) >= 0 ? 0 : errno;
}

int try_reading() {
  int word = 0;
  int copy = 0;
  const iovec local{&copy, sizeof copy};
  const iovec remote{&word, sizeof word};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == sizeof word ? 0 : errno;
}

std::string amount(std::uint64_t bytes) {
  if (bytes == kUnlimited) return "unlimited";
  const bool is_large = bytes >= std::uint64_t{10} << 30;
  return is_large ? fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30))
                  : fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string count_limit(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return "unknown";
  const auto text = [](rlim_t value) { return value == RLIM_INFINITY ? "unlimited" : fmt::format("{}", value); };
  return limit.rlim_cur == limit.rlim_max
             ? text(limit.rlim_cur)
             : fmt::format("{}, can be raised to {}", text(limit.rlim_cur), text(limit.rlim_max));
}

}  // namespace

std::vector<LimitReport> report_limits(const Settings& settings) {
  const ProcessLimits limits = process_limits();
  const ArenaPlan plan = plan_arena(limits, 2, static_cast<std::uint64_t>(settings.shared_memory.window_bytes));
  const bool is_too_small = plan.arena_bytes < kSmallestArena;
  const std::string arenas = is_too_small ? "ranks of a host exchange messages, which is slower"
                                          : fmt::format("with 2 ranks on this host windows of one rank take at most {}",
                                                        amount(plan.arena_bytes));
  const auto effect_of = [&](std::uint64_t limit) {
    return limit == kUnlimited || plan.arena_owner.empty() ? std::string() : arenas;
  };
  const auto lost = [](const std::string& outcome, const char* effect) {
    return outcome == "works" ? std::string() : std::string(effect);
  };
  const std::string files = try_out(try_memory_file);
  const std::string descriptors = try_out(try_process_descriptor);
  const std::string reading = try_out(try_reading);
  return {
      {plan.windows_owner, amount(plan.windows_bytes), "windows of all ranks of this host together take no more"},
      {"address space left (ulimit -v)", amount(limits.address_space_bytes), effect_of(limits.address_space_bytes)},
      {"file size (ulimit -f)", amount(limits.file_bytes), effect_of(limits.file_bytes)},
      {"locked memory in bytes (ulimit -l)", count_limit(RLIMIT_MEMLOCK), ""},
      {"open files (ulimit -n)", count_limit(RLIMIT_NOFILE), ""},
      {"processes and threads (ulimit -u)", count_limit(RLIMIT_NPROC), ""},
      {"strict commit (vm.overcommit_memory=2)", limits.commits_strictly ? "yes" : "no",
       limits.commits_strictly ? "windows take their memory when they are allocated" : ""},
      {"memory files (memfd_create)", files, lost(files, "ranks of a host exchange messages, which is slower")},
      {"process descriptors (pidfd_open)", descriptors, lost(descriptors, "deaths are looked for in /proc")},
      {"reading other processes (process_vm_readv)", reading,
       lost(reading, "moving large vectors between processes takes one more copy")},
  };
}

}  // namespace farandole
