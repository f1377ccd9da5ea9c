// SPDX-License-Identifier: Apache-2.0
// The compiled kernels that the build has embedded: an image per generation of drivers, or no image.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace farandole::cuda {

/// All kernels, compiled by the same toolkit.
struct KernelImage {
  const void* code = nullptr;  ///< a fatbin, for cuModuleLoadData
  std::size_t bytes = 0;       ///< 0 if the build has not made this image
  int driver_version = 0;      ///< the oldest driver that loads the image, as cuDriverGetVersion numbers drivers: 13000
  std::string driver;          ///< the same driver as text, for messages: "CUDA 13.0 (driver 580 or newer)"
  bool has_large_variants = false;  ///< kernels for many tasks: all variants of kCapacities, not the first only
};

/// The oldest toolkit whose images have all variants of kCapacities. CUDA 12.1 could compile them, but an image of CUDA
/// 12 must also be loaded by drivers of CUDA 12.0, which do not support arguments of more than 4 KiB.
inline constexpr int kOldestLargeToolkit = 13000;

/// Describes an image that the nvcc of a toolkit has compiled. Drivers load images of their own CUDA generation (major
/// version) and of older generations.
/// @param toolkit  13010 for CUDA 13.1; ignored if `bytes` is 0
KernelImage kernel_image(const void* code, std::size_t bytes, int toolkit);

/// Returns the first image that a driver loads; null if there is none. @param images  newest generation first
const KernelImage* image_for(std::span<const KernelImage> images, int driver_version);

/// Returns why image_for() finds no image, with a remedy.
std::string why_no_image(std::span<const KernelImage> images, int driver_version);

/// 12090 → "12.9"
std::string cuda_version_text(int version);

}  // namespace farandole::cuda
