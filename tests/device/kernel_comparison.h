// SPDX-License-Identifier: Apache-2.0
// Comparison of the trainer's kernels for devices with those for host memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "farandole/trainer/random.h"
#include "kernels/device_execution.h"
#include "kernels/kernels.h"
#include "kernels/transfer.h"

namespace farandole::trainer::test {

/// Values in [-1, 1), all of whose digits are used.
template <class T>
std::vector<T> fine_values(std::int64_t count, std::uint64_t seed) {
  const CounterRandom random(seed, 1);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(2 * random.uniform(i) - 1);
  return values;
}

/// Runs a computation in host memory and on a device, on equal vectors.
template <class T>
class Comparison {
 public:
  explicit Comparison(Communicator& ranks, AlgorithmChoice choice = AlgorithmChoice::kFixed)
      : device_(device_execution(ranks, choice)) {}

  /// Adds a vector of the computation; `compute` gets the vectors' addresses in this order.
  Comparison& with(std::vector<T> values) {
    vectors_.push_back(std::move(values));
    return *this;
  }

  using Computation =
      std::function<void(const Kernels<T>& kernels, Workspace& workspace, const std::vector<T*>& vectors)>;
  /// Expects that the vectors are the same afterwards. @param error  relative to 1 or the value
  void expect_equal(double error, const Computation& compute) {
    std::vector<std::vector<T>> on_host = vectors_;
    std::vector<T*> addresses;
    for (auto& vector : on_host) addresses.push_back(vector.data());
    Workspace workspace;
    compute(host_kernels<T>(), workspace, addresses);
    std::vector<Buffer> on_device;
    addresses.clear();
    for (auto& vector : vectors_) {
      on_device.push_back(allocate(device_.memory(), vector.size(), dtype_of<T>));
      copy_now(device_, on_device.back().view(), VectorView<T>(vector));
      addresses.push_back(static_cast<T*>(on_device.back().view().data));
    }
    compute(kernels_of<T>(device_), device_.workspace(), addresses);
    for (std::size_t k = 0; k < on_host.size(); ++k) {
      const BufferView view = on_device[k].view();
      const auto found = to_host<T>(device_, {static_cast<const T*>(view.data), view.count, view.space});
      for (std::size_t i = 0; i < found.size(); ++i) {
        const double expected = on_host[k][i];
        ASSERT_NEAR(found[i], expected, error * std::max(1.0, std::abs(expected)))
            << "vector " << k << ", element " << i;
      }
    }
  }

 private:
  const Execution device_;
  std::vector<std::vector<T>> vectors_;
};

}  // namespace farandole::trainer::test
