// SPDX-License-Identifier: Apache-2.0
#include "matrix_product.h"

#include <fmt/format.h>

#include <new>

#include "full_teams.h"
#include "matrix.h"
#include "onednn.h"

namespace farandole::trainer {

void multiply(const Factor<float>& left, const Factor<float>& right, bool add, float* result, std::int64_t stride) {
  const std::int64_t rows = left.transposed ? left.columns : left.rows;
  const std::int64_t inner = left.transposed ? left.rows : left.columns;
  const std::int64_t columns = right.transposed ? right.rows : right.columns;
  bound_onednn_isa();
  const FullTeams full_teams;
  const dnnl_status_t status = dnnl_sgemm(left.transposed ? 'T' : 'N', right.transposed ? 'T' : 'N', rows, columns,
                                          inner, 1.0F, left.values, left.row_stride(), right.values, right.row_stride(),
                                          add ? 1.0F : 0.0F, result, stride > 0 ? stride : columns);
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  if (status != dnnl_success) {
    throw InternalError(fmt::format("oneDNN's product of {}x{} and {}x{} failed with status {}", rows, inner, inner,
                                    columns, static_cast<int>(status)));
  }
}

void multiply(const Factor<double>& left, const Factor<double>& right, bool add, double* result, std::int64_t stride) {
  using Stride = Eigen::OuterStride<>;
  using ConstView = Eigen::Map<const RowMatrix<double>, Eigen::Unaligned, Stride>;
  const ConstView a(left.values, left.rows, left.columns, Stride(left.row_stride()));
  const ConstView b(right.values, right.rows, right.columns, Stride(right.row_stride()));
  const std::int64_t rows = left.transposed ? left.columns : left.rows;
  const std::int64_t columns = right.transposed ? right.rows : right.columns;
  Eigen::Map<RowMatrix<double>, Eigen::Unaligned, Stride> c(result, rows, columns,
                                                            Stride(stride > 0 ? stride : columns));
  if (!add) c.setZero();
  if (left.transposed) {
    c.noalias() += a.transpose() * b;
  } else if (right.transposed) {
    c.noalias() += a * b.transpose();
  } else {
    c.noalias() += a * b;
  }
}

}  // namespace farandole::trainer
