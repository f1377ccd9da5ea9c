// SPDX-License-Identifier: Apache-2.0
// A fake libcuda whose results FAKE_CUDA_VERSION, FAKE_CUDA_INIT, FAKE_CUDA_DEVICES and FAKE_CUDA_NAME set.
#include <cstdlib>
#include <cstring>

#include "cuda/cuda_api.h"

namespace farandole::cuda {

static int number(const char* variable, int fallback) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : fallback;
}

// NOLINTBEGIN(readability-identifier-naming): CUDA's names
extern "C" {

CUresult cuInit(unsigned) {
  return number("FAKE_CUDA_INIT", CUDA_SUCCESS);
}

CUresult cuDriverGetVersion(int* version) {
  *version = number("FAKE_CUDA_VERSION", 13000);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult, const char** text) {
  *text = "CUDA_ERROR_OF_A_FAKE";
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "words of a fake";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = number("FAKE_CUDA_DEVICES", 1);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int, CUdevice) {
  std::strcpy(name, "Fake GPU");
  return number("FAKE_CUDA_NAME", CUDA_SUCCESS);
}
}
// NOLINTEND(readability-identifier-naming)

}  // namespace farandole::cuda
