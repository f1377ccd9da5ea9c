// SPDX-License-Identifier: Apache-2.0
// Kernels of a CUDA device: products by cuBLAS, convolutions of floats by cuDNN if there is one, everything else by
// kernels of our own.
#pragma once

#include <memory>

#include "cublas.h"
#include "cudnn.h"
#include "kernels/device_plugin.h"
#include "kernels/kernels.h"
#include "launcher.h"

namespace farandole::trainer::cuda {

/// The kernels of a device in a stream, for f32 and f64. Used by one thread at a time.
/// @param kernels  loaded on the device   @param kernels, cublas, cudnn, device  outlive the result
/// @param workspace  of the stream; outlives the use of the result   @throws DeviceError
std::unique_ptr<DeviceKernels> cuda_kernels(const LoadedKernels& kernels, const CublasApi& cublas,
                                            const CudnnLibrary& cudnn, Device& device, StreamView stream,
                                            Workspace& workspace, const DeviceComputation& computation);

}  // namespace farandole::trainer::cuda
