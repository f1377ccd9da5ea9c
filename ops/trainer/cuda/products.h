// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLAS.
#pragma once

#include <cstdint>

#include "cublas.h"
#include "kernels/factor.h"
#include "kernels/sequence.h"
#include "launcher.h"

namespace farandole::trainer::cuda {

/// As Kernels::multiply. @throws DeviceError   @throws Unsupported  an extent does not fit into an int
template <class Scalar>
void multiply(const Cublas& cublas, const Factor<Scalar>& left, const Factor<Scalar>& right, bool add, Scalar* result,
              std::int64_t stride);
/// As SequenceKernels::multiply_batch. Throws as `multiply`.
template <class Scalar>
void multiply_batch(const Cublas& cublas, const BatchOfProducts& batch, const Factor<Scalar>& left,
                    const Factor<Scalar>& right, Scalar* result, std::int64_t stride);

/// The same of factors in kBF16 or kF16. Products are added up in f32.
void multiply_halves(const Cublas& cublas, DType half, const Factor<HalfBits>& left, const Factor<HalfBits>& right,
                     bool add, float* result, std::int64_t stride);
void multiply_batch_of_halves(const Cublas& cublas, DType half, const BatchOfProducts& batch,
                              const Factor<HalfBits>& left, const Factor<HalfBits>& right, float* result,
                              std::int64_t stride);

}  // namespace farandole::trainer::cuda
