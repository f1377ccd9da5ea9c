// SPDX-License-Identifier: Apache-2.0
// Sum of 2^n vectors, associated as a balanced binary tree, although the vectors arrive one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"

namespace farandole::trainer {

/// Works like a binary counter: vector i (from 0) completes as many pairs as i has trailing 1 bits. The association is
/// ((0,1),(2,3)),…, and only log2(count) + 1 partial sums are stored.
template <class T>
class TreeSum {
 public:
  /// Begins a new sum.
  void start() { added_ = 0; }
  /// Adds `values`, which lie in the memory of the execution. On return `values` holds the sum of the largest complete
  /// subtree that ends with this vector; after 2^n vectors that is the sum of all vectors.
  void add(const Execution& execution, VectorView<T> values) {
    const Kernels<T>& kernels = kernels_of<T>(execution);
    const auto count = static_cast<std::int64_t>(values.size());
    std::size_t level = 0;
    for (; (added_ >> level & 1) != 0; ++level) {
      kernels.add(count, partial_[level].template as<T>(), values.data(), values.data());
    }
    ++added_;
    if (partial_.size() <= level) partial_.resize(level + 1);
    if (partial_[level].count() != values.size()) {
      partial_[level] = allocate(execution.memory(), values.size(), dtype_of<T>);
    }
    kernels.copy(count, values.data(), partial_[level].template as<T>());
  }

 private:
  std::size_t added_ = 0;
  std::vector<Buffer> partial_;  // partial_[level] is the sum of 2^level vectors
};

}  // namespace farandole::trainer
