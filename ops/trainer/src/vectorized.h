// SPDX-License-Identifier: Apache-2.0
// Loops compiled for several instruction sets; the variant for this processor is chosen at run time.
#pragma once

#include "farandole/core/reduce.h"

/// Marks a lambda for `vectorized`: the compiler uses a variant's instruction set only for code that is inlined into
/// the variant.
#define FARANDOLE_INLINED __attribute__((always_inline))

namespace farandole::trainer {

#if defined(__x86_64__)
template <class Loop>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void run_avx512(const Loop& loop) {
  loop();
}
template <class Loop>
[[gnu::target("avx2")]] void run_avx2(const Loop& loop) {
  loop();
}

/// Calls `loop`, a lambda marked FARANDOLE_INLINED that captures by value. Floating-point results are equal on every
/// instruction set, because -ffp-contract=off forbids fused multiply-adds.
template <class Loop>
void vectorized(const Loop& loop) {
  switch (active_isa()) {
    case Isa::kAvx512:
      return run_avx512(loop);
    case Isa::kAvx2:
      return run_avx2(loop);
    case Isa::kBaseline:
      return loop();
  }
}
#else
template <class Loop>
void vectorized(const Loop& loop) {
  loop();
}
#endif

}  // namespace farandole::trainer
