// SPDX-License-Identifier: Apache-2.0
// Runs a program in a sandbox that refuses some system calls (EPERM), behaves like a kernel without them (ENOSYS), or
// kills a process that makes them.
// usage: without_calls refused|missing|killed CALL[,CALL...] PROGRAM [ARGUMENT...]
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

const std::map<std::string, int> kCalls{
    {"memfd_create", SYS_memfd_create}, {"pidfd_open", SYS_pidfd_open}, {"process_vm_readv", SYS_process_vm_readv}};

sock_filter statement(int code, unsigned value) {
  return {static_cast<unsigned short>(code), 0, 0, value};
}

/// Returns 0, or the exit status if the sandbox cannot be made.
int enter_sandbox(unsigned action, const std::string& names) {
  std::vector<sock_filter> filter{statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    const auto call = kCalls.find(name);
    if (call == kCalls.end()) {
      std::fprintf(stderr, "without_calls: no call '%s'\n", name.c_str());
      return 2;
    }
    filter.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, static_cast<unsigned>(call->second)});
    filter.push_back(statement(BPF_RET | BPF_K, action));
  }
  filter.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
    return 0;
  std::fprintf(stderr, "without_calls: no sandbox: %s\n", std::strerror(errno));
  return 77;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::map<std::string, unsigned> actions{{"refused", SECCOMP_RET_ERRNO | static_cast<unsigned>(EPERM)},
                                                {"missing", SECCOMP_RET_ERRNO | static_cast<unsigned>(ENOSYS)},
                                                {"killed", SECCOMP_RET_KILL_PROCESS}};
  const auto action = actions.find(argv[1]);
  if (action == actions.end()) return 2;
  if (const int status = enter_sandbox(action->second, argv[2]); status != 0) return status;
  execvp(argv[3], argv + 3);
  std::perror(argv[3]);
  return 127;
}
