// SPDX-License-Identifier: Apache-2.0
// A fake libnccl, of the version that FAKE_NCCL_VERSION sets.
#include <cstdlib>

#include "cuda/nccl_api.h"

namespace farandole::cuda {
// NOLINTBEGIN(readability-identifier-naming): NCCL's names
extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const char* const text = std::getenv("FAKE_NCCL_VERSION");
  *version = text != nullptr ? std::atoi(text) : 22809;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t) {
  return "words of a fake";
}

const char* ncclGetLastError(ncclComm_t) {
  return "";
}
}
// NOLINTEND(readability-identifier-naming)

}  // namespace farandole::cuda
