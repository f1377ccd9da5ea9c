// SPDX-License-Identifier: Apache-2.0
// Kernels for the tests of the double, found in the program. libfake_cuda.so holds those of the plug-in where they are
// built.
#include <cstring>

#include "cuda/kernel_arguments.h"

using farandole::cuda::KernelArguments;

namespace {

template <class T, class Function>
void run_elements(const KernelArguments& arguments, unsigned worker, unsigned workers, const Function& function) {
  for (unsigned task = 0; task < arguments.task_count; ++task) {
    const auto& [output, left, right, count, factor] = arguments.tasks[task];
    for (std::uint64_t i = worker; i < count; i += workers) {
      const T* const second = static_cast<const T*>(right);
      static_cast<T*>(output)[i] =
          function(static_cast<const T*>(left)[i], second == nullptr ? T{} : second[i], factor);
    }
  }
}

}  // namespace

extern "C" {

void farandole_copy(const KernelArguments& arguments, unsigned worker, unsigned workers) {
  run_elements<unsigned char>(arguments, worker, workers, [](auto left, auto /*right*/, double) { return left; });
}

void farandole_reduce_f32_sum(const KernelArguments& arguments, unsigned worker, unsigned workers) {
  run_elements<float>(arguments, worker, workers, [](float left, float right, double) { return left + right; });
}

void farandole_scale_f32(const KernelArguments& arguments, unsigned worker, unsigned workers) {
  run_elements<float>(arguments, worker, workers,
                      [](float left, float /*right*/, double factor) { return static_cast<float>(left * factor); });
}

}  // extern "C"
