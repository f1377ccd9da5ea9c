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
  // A call computes the products of all samples for a head, or of all heads for a sample: whatever takes fewer calls.
  const bool by_head = batch.heads <= batch.samples;
  const auto outer = [by_head](const BatchOfProducts::Steps& steps) { return by_head ? steps.head : steps.sample; };
  const auto inner = [by_head](const BatchOfProducts::Steps& steps) { return by_head ? steps.sample : steps.head; };
  const auto compute = [&](const auto& gemm, const char* name) {
    for (std::int64_t k = 0; k < (by_head ? batch.heads : batch.samples); ++k) {
      cublas.check(gemm(cublas.handle(), g.first_operation, g.second_operation, g.columns, g.rows, g.inner, &one,
                        right.values + k * outer(batch.right), g.first_stride, inner(batch.right),
                        left.values + k * outer(batch.left), g.second_stride, inner(batch.left), &zero,
                        result + k * outer(batch.result), g.result_stride, inner(batch.result),
                        checked_extent(by_head ? batch.samples : batch.heads)),
                   name);
    }
  };
  cublas.device().run_bound([&] {
    if constexpr (std::is_same_v<Scalar, float>) {
      compute(cublas.api().cublasSgemmStridedBatched, "cublasSgemmStridedBatched");
    } else {
      compute(cublas.api().cublasDgemmStridedBatched, "cublasDgemmStridedBatched");
    }
  });
}

template void multiply(const Cublas&, const Factor<float>&, const Factor<float>&, bool, float*, std::int64_t);
template void multiply(const Cublas&, const Factor<double>&, const Factor<double>&, bool, double*, std::int64_t);
template void multiply_batch(const Cublas&, const BatchOfProducts&, const Factor<float>&, const Factor<float>&, float*,
                             std::int64_t);
template void multiply_batch(const Cublas&, const BatchOfProducts&, const Factor<double>&, const Factor<double>&,
                             double*, std::int64_t);

}  // namespace farandole::trainer::cuda
