// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernel_image.h"

#include <fmt/format.h>

#include <algorithm>

namespace farandole::cuda {

KernelImage kernel_image(const void* code, std::size_t bytes, int toolkit) {
  constexpr int kGeneration = 1000;
  const int generation = toolkit / kGeneration;
  // The oldest driver of each generation, by NVIDIA's table of minor version compatibility.
  const char* const first = generation == 13   ? " (driver 580 or newer)"
                            : generation == 12 ? " (driver 525 or newer)"
                                               : "";
  const int oldest = generation * kGeneration;
  return {code, bytes, oldest, fmt::format("CUDA {}{}", cuda_version_text(oldest), first),
          toolkit >= kOldestLargeToolkit};
}

const KernelImage* image_for(std::span<const KernelImage> images, int driver_version) {
  const auto image = std::find_if(images.begin(), images.end(), [driver_version](const KernelImage& each) {
    return each.bytes > 0 && driver_version >= each.driver_version;
  });
  return image == images.end() ? nullptr : &*image;
}

std::string why_no_image(std::span<const KernelImage> images, int driver_version) {
  const KernelImage* oldest = nullptr;
  for (const KernelImage& image : images) {
    if (image.bytes > 0 && (oldest == nullptr || image.driver_version < oldest->driver_version)) oldest = &image;
  }
  if (oldest == nullptr) {
    return fmt::format(
        "a driver for CUDA {} is there, but this build of Farandole has no kernels for it; build it where "
        "CUDA's nvcc is, with FARANDOLE_WITH_CUDA=ON",
        cuda_version_text(driver_version));
  }
  const bool could_take_older = oldest != &images.back();
  return fmt::format("the driver is for CUDA {}, but the kernels of this build need {}; update the driver{}",
                     cuda_version_text(driver_version), oldest->driver,
                     could_take_older ? ", or build Farandole with the nvcc of an older CUDA, too" : "");
}

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace farandole::cuda
