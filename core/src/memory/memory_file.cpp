// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/memory_file.h"

#include <sys/mman.h>

#include <cerrno>

#include "farandole/internal/standard_descriptors.h"

namespace farandole {
namespace {

#ifdef MFD_NOEXEC_SEAL
constexpr unsigned kNeverExecutable = MFD_NOEXEC_SEAL;
#else
constexpr unsigned kNeverExecutable = 0x0008U;  // since Linux 6.3, as in linux/memfd.h
#endif

}  // namespace

int create_memory_file(const char* name) {
  // If vm.memfd_noexec is 2, the kernel permits only the first call; kernels before 6.3 know only the second.
  int descriptor = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | kNeverExecutable);
  if (descriptor < 0 && errno == EINVAL) descriptor = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  return above_standard_descriptors(descriptor);
}

}  // namespace farandole
