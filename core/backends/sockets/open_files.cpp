// SPDX-License-Identifier: Apache-2.0
#include "sockets/open_files.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "farandole/core/error.h"

namespace farandole::sockets {
namespace {

// Allowance for the other files of the program and for the pidfds of other processes.
constexpr rlim_t kOtherDescriptors = 64;

rlim_t needed_for(int connections) {
  return static_cast<rlim_t>(connections) + kOtherDescriptors;
}

}  // namespace

void provide_descriptors(int connections, std::string_view job) {
  const rlim_t needed = needed_for(connections);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max < needed) {
    throw InvalidArgument(
        fmt::format("{} needs {} open files in this process for its connections with the other processes; this one "
                    "may have {} (ulimit -n -H); raise that limit, or start the job with mpirun",
                    job, needed, limit.rlim_max));
  }
  ask_for_descriptors(connections);
}

void ask_for_descriptors(int connections) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed_for(connections)) return;
  limit.rlim_cur = std::min(needed_for(connections), limit.rlim_max);
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace farandole::sockets
