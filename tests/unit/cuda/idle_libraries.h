// SPDX-License-Identifier: Apache-2.0
// Defines all functions of a table. The functions that no source defines are no-ops.
#pragma once

#include "cuda/cuda_api.h"
#include "cuda/nccl_api.h"

// The tables' parameters have names, which nothing here reads.
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define FARANDOLE_IDLE_CUDA(name, exported, parameters)                       \
  __attribute__((weak, visibility("default"))) CUresult exported parameters { \
    return CUDA_SUCCESS;                                                      \
  }
#define FARANDOLE_IDLE_NCCL(name, parameters)                                 \
  __attribute__((weak, visibility("default"))) ncclResult_t name parameters { \
    return ncclSuccess;                                                       \
  }
