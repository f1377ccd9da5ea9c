// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cuda/cuda_api.h"
#include "farandole/sdk/device.h"

namespace farandole::cuda {

/// What the objects of one device share. Const after construction.
struct DeviceContext {
  const CudaApi& api;
  CUcontext context = nullptr;  ///< the device's primary one, which other libraries of the process use, too
  std::string name;             ///< "CUDA device 0 (NVIDIA H100 80GB HBM3)"

  /// @throws DeviceError  `function` has failed
  void check(CUresult result, std::string_view function) const;
};

class CudaEvent final : public DeviceEvent {
 public:
  /// @param device  outlives the event
  explicit CudaEvent(const DeviceContext& device);
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override;
  bool is_complete() override;
  CUevent handle() const { return event_; }

 private:
  const DeviceContext& device_;
  CUevent event_ = nullptr;
};

}  // namespace farandole::cuda
