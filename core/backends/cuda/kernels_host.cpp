// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels_host.h"

namespace farandole::cuda {

#define FARANDOLE_KERNEL(name, ...)                                                            \
  void farandole_##name(const KernelArguments& arguments, unsigned worker, unsigned workers) { \
    run_tasks<__VA_ARGS__>(arguments, 0, 1, worker, workers);                                  \
  }
FARANDOLE_KERNELS(FARANDOLE_KERNEL)

}  // namespace farandole::cuda
