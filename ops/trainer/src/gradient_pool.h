// SPDX-License-Identifier: Apache-2.0
// Memory of the gradients of a graph's nodes while backward runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "farandole/trainer/execution.h"
#include "kernels/kernels.h"

namespace farandole::trainer {

/// Gradients of the nodes of a graph. A tensor returns to the pool when the last node that uses it releases it, so that
/// a row of layers needs two tensors. A node may share the tensor of another node's gradient; a shared tensor and the
/// caller's gradient are never written.
///
/// The gradient of a node is the sum of the contributions of the nodes that use its value, added in the order of the
/// calls.
template <class Scalar>
class GradientPool {
 public:
  /// Begins a backward pass. @param execution  where the gradients lie, the same in all passes; outlives the pass
  /// @param result  the gradient that the caller passes, read only
  void start(std::size_t nodes, const Tensor<Scalar>& result, const Execution& execution) {
    execution_ = &execution;
    result_ = &result;
    slots_.assign(nodes, kNone);
    users_.assign(tensors_.size(), 0);
  }

  bool has(std::size_t node) const { return slots_[node] != kNone; }
  const Tensor<Scalar>& gradient(std::size_t node) const { return tensor(slots_[node]); }

  /// Adds the caller's gradient, without a copy if it is the first contribution.
  void contribute_result(std::size_t node) { contribute_slot(node, kResult); }
  /// Adds the gradient of another node, without a copy if it is the first contribution.
  void contribute_gradient_of(std::size_t node, std::size_t other) { contribute_slot(node, slots_[other]); }

  /// Adds what `write(tensor)` stores in a tensor of `samples` samples of `shape`.
  /// @param own  tensor for the node's gradient; null: memory of the pool
  template <class Write>
  void contribute(std::size_t node, std::int64_t samples, const Shape& shape, Tensor<Scalar>* own, const Write& write) {
    if (own != nullptr && slots_[node] != kOwn) {
      own->resize(samples, shape);
      write(*own);
      if (has(node)) add(*own, gradient(node), *own);
      release(node);
      own_ = own;
      slots_[node] = kOwn;
      return;
    }
    const std::size_t fresh = acquire(samples, shape);
    write(*tensors_[fresh]);
    if (has(node) && is_writable(slots_[node])) {
      add(writable(slots_[node]), *tensors_[fresh], writable(slots_[node]));
      release_slot(fresh);
      return;
    }
    if (has(node)) add(*tensors_[fresh], gradient(node), *tensors_[fresh]);
    release(node);
    slots_[node] = fresh;
  }

  /// Calls `use(tensor)` with scratch memory.
  template <class Use>
  void with_scratch(std::int64_t samples, const Shape& shape, const Use& use) {
    const std::size_t fresh = acquire(samples, shape);
    use(*tensors_[fresh]);
    release_slot(fresh);
  }

  /// No-op if the node has no gradient.
  void release(std::size_t node) {
    release_slot(slots_[node]);
    slots_[node] = kNone;
  }

 private:
  static constexpr std::size_t kNone = SIZE_MAX, kResult = SIZE_MAX - 1, kOwn = SIZE_MAX - 2;

  const Tensor<Scalar>& tensor(std::size_t slot) const {
    return slot == kResult ? *result_ : slot == kOwn ? *own_ : *tensors_[slot];
  }
  bool is_writable(std::size_t slot) const { return slot == kOwn || (slot != kResult && users_[slot] == 1); }
  Tensor<Scalar>& writable(std::size_t slot) { return slot == kOwn ? *own_ : *tensors_[slot]; }

  void contribute_slot(std::size_t node, std::size_t slot) {
    if (!has(node)) {
      slots_[node] = slot;
      if (slot < users_.size()) ++users_[slot];
      return;
    }
    const Tensor<Scalar>& more = tensor(slot);
    if (is_writable(slots_[node])) {
      add(writable(slots_[node]), more, writable(slots_[node]));
      return;
    }
    const std::size_t fresh = acquire(more.samples(), more.shape());
    add(gradient(node), more, *tensors_[fresh]);
    release(node);
    slots_[node] = fresh;
  }

  std::size_t acquire(std::int64_t samples, const Shape& shape) {
    std::size_t slot = 0;
    while (slot < users_.size() && users_[slot] > 0) ++slot;
    if (slot == tensors_.size()) {
      tensors_.push_back(std::make_unique<Tensor<Scalar>>(execution_->memory()));
      users_.push_back(0);
    }
    users_[slot] = 1;
    tensors_[slot]->resize(samples, shape);
    return slot;
  }
  void release_slot(std::size_t slot) {
    if (slot < users_.size()) --users_[slot];
  }

  void add(const Tensor<Scalar>& left, const Tensor<Scalar>& right, Tensor<Scalar>& sum) const {
    kernels_of<Scalar>(*execution_).add(sum.size(), left.data(), right.data(), sum.data());
  }

  const Execution* execution_ = nullptr;  ///< of the pass
  const Tensor<Scalar>* result_ = nullptr;
  Tensor<Scalar>* own_ = nullptr;
  std::vector<std::unique_ptr<Tensor<Scalar>>> tensors_;
  std::vector<int> users_;          ///< for each tensor: number of nodes whose gradient it is
  std::vector<std::size_t> slots_;  ///< for each node: index in tensors_, kNone, kResult or kOwn
};

}  // namespace farandole::trainer
