// SPDX-License-Identifier: Apache-2.0
// What a thread sets for some calls of CUDA's, and sets back: the thread may be the program's.
#pragma once

#include "cuda/cuda_api.h"

namespace farandole::cuda {

/// Makes a context that of the thread. An error of that comes back from the calls that need it.
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

/// For calls that are refused while another thread captures a graph, and break its capture.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const CudaApi& api) : api_(api) { api.cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() { api_.cuThreadExchangeStreamCaptureMode(&mode_); }

 private:
  const CudaApi& api_;
  int mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // what the thread has; while this lives, what it had before
};

}  // namespace farandole::cuda
