// SPDX-License-Identifier: Apache-2.0
// Interface of the plug-in with the trainer's kernels for devices, libfarandole_trainer_cuda.so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/kernels.h"

namespace farandole::trainer {

/// Makes the kernels of devices. Lives until the process ends. Thread-safe.
class DeviceKernelsMaker {
 public:
  virtual ~DeviceKernelsMaker() = default;
  /// Loads the kernels on a device. May block in the driver. @param device, workspace  outlive the use of the kernels
  /// @throws DeviceError
  virtual std::unique_ptr<DeviceKernels> make(Device& device, StreamView stream, Workspace& workspace,
                                              const DeviceComputation& computation) const = 0;
};

/// Passed to the plug-in by the trainer. Paths of libraries: empty for the usual search.
struct DeviceKernelsHostApi {
  std::uint32_t size_bytes = sizeof(DeviceKernelsHostApi);
  const char* cuda_library = "";
  const char* cublas_library = "";
  const char* cudnn_library = "";  ///< "off": none
};
/// Type of `farandole_trainer_kernels_v1`, the only function that the plug-in exports, beside the text
/// `farandole_trainer_kernels_build_id`. Never throws. Returns null and sets `reason` if the vendor's libraries cannot
/// be used.
using DeviceKernelsEntry = const DeviceKernelsMaker* (*)(const DeviceKernelsHostApi*, std::string* reason);

}  // namespace farandole::trainer
