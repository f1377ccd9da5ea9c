// SPDX-License-Identifier: Apache-2.0
#ifndef FARANDOLE_TENSORFLOW_DEVICE_STREAM_H
#define FARANDOLE_TENSORFLOW_DEVICE_STREAM_H

#include <cstdint>

#include "tensorflow/core/framework/op_kernel.h"

namespace farandole_tensorflow {

/// A GPU, and the stream in which TensorFlow enqueues the work of its ops.
struct DeviceStream {
  int32_t ordinal = 0;     ///< among all devices that the process sees, even those that are invisible to TensorFlow
  void* stream = nullptr;  ///< cudaStream_t
};

/// Returns the stream of an op that runs on a GPU.
DeviceStream device_stream_of(tensorflow::OpKernelContext* context);

}  // namespace farandole_tensorflow

#endif  // FARANDOLE_TENSORFLOW_DEVICE_STREAM_H
