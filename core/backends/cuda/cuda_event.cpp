// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_event.h"

#include "cuda/cuda_error.h"
#include "cuda/scopes.h"

namespace farandole::cuda {

void DeviceContext::check(CUresult result, std::string_view function) const {
  cuda::check(api, result, function, name);
}

CudaEvent::CudaEvent(const DeviceContext& device) : device_(device) {
  const ContextScope scope(device_.api, device_.context);
  device_.check(device_.api.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}

CudaEvent::~CudaEvent() {
  const ContextScope scope(device_.api, device_.context);
  device_.api.cuEventDestroy(event_);
}

bool CudaEvent::is_complete() {
  const ContextScope scope(device_.api, device_.context);
  const RelaxedCapture relaxed(device_.api);
  const CUresult result = device_.api.cuEventQuery(event_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  device_.check(result, "cuEventQuery");
  return true;
}

}  // namespace farandole::cuda
