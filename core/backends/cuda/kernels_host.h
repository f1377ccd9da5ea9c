// SPDX-License-Identifier: Apache-2.0
// The kernels as functions for processors, under the names that they have on a GPU. Only tests use them.
#pragma once

#include "cuda/kernel_arguments.h"
#include "cuda/kernel_list.h"

namespace farandole::cuda {

/// Does the share of worker `worker` of `workers` of every task. Does not block, does not throw. Thread-safe for
/// different workers, in any order.
using HostKernel = void (*)(const KernelArguments& arguments, unsigned worker, unsigned workers);

#define FARANDOLE_KERNEL(name, ...) \
  extern "C" void farandole_##name(const KernelArguments& arguments, unsigned worker, unsigned workers);
FARANDOLE_KERNELS(FARANDOLE_KERNEL)
#undef FARANDOLE_KERNEL

}  // namespace farandole::cuda
