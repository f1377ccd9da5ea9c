// SPDX-License-Identifier: Apache-2.0
// cuBLAS stores matrices column by column, so it sees the transposes, and computes the transposed product: right^T *
// left^T = (left * right)^T.
#include "products.h"

#include <fmt/format.h>

#include <limits>
#include <type_traits>

#include "farandole/core/error.h"

namespace farandole::trainer::cuda {
namespace {

int checked_extent(std::int64_t extent) {
  if (extent > std::numeric_limits<int>::max()) {
    throw Unsupported(fmt::format("a matrix with an extent of {}; cuBLAS takes up to {}; use smaller batches", extent,
                                  std::numeric_limits<int>::max()));
  }
  return static_cast<int>(extent);
}

/// The arguments of a product, in cuBLAS's order.
template <class Scalar>
struct Gemm {
  Gemm(const Factor<Scalar>& left, const Factor<Scalar>& right, std::int64_t stride)
      : first_operation(right.transposed ? CUBLAS_OP_T : CUBLAS_OP_N),
        second_operation(left.transposed ? CUBLAS_OP_T : CUBLAS_OP_N),
        columns(checked_extent(right.transposed ? right.rows : right.columns)),
        rows(checked_extent(left.transposed ? left.columns : left.rows)),
        inner(checked_extent(left.transposed ? left.rows : left.columns)),
        first_stride(checked_extent(right.row_stride())),
        second_stride(checked_extent(left.row_stride())),
        result_stride(stride > 0 ? checked_extent(stride) : columns) {}

  cublasOperation_t first_operation, second_operation;
  int columns, rows, inner, first_stride, second_stride, result_stride;
};

/// How a batch is computed: a call takes the products of all samples for a head, or of all heads for a sample, whatever
/// takes fewer calls.
struct BatchCalls {
  const BatchOfProducts& batch;
  bool by_head = batch.heads <= batch.samples;

  std::int64_t count() const { return by_head ? batch.heads : batch.samples; }
  int products() const { return checked_extent(by_head ? batch.samples : batch.heads); }
  /// Elements from a call to the next, and from a product of a call to the next.
  std::int64_t outer(const BatchOfProducts::Steps& steps) const { return by_head ? steps.head : steps.sample; }
  std::int64_t inner(const BatchOfProducts::Steps& steps) const { return by_head ? steps.sample : steps.head; }
};

/// Calls `compute(number of the call, calls)`.
template <class Compute>
void for_each_call(const BatchOfProducts& batch, const Compute& compute) {
  const BatchCalls calls{batch};
  for (std::int64_t k = 0; k < calls.count(); ++k) compute(k, calls);
}

cudaDataType_t cublas_type_of(DType half) {
  return half == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
}

}  // namespace

template <class Scalar>
void multiply(const Cublas& cublas, const Factor<Scalar>& left, const Factor<Scalar>& right, bool add, Scalar* result,
              std::int64_t stride) {
  const Gemm<Scalar> g(left, right, stride);
  const Scalar one{1}, factor = add ? Scalar{1} : Scalar{0};
  const auto compute = [&](const auto& gemm, const char* name) {
    cublas.device().run_bound([&] {
      cublas.check(gemm(cublas.handle(), g.first_operation, g.second_operation, g.columns, g.rows, g.inner, &one,
                        right.values, g.first_stride, left.values, g.second_stride, &factor, result, g.result_stride),
                   name);
    });
  };
  if constexpr (std::is_same_v<Scalar, float>) {
    compute(cublas.api().cublasSgemm, "cublasSgemm");
  } else {
    compute(cublas.api().cublasDgemm, "cublasDgemm");
  }
}

template <class Scalar>
void multiply_batch(const Cublas& cublas, const BatchOfProducts& batch, const Factor<Scalar>& left,
                    const Factor<Scalar>& right, Scalar* result, std::int64_t stride) {
  const Gemm<Scalar> g(left, right, stride);
  const Scalar one{1}, zero{0};
  const auto compute = [&](const auto& gemm, const char* name) {
    for_each_call(batch, [&](std::int64_t k, const BatchCalls& calls) {
      cublas.check(
          gemm(cublas.handle(), g.first_operation, g.second_operation, g.columns, g.rows, g.inner, &one,
               right.values + k * calls.outer(batch.right), g.first_stride, calls.inner(batch.right),
               left.values + k * calls.outer(batch.left), g.second_stride, calls.inner(batch.left), &zero,
               result + k * calls.outer(batch.result), g.result_stride, calls.inner(batch.result), calls.products()),
          name);
    });
  };
  cublas.device().run_bound([&] {
    if constexpr (std::is_same_v<Scalar, float>) {
      compute(cublas.api().cublasSgemmStridedBatched, "cublasSgemmStridedBatched");
    } else {
      compute(cublas.api().cublasDgemmStridedBatched, "cublasDgemmStridedBatched");
    }
  });
}

void multiply_halves(const Cublas& cublas, DType half, const Factor<HalfBits>& left, const Factor<HalfBits>& right,
                     bool add, float* result, std::int64_t stride) {
  const Gemm<HalfBits> g(left, right, stride);
  const float one = 1, factor = add ? 1 : 0;
  const cudaDataType_t type = cublas_type_of(half);
  cublas.device().run_bound([&] {
    cublas.check(
        cublas.api().cublasGemmEx(cublas.handle(), g.first_operation, g.second_operation, g.columns, g.rows, g.inner,
                                  &one, right.values, type, g.first_stride, left.values, type, g.second_stride, &factor,
                                  result, CUDA_R_32F, g.result_stride, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
  });
}

void multiply_batch_of_halves(const Cublas& cublas, DType half, const BatchOfProducts& batch,
                              const Factor<HalfBits>& left, const Factor<HalfBits>& right, float* result,
                              std::int64_t stride) {
  const Gemm<HalfBits> g(left, right, stride);
  const float one = 1, zero = 0;
  const cudaDataType_t type = cublas_type_of(half);
  cublas.device().run_bound([&] {
    for_each_call(batch, [&](std::int64_t k, const BatchCalls& calls) {
      cublas.check(cublas.api().cublasGemmStridedBatchedEx(
                       cublas.handle(), g.first_operation, g.second_operation, g.columns, g.rows, g.inner, &one,
                       right.values + k * calls.outer(batch.right), type, g.first_stride, calls.inner(batch.right),
                       left.values + k * calls.outer(batch.left), type, g.second_stride, calls.inner(batch.left), &zero,
                       result + k * calls.outer(batch.result), CUDA_R_32F, g.result_stride, calls.inner(batch.result),
                       calls.products(), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                   "cublasGemmStridedBatchedEx");
    });
  });
}

template void multiply(const Cublas&, const Factor<float>&, const Factor<float>&, bool, float*, std::int64_t);
template void multiply(const Cublas&, const Factor<double>&, const Factor<double>&, bool, double*, std::int64_t);
template void multiply_batch(const Cublas&, const BatchOfProducts&, const Factor<float>&, const Factor<float>&, float*,
                             std::int64_t);
template void multiply_batch(const Cublas&, const BatchOfProducts&, const Factor<double>&, const Factor<double>&,
                             double*, std::int64_t);

}  // namespace farandole::trainer::cuda
