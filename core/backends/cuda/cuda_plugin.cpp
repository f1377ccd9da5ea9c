// SPDX-License-Identifier: Apache-2.0
// Entry point of the CUDA plug-in.
#include <array>
#include <exception>
#include <string>

#include "cuda/cuda_devices.h"
#include "cuda/kernel_image.h"
#include "cuda/kernels_fatbin.h"
#include "cuda/vendor_libraries.h"
#include "farandole/core/error.h"
#include "farandole/sdk/device.h"
#include "farandole/sdk/plugin_build.h"

namespace farandole::cuda {

namespace {

DeviceRuntime* find_devices(const DeviceHostApi& host, std::string& reason) {
  const std::array images{
      kernel_image(farandole_kernels_fatbin, farandole_kernels_fatbin_size, farandole_kernels_fatbin_toolkit),
      kernel_image(farandole_kernels_fatbin_cuda12, farandole_kernels_fatbin_cuda12_size,
                   farandole_kernels_fatbin_cuda12_toolkit)};
  // Never destroyed: when the process ends, CUDA may be unloaded before.
  return CudaDevices::find(load_cuda(host.cuda_library), images, host.nccl_library, reason).release();
}

}  // namespace

}  // namespace farandole::cuda

#define FARANDOLE_EXPORT extern "C" __attribute__((visibility("default")))

/// Read by the loader before any call of the plug-in.
FARANDOLE_EXPORT const char farandole_device_build_id[];
const char farandole_device_build_id[] = FARANDOLE_PLUGIN_BUILD_ID;

FARANDOLE_EXPORT farandole::DeviceRuntime* farandole_device_v1(const farandole::DeviceHostApi* host,
                                                               std::string* reason);
farandole::DeviceRuntime* farandole_device_v1(const farandole::DeviceHostApi* host, std::string* reason) {
  if (host->size_bytes != sizeof(farandole::DeviceHostApi)) return nullptr;
  try {
    return farandole::cuda::find_devices(*host, *reason);
  } catch (const std::exception& error) {
    *reason = farandole::message_of(error);
    return nullptr;
  }
}
