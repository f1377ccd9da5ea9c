// SPDX-License-Identifier: Apache-2.0
#include "device_peak.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/sdk/device.h"
#include "farandole/trainer/random.h"
#include "kernels/kernels.h"
#include "kernels/transfer.h"

namespace farandole::trainer {
namespace {

constexpr std::int64_t kSmallest = 64, kLargest = 4096;
constexpr Seconds kBudget{0.05};
constexpr int kRuns = 3;

/// Three square matrices on a device: two factors and their product.
template <class Scalar>
class Product {
 public:
  /// @throws DeviceError  there is not enough memory
  Product(const Execution& execution, std::int64_t extent)
      : execution_(execution),
        extent_(extent),
        memory_(allocate(execution.memory(), static_cast<std::size_t>(3 * extent * extent), dtype_of<Scalar>)) {
    // Random numbers, because a device multiplies zeros with less power, and so faster, than the numbers of a training.
    const CounterRandom random(1, extent);
    std::vector<Scalar> row(static_cast<std::size_t>(extent));
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<Scalar>(random.uniform(i) - 0.5);
    Scalar* const on_device = matrix(2);
    copy_now(execution_, VectorView<Scalar>(on_device, row.size(), memory_.space()), VectorView<Scalar>(row));
    for (const std::int64_t factor : {0, 1}) kernels().fill_rows(on_device, extent, extent, matrix(factor));
  }

  double operations() const { return 2.0 * static_cast<double>(extent_ * extent_ * extent_); }
  /// Time of the fastest of several runs.
  Seconds measure() {
    Device& device = device_of(execution_);
    const auto begin = device.make_event(DeviceEvent::Use::kTiming);
    const auto end = device.make_event(DeviceEvent::Use::kTiming);
    Seconds fastest{std::numeric_limits<double>::max()};
    for (int run = 0; run < kRuns; ++run) {
      device.record(*begin, execution_.stream());
      kernels().multiply({matrix(0), extent_, extent_}, {matrix(1), extent_, extent_}, false, matrix(2));
      device.record(*end, execution_.stream());
      finish(execution_);
      fastest = std::min(fastest, device.elapsed(*begin, *end));
    }
    return fastest;
  }

 private:
  const Kernels<Scalar>& kernels() const { return kernels_of<Scalar>(execution_); }
  Scalar* matrix(std::int64_t number) { return memory_.as<Scalar>() + number * extent_ * extent_; }

  const Execution& execution_;
  const std::int64_t extent_;
  Buffer memory_;
};

}  // namespace

template <class Scalar>
double measured_peak(const Execution& execution) {
  double peak = 0;
  Seconds taken{0};
  for (std::int64_t extent = kSmallest; extent <= kLargest && 8 * taken <= kBudget; extent *= 2) {
    try {
      Product<Scalar> product(execution, extent);
      taken = product.measure();
      peak = product.operations() / taken.count();
    } catch (const DeviceError&) {
      if (peak == 0) throw;
      break;
    }
  }
  return peak;
}

template double measured_peak<float>(const Execution&);
template double measured_peak<double>(const Execution&);

}  // namespace farandole::trainer
