// SPDX-License-Identifier: Apache-2.0
// Takes the place of libcuda.so.1 for a cuDNN that makes plans for a described device: it accepts compiled kernels, and
// runs nothing. It has the functions that cuDNN 9.19 looks for.

namespace {

constexpr int kSuccess = 0, kNoDevice = 100;
int some_object = 0;

}  // namespace

// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses): CUDA's names
#define FARANDOLE_FAILS(name) \
  int name() {                \
    return kNoDevice;         \
  }
extern "C" {
int cuLibraryLoadData(void** library) {
  *library = &some_object;
  return kSuccess;
}
int cuLibraryGetKernel(void** kernel) {
  *kernel = &some_object;
  return kSuccess;
}
int cuLibraryUnload() {
  return kSuccess;
}
int cuKernelSetAttribute() {
  return kSuccess;
}
int cuGetErrorName(int /*error*/, const char** text) {
  *text = "no device";
  return kSuccess;
}
int cuGetErrorString(int /*error*/, const char** text) {
  *text = "no device";
  return kSuccess;
}
FARANDOLE_FAILS(cuCtxGetCurrent)
FARANDOLE_FAILS(cuCtxGetLimit)
FARANDOLE_FAILS(cuCtxPopCurrent)
FARANDOLE_FAILS(cuCtxPushCurrent)
FARANDOLE_FAILS(cuDeviceGet)
FARANDOLE_FAILS(cuDeviceGetCount)
FARANDOLE_FAILS(cuDriverGetVersion)
FARANDOLE_FAILS(cuKernelGetAttribute)
FARANDOLE_FAILS(cuLaunchCooperativeKernel)
FARANDOLE_FAILS(cuLaunchKernel)
FARANDOLE_FAILS(cuLaunchKernelEx)
FARANDOLE_FAILS(cuLibraryLoadFromFile)
FARANDOLE_FAILS(cuLinkAddData)
FARANDOLE_FAILS(cuLinkComplete)
FARANDOLE_FAILS(cuLinkCreate)
FARANDOLE_FAILS(cuLinkDestroy)
FARANDOLE_FAILS(cuOccupancyMaxPotentialClusterSize)
FARANDOLE_FAILS(cuStreamGetCtx)
}
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)
