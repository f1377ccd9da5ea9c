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

/// Addresses of the vectors of a computation. Most have elements of type T.
template <class T>
class Vectors {
 public:
  explicit Vectors(std::vector<Buffer>& buffers) {
    for (Buffer& buffer : buffers) addresses_.push_back(buffer.view().data);
  }
  T* operator[](std::size_t k) const { return as<T>(k); }
  template <class U>
  U* as(std::size_t k) const {
    return static_cast<U*>(addresses_[k]);
  }

 private:
  std::vector<void*> addresses_;
};

/// Runs a computation in host memory and on a device, on equal vectors.
template <class T>
class Comparison {
 public:
  explicit Comparison(Communicator& ranks, const DeviceComputation& computation = {})
      : device_(device_execution(ranks, computation)) {}

  /// Adds a vector of the computation; `compute` gets the vectors' addresses in this order.
  template <class U>
  Comparison& with(const std::vector<U>& values) {
    Buffer& vector = vectors_.emplace_back(values.size(), dtype_of<U>);
    std::ranges::copy(values, vector.as<U>());
    return *this;
  }

  /// Adds a vector that is only read, with other values in host memory than on the device.
  Comparison& reading(const std::vector<T>& on_host, const std::vector<T>& on_device) {
    read_on_device_.resize(vectors_.size());
    read_on_device_.push_back(on_device);
    return with(on_host);
  }

  using Computation = std::function<void(const Kernels<T>& kernels, Workspace& workspace, const Vectors<T>& vectors)>;
  /// Expects that the vectors are the same afterwards. @param error  relative to 1 or the value
  void expect_equal(double error, const Computation& compute) {
    std::vector<Buffer> on_device;
    read_on_device_.resize(vectors_.size());
    for (std::size_t k = 0; k < vectors_.size(); ++k) {
      std::vector<T>& read = read_on_device_[k];
      on_device.push_back(allocate(device_.memory(), vectors_[k].count(), vectors_[k].dtype()));
      copy_now(device_, on_device[k].view(),
               read.empty() ? ConstBufferView(vectors_[k].view()) : VectorView<const T>(read));
    }
    Workspace workspace;
    compute(host_kernels<T>(), workspace, Vectors<T>(vectors_));
    compute(kernels_of<T>(device_), device_.workspace(), Vectors<T>(on_device));
    for (std::size_t k = 0; k < vectors_.size(); ++k) {
      if (!read_on_device_[k].empty()) continue;
      Buffer found(vectors_[k].count(), vectors_[k].dtype());
      copy_now(device_, found.view(), on_device[k].view());
      for (std::size_t i = 0; i < found.count(); ++i) {
        const double expected = element(vectors_[k], i), value = element(found, i);
        if (value == expected || (std::isnan(expected) && std::isnan(value))) continue;
        ASSERT_NEAR(value, expected, error * std::max(1.0, std::abs(expected))) << "vector " << k << ", element " << i;
      }
    }
  }

 private:
  static double element(Buffer& buffer, std::size_t i) {
    if (buffer.dtype() == DType::kU8) return buffer.as<std::uint8_t>()[i];
    if (buffer.dtype() == DType::kI32) return buffer.as<std::int32_t>()[i];
    if (buffer.dtype() == DType::kI64) return static_cast<double>(buffer.as<std::int64_t>()[i]);
    return buffer.dtype() == DType::kF32 ? buffer.as<float>()[i] : buffer.as<double>()[i];
  }

  const Execution device_;
  std::vector<Buffer> vectors_;
  std::vector<std::vector<T>> read_on_device_;  // empty: the values of the vector
};

}  // namespace farandole::trainer::test
