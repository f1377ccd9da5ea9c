// SPDX-License-Identifier: Apache-2.0
#include "cuda/nccl_versions.h"

#include <fmt/format.h>

#include <string_view>

namespace farandole::cuda {

namespace {

#if defined(__aarch64__)
constexpr bool kIsArm = true;
#else
constexpr bool kIsArm = false;
#endif

struct KnownProblem {
  int first;  ///< version
  int last;
  bool is_here;  ///< on this kind of processor
  std::string_view what;
  std::string_view advice;
};

// Not here: windows (ncclCommWindowRegister) give wrong data or hang below 2.31.2 (NVIDIA/nccl 2198, 2241). The plug-in
// registers none.
constexpr KnownProblem kKnownProblems[] = {
    {21900, 22902, kIsArm, "its proxy thread can deadlock on processors of Arm (NVIDIA/nccl 2353)", "2.29.3 or newer"},
    {23004, 23101, true,
     "communicators have been seen to hang when they come up, and pipelines of messages in the middle (NVIDIA/nccl "
     "2167, "
     "NVIDIA/jaxpp 11)",
     "2.31.2 or newer, or 2.29.7"},
};

}  // namespace

std::string nccl_version_text(int version) {
  if (version < 10000) return fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string nccl_warning(int version) {
  for (const KnownProblem& problem : kKnownProblems) {
    if (!problem.is_here || version < problem.first || version > problem.last) continue;
    return fmt::format("NCCL {}: {}; use {}", nccl_version_text(version), problem.what, problem.advice);
  }
  return {};
}

}  // namespace farandole::cuda
