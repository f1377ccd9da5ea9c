// SPDX-License-Identifier: Apache-2.0
// Registration of kernels for devices that TensorFlow calls GPU. The Python package requests the registration. Without
// these kernels, TensorFlow places the ops on the CPU, and copies tensors there and back.
#ifndef FARANDOLE_TENSORFLOW_GPU_KERNELS_H
#define FARANDOLE_TENSORFLOW_GPU_KERNELS_H

#include <initializer_list>

#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace farandole_tensorflow {

// Register the kernels of the collectives, and of the ops that return the place in the job. Call each once, before the
// first op runs.
void register_gpu_collectives();
void register_gpu_topology();

/// Registers `Kernel` as an op's kernel for GPUs. @param in_host_memory  inputs and outputs that stay in host memory
template <class Kernel>
void register_gpu_kernel(const char* op, std::initializer_list<const char*> in_host_memory = {}) {
  tensorflow::KernelDefBuilder builder(op);
  builder.Device(tensorflow::DEVICE_GPU);
  for (const char* const argument : in_host_memory) builder.HostMemory(argument);
  const tensorflow::kernel_factory::OpKernelRegistrar registrar(
      builder.Build(), "farandole",
      [](tensorflow::OpKernelConstruction* context) -> tensorflow::OpKernel* { return new Kernel(context); });
}

}  // namespace farandole_tensorflow

#endif  // FARANDOLE_TENSORFLOW_GPU_KERNELS_H
