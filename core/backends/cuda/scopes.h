// SPDX-License-Identifier: Apache-2.0
// Scoped changes to a thread's CUDA state. They are undone at the end of the scope, because the thread may be the
// program's.
#pragma once

#include "cuda/cuda_api.h"

namespace farandole::cuda {

/// Makes a context current on the thread. Ignores errors: the calls in the scope then fail and report them.
class ContextScope {
 public:
  ContextScope(const CudaApi& api, CUcontext context) : api_(api) {
    is_changed_ = api.cuCtxGetCurrent(&before_) == CUDA_SUCCESS && before_ != context &&
                  api.cuCtxSetCurrent(context) == CUDA_SUCCESS;
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() {
    if (is_changed_) api_.cuCtxSetCurrent(before_);
  }

 private:
  const CudaApi& api_;
  CUcontext before_ = nullptr;
  bool is_changed_ = false;
};

/// Sets the thread's capture mode to relaxed. In other modes some calls (allocation, event queries) fail while another
/// thread captures a graph, and invalidate that capture.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const CudaApi& api) : api_(api) { api.cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() { api_.cuThreadExchangeStreamCaptureMode(&mode_); }

 private:
  const CudaApi& api_;
  int mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // exchanged with the thread's mode: holds the old mode meanwhile
};

}  // namespace farandole::cuda
