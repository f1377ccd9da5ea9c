// SPDX-License-Identifier: Apache-2.0
// DeviceRuntime, implemented with CUDA: the devices of this process.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/cuda_device.h"
#include "cuda/kernel_image.h"
#include "cuda/nccl_support.h"
#include "cuda/vendor_libraries.h"
#include "farandole/sdk/device.h"

namespace farandole::cuda {

/// The CUDA devices of this process. Devices are enumerated by `find`, and opened on first use.
class CudaDevices final : public DeviceRuntime {
 public:
  /// Initialises a loaded driver and enumerates the devices.
  /// @param reason  set if null is returned: why there are no devices, for example because the driver is too old
  /// @return the devices, or null   @throws DeviceError  a query of a device fails
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
  struct LazyDevice {
    std::mutex mutex;                    // held while the device is opened
    std::unique_ptr<CudaDevice> device;  // null until opened; guarded by `mutex`
  };

  CudaDevices(CudaLibrary cuda, const KernelImage& image, std::string nccl_path);
  /// Enumerates the devices. Returns the reason if there are none, else an empty text.
  std::string enumerate();
  DeviceInfo query_device(int ordinal);
  void check(CUresult result, std::string_view function, int ordinal) const;

  const CudaLibrary cuda_;
  const KernelImage image_;
  mutable Nccl nccl_;
  std::vector<DeviceInfo> infos_;                          // by ordinal; const after `enumerate`
  std::vector<std::unique_ptr<LazyDevice>> lazy_devices_;  // by ordinal; const after `enumerate`
};

}  // namespace farandole::cuda
