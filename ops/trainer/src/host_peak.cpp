// SPDX-License-Identifier: Apache-2.0
#include "host_peak.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "farandole/trainer/random.h"

namespace farandole::trainer {
namespace {

constexpr std::int64_t kSmallest = 256, kLargest = 4096;
constexpr Seconds kBudget{0.1};
constexpr int kRuns = 5;

/// Time of the fastest of several runs of a square product. All ranks start each run together. Collective.
template <class Scalar>
Seconds fastest_product(Communicator& communicator, std::int64_t extent, const PeakMeasurement<Scalar>& measurement) {
  const CounterRandom random(1, static_cast<std::uint64_t>(extent));
  std::vector<Scalar> factor(static_cast<std::size_t>(extent * extent)), product(factor.size());
  for (std::int64_t i = 0; i < extent; ++i) {
    factor[static_cast<std::size_t>(i)] = static_cast<Scalar>(random.uniform(static_cast<std::uint64_t>(i)) - 0.5);
  }
  for (std::int64_t row = 1; row < extent; ++row) std::copy_n(factor.begin(), extent, factor.begin() + row * extent);
  const Factor<Scalar> square{factor.data(), extent, extent};
  Seconds fastest{std::numeric_limits<double>::max()};
  for (int run = 0; run < kRuns; ++run) {
    communicator.barrier();
    const auto start = measurement.now();
    measurement.square(square, product.data());
    fastest = std::min(fastest, Seconds(measurement.now() - start));
  }
  return fastest;
}

}  // namespace

template <class Scalar>
double measured_host_peak(Communicator& communicator, const PeakMeasurement<Scalar>& measurement) {
  double peak = 0;
  std::array<double, 1> slowest{0};  // seconds, the same on all ranks, so all ranks end with the same extent
  for (std::int64_t extent = kSmallest; extent <= kLargest && Seconds(8 * slowest[0]) <= kBudget; extent *= 2) {
    const Seconds taken = fastest_product(communicator, extent, measurement);
    peak = 2.0 * static_cast<double>(extent * extent * extent) / taken.count();
    slowest[0] = taken.count();
    communicator.allreduce(slowest, ReduceOp::kMax);
  }
  return peak;
}

template double measured_host_peak(Communicator&, const PeakMeasurement<float>&);
template double measured_host_peak(Communicator&, const PeakMeasurement<double>&);

}  // namespace farandole::trainer
