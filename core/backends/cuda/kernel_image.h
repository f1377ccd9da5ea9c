// SPDX-License-Identifier: Apache-2.0
// The kernels' code, which the build has embedded once for each generation of drivers, or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace farandole::cuda {

struct KernelImage {
  const void* code = nullptr;  ///< a fatbin, for cuModuleLoadData
  std::size_t bytes = 0;       ///< 0: not built
  int driver_version = 0;      ///< the oldest driver that takes it, as cuDriverGetVersion counts: 13000
  std::string driver;          ///< the same for people: "CUDA 13.0 (driver 580 or newer)"
};

/// An image that the nvcc of a toolkit has compiled: a driver loads what is of its own generation of CUDA or an older
/// one.
/// @param toolkit  13010 for CUDA 13.1; any if there are no bytes
KernelImage kernel_image(const void* code, std::size_t bytes, int toolkit);

/// The first of the images that a driver takes; null if there is none. Images of newer drivers come first.
const KernelImage* image_for(std::span<const KernelImage> images, int driver_version);

/// Why there is none, and what to do.
std::string why_no_image(std::span<const KernelImage> images, int driver_version);

/// 12090 → "12.9"
std::string cuda_version_text(int version);

}  // namespace farandole::cuda
