// SPDX-License-Identifier: Apache-2.0
// Sum of 2^n vectors, associated as a balanced binary tree, although the vectors arrive one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace farandole::trainer {

/// Works like a binary counter: vector i (from 0) completes as many pairs as i has trailing 1 bits. The association is
/// ((0,1),(2,3)),…, and only log2(count) + 1 partial sums are stored.
template <class T>
class TreeSum {
 public:
  /// Begins a new sum.
  void start() { added_ = 0; }
  /// Adds `values`. On return `values` holds the sum of the largest complete subtree that ends with this vector; after
  /// 2^n vectors that is the sum of all vectors.
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
  std::vector<std::vector<T>> partial_;  // partial_[level] is the sum of 2^level vectors
};

}  // namespace farandole::trainer
