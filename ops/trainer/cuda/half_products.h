// SPDX-License-Identifier: Apache-2.0
// Matrix products of floats in a 16-bit type.
#pragma once

#include <cstdint>

#include "cublas.h"
#include "farandole/core/dtype.h"
#include "farandole/trainer/execution.h"
#include "kernels/factor.h"
#include "kernels/sequence.h"
#include "launcher.h"

namespace farandole::trainer::cuda {

/// Rounds the factors to bf16 or f16, and adds products up in f32. Used by one thread at a time.
///
/// The rounded factors lie in scratch memory. A row takes a multiple of kRowAlignment elements there, because tensor
/// cores are fastest with rows of multiples of 16 bytes.
class HalfProducts {
 public:
  /// @param launcher, cublas, workspace  outlive this object   @param type  kBF16 or kF16
  HalfProducts(const Launcher& launcher, const Cublas& cublas, Workspace& workspace, DType type)
      : launcher_(launcher), cublas_(cublas), workspace_(workspace), type_(type) {}

  DType type() const { return type_; }
  /// As Kernels::rounded.
  Factor<float> rounded(Workspace::Scope& scope, const Factor<float>& factor) const;
  /// As Kernels::multiply.
  void multiply(const Factor<float>& left, const Factor<float>& right, bool add, float* result,
                std::int64_t stride) const;
  /// As SequenceKernels::multiply_batch.
  void multiply_batch(const BatchOfProducts& batch, const Factor<float>& left, const Factor<float>& right,
                      float* result, std::int64_t stride) const;

 private:
  static constexpr std::int64_t kRowAlignment = 8;
  static std::int64_t narrow_stride(const Factor<float>& factor) {
    return (factor.columns + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  }
  /// Returns the first of the rounded matrices, which lie behind each other: those of a sample, then the next sample's.
  Factor<HalfBits> narrow(Workspace::Scope& scope, const Factor<float>& first, std::int64_t samples, std::int64_t heads,
                          const BatchOfProducts::Steps& steps) const;

  const Launcher& launcher_;
  const Cublas& cublas_;
  Workspace& workspace_;
  const DType type_;
};

}  // namespace farandole::trainer::cuda
