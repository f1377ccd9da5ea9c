// SPDX-License-Identifier: Apache-2.0
// Attention in a library's fused kernels, which keep no probabilities in memory.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

#include "farandole/trainer/execution.h"

namespace farandole::trainer {

/// Self-attention of `samples` samples. Q, K and V of a position lie beside each other, in a row of 3 * units()
/// elements, and the heads of each beside each other in units() of them.
struct AttentionForm {
  std::int64_t samples = 0, heads = 0, length = 0, head_units = 0;
  bool causal = false;

  std::int64_t rows() const { return samples * length; }
  std::int64_t units() const { return heads * head_units; }
  /// Factor of the scores.
  double scale() const { return 1 / std::sqrt(static_cast<double>(head_units)); }
  auto operator<=>(const AttentionForm&) const = default;
};

/// What a forward pass keeps for the backward pass. All addresses are multiples of 16 bytes.
template <class Scalar>
struct FusedAttentionMemory {
  void* qkv;           ///< rows() * 3 * units() elements in the type of products
  void* context;       ///< rows() * units() elements in the type of products
  Scalar* statistics;  ///< of each sample, head and position: the logarithm of the sum of its scores' exponentials
};

/// As Kernels: all addresses lie in one memory, and functions return before their work is done.
template <class Scalar>
class FusedAttention {
 public:
  virtual ~FusedAttention() = default;

  /// True if the fused kernels can compute this form; else nothing but this function may be called for it. The first
  /// call for a form may take seconds, allocate memory, and must not be captured in a graph. Later calls return the
  /// same. @param with_gradients  the backward pass, too
  virtual bool fuses(Workspace& workspace, const AttentionForm& form, bool with_gradients) = 0;
  /// Computes the context. @param qkv  rounded into `memory.qkv`
  virtual void forward(Workspace& workspace, const AttentionForm& form, const Scalar* qkv,
                       const FusedAttentionMemory<Scalar>& memory) = 0;
  /// Computes the gradient of Q, K and V. @throws DeviceError  `fuses` was asked without gradients, and is false with
  /// them   @param memory  as the forward pass has left it
  /// @param rounded, qkv_gradient  the gradient in the type of products, and the same numbers as Scalar
  virtual void backward(Workspace& workspace, const AttentionForm& form, const FusedAttentionMemory<Scalar>& memory,
                        const Scalar* context_gradient, void* rounded, Scalar* qkv_gradient) = 0;
};

}  // namespace farandole::trainer
