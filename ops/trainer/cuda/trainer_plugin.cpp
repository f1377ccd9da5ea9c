// SPDX-License-Identifier: Apache-2.0
// Entry point of the plug-in with the trainer's kernels for CUDA devices.
#include <array>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "cuda/kernel_image.h"
#include "cuda/vendor_libraries.h"
#include "cuda_kernels.h"
#include "farandole/core/error.h"
#include "farandole/sdk/plugin_build.h"
#include "kernels/device_plugin.h"
#include "kernels_fatbin.h"

namespace farandole::trainer::cuda {
namespace {

using farandole::cuda::KernelImage;

class CudaKernelsMaker final : public DeviceKernelsMaker {
 public:
  CudaKernelsMaker(const farandole::cuda::CudaApi& api, KernelImage image, const CublasApi& cublas, CudnnLibrary cudnn)
      : api_(api), image_(std::move(image)), cublas_(cublas), cudnn_(std::move(cudnn)) {}
  std::unique_ptr<DeviceKernels> make(Device& device, StreamView stream, Workspace& workspace,
                                      const DeviceComputation& computation) const override {
    return cuda_kernels(kernels_of(device), cublas_, cudnn_, device, stream, workspace, computation);
  }

 private:
  const LoadedKernels& kernels_of(Device& device) const {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<LoadedKernels>& loaded = loaded_[device.info().ordinal];
    if (!loaded) loaded = std::make_unique<LoadedKernels>(api_, image_, device.info());
    return *loaded;
  }

  const farandole::cuda::CudaApi api_;
  const KernelImage image_;
  const CublasApi cublas_;
  const CudnnLibrary cudnn_;
  mutable std::mutex mutex_;  // guards loaded_, and is held while kernels are loaded
  mutable std::map<int, std::unique_ptr<LoadedKernels>> loaded_;  // by the device's number
};

const DeviceKernelsMaker* make_maker(const DeviceKernelsHostApi& host, std::string& reason) {
  const std::array images{
      farandole::cuda::kernel_image(farandole_trainer_fatbin, farandole_trainer_fatbin_size,
                                    farandole_trainer_fatbin_toolkit),
      farandole::cuda::kernel_image(farandole_trainer_fatbin_cuda12, farandole_trainer_fatbin_cuda12_size,
                                    farandole_trainer_fatbin_cuda12_toolkit)};
  const farandole::cuda::CudaLibrary cuda = farandole::cuda::load_cuda(host.cuda_library);
  reason = !cuda.problem.empty() ? cuda.problem : cuda.missing;
  if (!reason.empty()) return nullptr;
  const KernelImage* const image = farandole::cuda::image_for(images, cuda.version);
  if (image == nullptr) {
    reason = farandole::cuda::why_no_image(images, cuda.version);
    return nullptr;
  }
  // Never destroyed: when the process ends, CUDA may be unloaded before.
  return new CudaKernelsMaker(cuda.api, *image, load_cublas(host.cublas_library, cuda.version),
                              load_cudnn(host.cudnn_library, cuda.version));
}

}  // namespace
}  // namespace farandole::trainer::cuda

#define FARANDOLE_EXPORT extern "C" __attribute__((visibility("default")))

/// Read by the loader before any call of the plug-in.
FARANDOLE_EXPORT const char farandole_trainer_kernels_build_id[];
const char farandole_trainer_kernels_build_id[] = FARANDOLE_PLUGIN_BUILD_ID;

FARANDOLE_EXPORT const farandole::trainer::DeviceKernelsMaker* farandole_trainer_kernels_v1(
    const farandole::trainer::DeviceKernelsHostApi* host, std::string* reason);
const farandole::trainer::DeviceKernelsMaker* farandole_trainer_kernels_v1(
    const farandole::trainer::DeviceKernelsHostApi* host, std::string* reason) {
  if (host->size_bytes != sizeof(farandole::trainer::DeviceKernelsHostApi)) return nullptr;
  try {
    return farandole::trainer::cuda::make_maker(*host, *reason);
  } catch (const std::exception& error) {
    *reason = farandole::message_of(error);
    return nullptr;
  }
}
