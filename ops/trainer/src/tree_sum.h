// SPDX-License-Identifier: Apache-2.0
// The sum of a power of two of vectors as one balanced binary tree, one vector after the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace farandole::trainer {

/// Adds vectors like a binary counter adds ones: vector i completes as many pairs as i has trailing one bits, so that
/// the association is ((0,1),(2,3)),… and only log2(count) partial sums are kept.
template <class T>
class TreeSum {
 public:
  void start() { added_ = 0; }
  /// Adds `values`. On return `values` is the sum of the largest complete subtree that ends here: after the last of a
  /// power of two of vectors, the whole sum.
  void add(std::span<T> values) {
    std::size_t level = 0;
    for (; (added_ >> level & 1) != 0; ++level) {
      const T* earlier = partial_[level].data();
      T* sum = values.data();
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] = earlier[i] + sum[i];
    }
    ++added_;
    if (partial_.size() <= level) partial_.resize(level + 1);
    partial_[level].assign(values.begin(), values.end());
  }

 private:
  std::size_t added_ = 0;
  std::vector<std::vector<T>> partial_;  // of 2^level vectors
};

}  // namespace farandole::trainer
