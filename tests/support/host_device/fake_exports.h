// SPDX-License-Identifier: Apache-2.0
// Declares the functions that the two libraries export: those of cuda_api.h, fake_program_api.h and nccl_api.h. So a
// definition with other parameters does not compile.
#pragma once

#include "cuda/cuda_api.h"
#include "cuda/nccl_api.h"
#include "fake_program_api.h"

namespace farandole::fake {

// NOLINTBEGIN(google-build-using-namespace): the names of CUDA and NCCL, as their own headers have them
using namespace cuda;
// NOLINTEND(google-build-using-namespace)

// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses): CUDA's and NCCL's names

#define FARANDOLE_DECLARE_CUDA(name, exported, parameters) CUresult exported parameters;
#define FARANDOLE_DECLARE_NCCL(name, parameters) ncclResult_t name parameters;
extern "C" {
FARANDOLE_CUDA_FUNCTIONS(FARANDOLE_DECLARE_CUDA)
FARANDOLE_PROGRAM_CUDA_FUNCTIONS(FARANDOLE_DECLARE_CUDA)
FARANDOLE_NCCL_FUNCTIONS(FARANDOLE_DECLARE_NCCL)
const char* ncclGetErrorString(ncclResult_t error);
const char* ncclGetLastError(ncclComm_t comm);
}
#undef FARANDOLE_DECLARE_CUDA
#undef FARANDOLE_DECLARE_NCCL
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

}  // namespace farandole::fake
