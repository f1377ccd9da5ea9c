// SPDX-License-Identifier: Apache-2.0
// The sum of sparse tensors over all ranks.
#include <c10/util/StringUtil.h>

#include <numeric>
#include <vector>

#include "call_start.h"

namespace farandole_torch {
namespace {

/// Joins all ranks' rows in the order of ranks. @param rows  numbers of rows by rank
at::Tensor gather_rows(farandole_comm* comm, const at::Tensor& own, const std::vector<int64_t>& rows) {
  std::vector<int64_t> shape = own.sizes().vec();
  shape[0] = 1;
  const auto row = static_cast<size_t>(c10::multiply_integers(shape)) * elements_per_number(own);
  shape[0] = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  at::Tensor all = at::empty(shape, own.options());
  std::vector<size_t> counts;
  for (const int64_t of_rank : rows) counts.push_back(static_cast<size_t>(of_rank) * row);
  const Elements from = elements_of(own);
  call(farandole_allgather, comm, from.data, from.count, elements_of(all).data, counts.data(), from.dtype, nullptr,
       nullptr);
  return all;
}

}  // namespace

/// Gathers the indices and values of all ranks, and adds up the values of each index.
c10::intrusive_ptr<c10d::Work> FarandoleBackend::allreduce_sparse(Tensors& tensors,
                                                                  const c10d::AllreduceOptions& options) {
  constexpr const char* kWhat = "all_reduce of a sparse tensor";
  at::Tensor& tensor = only(tensors, kWhat);
  if (options.reduceOp.op_ != c10d::ReduceOp::SUM || tensor.layout() != at::kSparse || !tensor.is_cpu()) {
    throw_error(FARANDOLE_INVALID_ARGUMENT, c10::str(kWhat, ": expected a sum of tensors in COO format on the CPU"));
  }
  const at::Tensor mine = tensor.coalesce();
  std::vector<int64_t> rows(static_cast<size_t>(size_));
  const int64_t own_rows = mine._values().size(0);
  Start start(*this, Mode{false}, c10d::OpType::_ALLREDUCE_SPARSE, "farandole:all_reduce", {}, {});
  call(farandole_allgather, start.comm(), &own_rows, size_t{1}, rows.data(), nullptr, FARANDOLE_I64, start.options(),
       start.handle());
  // A row for each value, so that the ranks' rows follow each other in memory.
  const at::Tensor indices = mine._indices().t().contiguous();
  const at::Tensor all_indices = gather_rows(start.comm(), indices, rows);
  const at::Tensor all_values = gather_rows(start.comm(), mine._values().contiguous(), rows);
  const at::NoGradGuard no_grad;
  tensor.copy_(at::sparse_coo_tensor(all_indices.t(), all_values, tensor.sizes(), tensor.options()).coalesce());
  return start.launch();
}

}  // namespace farandole_torch
