// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's driver API that only programs call, not the plug-in. Names and numbers are copied from cuda.h.
#pragma once

#include <cstddef>

#include "cuda/cuda_api.h"

namespace farandole::fake {

// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses): CUDA's names
using cuda::CUgraph;
using cuda::CUgraphExec;
using CUgraphNode = struct CUgraphNode_st*;

inline constexpr cuda::CUresult CUDA_ERROR_ILLEGAL_STATE = 401;
inline constexpr cuda::CUresult CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901;
inline constexpr cuda::CUresult CUDA_ERROR_STREAM_CAPTURE_MERGE = 902;
inline constexpr cuda::CUresult CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903;
inline constexpr cuda::CUresult CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904;
inline constexpr cuda::CUresult CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905;
inline constexpr cuda::CUresult CUDA_ERROR_CAPTURED_EVENT = 907;
inline constexpr cuda::CUresult CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908;

inline constexpr int CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2;
inline constexpr int CU_STREAM_CAPTURE_MODE_GLOBAL = 0;

// X(name, exported name, parameters)
#define FARANDOLE_PROGRAM_CUDA_FUNCTIONS(X)                            \
  X(cuStreamSynchronize, cuStreamSynchronize, (cuda::CUstream stream)) \
  X(cuGraphGetNodes, cuGraphGetNodes, (CUgraph graph, CUgraphNode * nodes, std::size_t * count))
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace farandole::fake
