// SPDX-License-Identifier: Apache-2.0
// The devices of this process, by CUDA.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/cuda_device.h"
#include "cuda/kernel_image.h"
#include "cuda/nccl_versions.h"
#include "cuda/vendor_libraries.h"
#include "farandole/sdk/device.h"

namespace farandole::cuda {

class CudaDevices final : public DeviceRuntime {
 public:
  /// The devices of a driver that is loaded. Initialises it.
  /// @param reason  why there are none: the driver, or this build, lacks something
  /// @return null, with a reason, or the devices
  static std::unique_ptr<CudaDevices> find(CudaLibrary cuda, std::span<const KernelImage> images, std::string nccl_path,
                                           std::string& reason);

  std::string_view name() const override { return "CUDA"; }
  std::string version() const override;
  std::string collectives_version() const override;
  std::string collectives_missing() const override { return nccl_.library().problem; }
  bool shares_devices() const override { return nccl_shares_devices(nccl_.library().version); }
  std::vector<std::string> warnings() const override;
  std::vector<DeviceInfo> devices() const override { return infos_; }
  Device& open(int ordinal) override;
  MemorySpace space_of(const void* memory) const override;

 private:
  struct Slot {
    std::mutex mutex;                    // held while the device is opened
    std::unique_ptr<CudaDevice> device;  // guarded by it
  };

  CudaDevices(CudaLibrary cuda, const KernelImage& image, std::string nccl_path);
  /// Why there are no devices; empty if there are.
  std::string look();
  DeviceInfo look_at(int ordinal);
  void check(CUresult result, std::string_view function, int ordinal) const;

  const CudaLibrary cuda_;
  const KernelImage image_;
  mutable Nccl nccl_;
  std::vector<DeviceInfo> infos_;             // const after `look`
  std::vector<std::unique_ptr<Slot>> slots_;  // the same
};

}  // namespace farandole::cuda
