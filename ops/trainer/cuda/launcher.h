// SPDX-License-Identifier: Apache-2.0
// The trainer's kernels on a device: loading them, and launching them in a stream.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "cuda/cuda_event.h"
#include "cuda/kernel_image.h"
#include "cuda/operand_arguments.h"
#include "farandole/sdk/device.h"
#include "kernel_list.h"

namespace farandole::trainer::cuda {

// NOLINTBEGIN(bugprone-macro-parentheses): parts of names
#define FARANDOLE_TRAINER_NUMBER(name, body) k##body,
/// Numbers of the kernels.
enum class Kernel : std::uint8_t { FARANDOLE_TRAINER_KERNELS(FARANDOLE_TRAINER_NUMBER) kCount };
enum class HalfKernel : std::uint8_t { FARANDOLE_TRAINER_HALF_KERNELS(FARANDOLE_TRAINER_NUMBER) kCount };
#undef FARANDOLE_TRAINER_NUMBER
// NOLINTEND(bugprone-macro-parentheses)
inline constexpr auto kKernels = static_cast<std::size_t>(Kernel::kCount);
inline constexpr auto kHalfKernels = static_cast<std::size_t>(HalfKernel::kCount);

/// The bits of a number of a 16-bit type, with which the host does not compute.
using HalfBits = std::uint16_t;

/// An array that a kernel writes, or reads and writes.
template <class T>
farandole::cuda::Operand writes(T* address, std::int64_t count) {
  return {const_cast<std::remove_const_t<T>*>(address),
          address == nullptr ? 0 : static_cast<std::uint64_t>(count) * sizeof(T), true};
}
/// An array that a kernel reads; null: the operation is without it.
template <class T>
farandole::cuda::Operand reads(const T* address, std::int64_t count) {
  return {const_cast<T*>(address), address == nullptr ? 0 : static_cast<std::uint64_t>(count) * sizeof(T), false};
}

/// The kernels of a device, loaded into its primary context for the rest of the process. Const after construction.
struct LoadedKernels {
  /// @param api  outlives this object   @throws DeviceError
  LoadedKernels(const farandole::cuda::CudaApi& api, const farandole::cuda::KernelImage& image,
                const DeviceInfo& device);

  farandole::cuda::DeviceContext context;
  unsigned most_blocks;  ///< that can be resident at the same time
  std::array<std::array<farandole::cuda::CUfunction, kKernels>, 2> functions{};           ///< for f32 and f64
  std::array<std::array<farandole::cuda::CUfunction, kHalfKernels>, 2> half_functions{};  ///< for bf16 and f16
};

/// Launches kernels in a stream of a device. Thread-safe.
class Launcher {
 public:
  /// @param kernels  of the device   @param kernels, device  outlive this object
  Launcher(const LoadedKernels& kernels, Device& device, StreamView stream)
      : kernels_(kernels), device_(device), stream_(stream) {}

  Device& device() const { return device_; }
  StreamView stream() const { return stream_; }

  /// Launches the form of `kernel` for type T: at least `threads` threads, or as many as the device can run at once;
  /// none if `threads` is 0. What operands, sizes and numbers are, the bodies say (bodies_*.h).
  /// @throws DeviceError
  template <class T>
  void launch(Kernel kernel, std::int64_t threads, std::initializer_list<farandole::cuda::Operand> operands,
              std::initializer_list<std::int64_t> sizes, std::initializer_list<double> numbers = {}) const {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
    const auto& of_type = kernels_.functions[std::is_same_v<T, float> ? 0 : 1];
    launch(of_type[static_cast<std::size_t>(kernel)], threads, operands, sizes, numbers);
  }

  /// The same for a kernel between f32 and `half`, which is kBF16 or kF16.
  void launch(HalfKernel kernel, DType half, std::int64_t threads,
              std::initializer_list<farandole::cuda::Operand> operands,
              std::initializer_list<std::int64_t> sizes) const {
    const auto& of_type = kernels_.half_functions[half == DType::kBF16 ? 0 : 1];
    launch(of_type[static_cast<std::size_t>(kernel)], threads, operands, sizes, {});
  }

 private:
  void launch(farandole::cuda::CUfunction function, std::int64_t threads,
              std::initializer_list<farandole::cuda::Operand> operands, std::initializer_list<std::int64_t> sizes,
              std::initializer_list<double> numbers) const;

  const LoadedKernels& kernels_;
  Device& device_;
  const StreamView stream_;
};

}  // namespace farandole::trainer::cuda
