// SPDX-License-Identifier: Apache-2.0
#ifndef FARANDOLE_TENSORFLOW_DEVICE_STREAM_H
#define FARANDOLE_TENSORFLOW_DEVICE_STREAM_H

#include <cstdint>

#include "tensorflow/core/framework/op_kernel.h"

namespace farandole_tensorflow {

/// The stream in which TensorFlow enqueues the work of a GPU's ops, and the GPU.
struct DeviceStream {
  int32_t ordinal = 0;     ///< among the devices that the process sees, visible to TensorFlow or not
  void* stream = nullptr;  ///< cudaStream_t
};

/// Returns the stream of an op that runs on a GPU.
DeviceStream device_stream_of(tensorflow::OpKernelContext* context);

}  // namespace farandole_tensorflow

#endif  // FARANDOLE_TENSORFLOW_DEVICE_STREAM_H
