// SPDX-License-Identifier: Apache-2.0
// Runs TensorFlow's CPU kernels as kernels of the fake GPU.
#ifndef FARANDOLE_TESTS_TENSORFLOW_GPU_STREAM_KERNEL_H
#define FARANDOLE_TESTS_TENSORFLOW_GPU_STREAM_KERNEL_H

#include <memory>
#include <vector>

#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace fake_gpu {

/// A tensor of a launch.
struct Operand {
  enum Place { kDevice, kHost, kVariable };  // kVariable: the value, in device memory, of a variable that is an input
  tensorflow::Tensor tensor;
  Place place = kDevice;
};

/// Enqueues a kernel in the op's stream: the stream's thread runs the CPU's `kernel` on the addresses that streams use,
/// and copies the results into `outputs`.
///
/// As on a GPU, the launch owns no device memory: once the launch is enqueued, TensorFlow may give the memory of an
/// input to another op, whose work follows in the same stream.
absl::Status launch(tensorflow::OpKernelContext* context, const char* name,
                    const std::shared_ptr<tensorflow::OpKernel>& kernel, const std::vector<Operand>& inputs,
                    const std::vector<Operand>& outputs);

/// Enqueues a copy in the op's stream, from device memory to device memory.
void copy_on_device(tensorflow::OpKernelContext* context, const tensorflow::Tensor& from, const tensorflow::Tensor& to);

/// Returns the stream of the latest launch on a device; null if there was none.
SP_Stream compute_stream(int ordinal);

/// Creates the CPU kernel of a node.
absl::Status create_processor_kernel(const tensorflow::NodeDef& node, std::shared_ptr<tensorflow::OpKernel>* kernel);

}  // namespace fake_gpu

#endif  // FARANDOLE_TESTS_TENSORFLOW_GPU_STREAM_KERNEL_H
