// SPDX-License-Identifier: Apache-2.0
#include "cuda/nccl_support.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string_view>

namespace farandole::cuda {

namespace {

// By DType. NCCL has no 16-bit integers. Bools are 0 or 1, as a byte.
constexpr std::array<std::optional<ncclDataType_t>, kDTypeCount> kTypes{
    ncclUint8,   ncclUint8,    ncclInt8,    std::nullopt, std::nullopt, ncclInt32, ncclInt64,
    ncclFloat16, ncclBfloat16, ncclFloat32, ncclFloat64,  ncclUint32,   ncclUint64};
// By index_of(ReduceOp). NCCL has no bitwise operations. For bool, sum and max are "or", product and min are "and".
using Ops = std::array<std::optional<ncclRedOp_t>, kAllReduceOps.size()>;
constexpr Ops kOps{ncclSum, ncclProd, ncclMin, ncclMax, ncclSum, std::nullopt, std::nullopt, std::nullopt};
constexpr Ops kOpsOfBool{ncclMax, ncclMin, ncclMin, ncclMax, ncclMax, ncclMin, ncclMax, std::nullopt};

#if defined(__aarch64__)
constexpr bool kIsArm = true;
#else
constexpr bool kIsArm = false;
#endif

struct KnownProblem {
  int first;     ///< first affected version
  int last;      ///< last affected version
  bool is_here;  ///< true if this machine's kind of processor is affected
  std::string_view what;
  std::string_view advice;
};

// Not listed: below 2.31.2, windows (ncclCommWindowRegister) give wrong data or hang (NVIDIA/nccl 2198, 2241). The
// plug-in does not register windows.
constexpr KnownProblem kKnownProblems[] = {
    {21900, 22902, kIsArm, "its proxy thread can deadlock on processors of Arm (NVIDIA/nccl 2353)", "2.29.3 or newer"},
    {23004, 23101, true,
     "communicators have been seen to hang when they come up, and pipelines of messages in the middle (NVIDIA/nccl "
     "2167, NVIDIA/jaxpp 11)",
     "2.31.2 or newer, or 2.29.7"},
};

}  // namespace

std::optional<NcclReduction> nccl_reduction(DType dtype, ReduceOp op) {
  const std::optional<ncclDataType_t> type = kTypes[static_cast<std::size_t>(dtype)];
  const std::optional<ncclRedOp_t> nccl_op = (dtype == DType::kBool ? kOpsOfBool : kOps)[index_of(op)];
  if (!type || !nccl_op) return std::nullopt;
  return NcclReduction{*type, *nccl_op};
}

std::string nccl_version_text(int version) {
  if (version < 10000) return fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

bool nccl_shares_devices(int version) {
  constexpr int kFirst = 23003;
  const char* const enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return version >= kFirst && enabled != nullptr && std::string_view(enabled) == "1";
}

std::string nccl_warning(int version) {
  for (const KnownProblem& problem : kKnownProblems) {
    if (!problem.is_here || version < problem.first || version > problem.last) continue;
    return fmt::format("NCCL {}: {}; use {}", nccl_version_text(version), problem.what, problem.advice);
  }
  return {};
}

}  // namespace farandole::cuda
