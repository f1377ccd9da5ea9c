// SPDX-License-Identifier: Apache-2.0
// Finds the stream of an op on a GPU. Needs no CUDA headers, because a stream is only an address here.
#include "device_stream.h"

#include "tensorflow/c/kernels.h"
#include "tensorflow/core/framework/device_base.h"
#include "xla/stream_executor/stream.h"

namespace farandole_tensorflow {

namespace {

/// Returns the stream of a device that a plug-in has added to TensorFlow. Only the plug-in knows the type of the
/// handle, so this works only for devices whose handle is a cudaStream_t.
void* plugged_in_stream(tensorflow::OpKernelContext* context) {
  TF_Status* const status = TF_NewStatus();
  void* const stream = TF_GetStream(reinterpret_cast<TF_OpKernelContext*>(context), status);
  TF_DeleteStatus(status);
  return stream;
}

}  // namespace

DeviceStream device_stream_of(tensorflow::OpKernelContext* context) {
  DeviceStream result;
  result.ordinal = context->device()->tensorflow_accelerator_device_info()->gpu_id;
  tensorflow::DeviceContext* const device_context = context->op_device_context();
  result.stream = device_context->IsPluggableDevice() ? plugged_in_stream(context)
                                                      : device_context->stream()->platform_specific_handle().stream;
  return result;
}

}  // namespace farandole_tensorflow
