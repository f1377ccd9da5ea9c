// usage: without_pidfd refused|missing|killed PROGRAM [ARGUMENT...]
// Runs the program under a seccomp filter: pidfd_open fails as where a sandbox refuses it, fails as on a kernel without
// it, or kills the program.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string way = argv[1];
  std::uint32_t action = SECCOMP_RET_KILL_PROCESS;
  if (way == "refused") action = SECCOMP_RET_ERRNO | EPERM;
  if (way == "missing") action = SECCOMP_RET_ERRNO | ENOSYS;
  std::array<sock_filter, 4> filter{
      sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_pidfd_open},
      sock_filter{BPF_RET | BPF_K, 0, 0, action},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog program{filter.size(), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::perror("skipped: seccomp");
    return 77;
  }
  execv(argv[2], argv + 2);
  std::perror(argv[2]);
  return 127;
}
