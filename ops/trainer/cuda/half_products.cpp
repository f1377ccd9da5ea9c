// SPDX-License-Identifier: Apache-2.0
#include "half_products.h"

#include "products.h"

namespace farandole::trainer::cuda {

Factor<HalfBits> HalfProducts::narrow(Workspace::Scope& scope, const Factor<float>& first, std::int64_t samples,
                                      std::int64_t heads, const BatchOfProducts::Steps& steps) const {
  const std::int64_t stride = narrow_stride(first);
  if (first.rounded != nullptr) {
    return {static_cast<const HalfBits*>(first.rounded), first.rows, first.columns, first.transposed, stride};
  }
  const std::int64_t rows = samples * heads * first.rows;
  const std::int64_t count = rows * first.columns;
  const std::int64_t span =
      (samples - 1) * steps.sample + (heads - 1) * steps.head + (first.rows - 1) * first.row_stride() + first.columns;
  HalfBits* const narrow = scope.take<HalfBits>(static_cast<std::size_t>(rows * stride)).data();
  if (span == count && stride == first.columns && samples * heads == 1) {
    launcher_.launch(HalfKernel::kNarrow, type_, count, {writes(narrow, count), reads(first.values, count)}, {count});
  } else {
    launcher_.launch(HalfKernel::kNarrowMatrices, type_, count,
                     {writes(narrow, rows * stride), reads(first.values, span)},
                     {count, heads, first.rows, first.columns, stride, steps.sample, steps.head, first.row_stride()});
  }
  return {narrow, first.rows, first.columns, first.transposed, stride};
}

Factor<float> HalfProducts::rounded(Workspace::Scope& scope, const Factor<float>& factor) const {
  Factor<float> result = factor;
  result.rounded = narrow(scope, factor, 1, 1, {}).values;
  return result;
}

void HalfProducts::multiply(const Factor<float>& left, const Factor<float>& right, bool add, float* result,
                            std::int64_t stride) const {
  Workspace::Scope scope(workspace_);
  const Factor<HalfBits> narrow_left = narrow(scope, left, 1, 1, {}), narrow_right = narrow(scope, right, 1, 1, {});
  multiply_halves(cublas_, type_, narrow_left, narrow_right, add, result, stride);
}

void HalfProducts::multiply_batch(const BatchOfProducts& batch, const Factor<float>& left, const Factor<float>& right,
                                  float* result, std::int64_t stride) const {
  Workspace::Scope scope(workspace_);
  const auto steps = [&](const Factor<float>& factor) {
    const std::int64_t head = factor.rows * narrow_stride(factor);
    return BatchOfProducts::Steps{batch.heads * head, head};
  };
  const BatchOfProducts of_narrow{batch.samples, batch.heads, steps(left), steps(right), batch.result};
  const Factor<HalfBits> narrow_left = narrow(scope, left, batch.samples, batch.heads, batch.left);
  const Factor<HalfBits> narrow_right = narrow(scope, right, batch.samples, batch.heads, batch.right);
  multiply_batch_of_halves(cublas_, type_, of_narrow, narrow_left, narrow_right, result, stride);
}

}  // namespace farandole::trainer::cuda
