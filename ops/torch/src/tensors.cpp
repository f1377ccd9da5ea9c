// SPDX-License-Identifier: Apache-2.0
#include "tensors.h"

#include <ATen/MemoryOverlap.h>
#include <c10/util/StringUtil.h>

#include <string>

#include "errors.h"

namespace farandole_torch {
namespace {

[[noreturn]] void refuse(const char* what, const std::string& why) {
  throw_error(FARANDOLE_INVALID_ARGUMENT, c10::str(what, ": ", why));
}

/// Farandole's type of a torch type, and how many of its elements make a number.
struct TypeRow {
  at::ScalarType type;
  farandole_dtype dtype;
  size_t per_number = 1;
  bool is_reduced = true;
};

constexpr TypeRow kTypes[] = {
    {at::kBool, FARANDOLE_BOOL},
    {at::kByte, FARANDOLE_U8},
    {at::kChar, FARANDOLE_I8},
    {at::kShort, FARANDOLE_I16},
    {at::kInt, FARANDOLE_I32},
    {at::kLong, FARANDOLE_I64},
    {at::kUInt16, FARANDOLE_U16},
    {at::kUInt32, FARANDOLE_U32},
    {at::kUInt64, FARANDOLE_U64},
    {at::kHalf, FARANDOLE_F16},
    {at::kBFloat16, FARANDOLE_BF16},
    {at::kFloat, FARANDOLE_F32},
    {at::kDouble, FARANDOLE_F64},
    {at::kComplexHalf, FARANDOLE_F16, 2},
    {at::kComplexFloat, FARANDOLE_F32, 2},
    {at::kComplexDouble, FARANDOLE_F64, 2},
};

TypeRow row_of(const at::Tensor& tensor) {
  for (const TypeRow& row : kTypes) {
    if (row.type == tensor.scalar_type()) return row;
  }
  return {tensor.scalar_type(), FARANDOLE_U8, static_cast<size_t>(tensor.element_size()), false};
}

double factor_of(const c10d::ReduceOp& op) {
  // Newer versions of torch have another name, too.
  const auto* const supplement = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (supplement->tensor_factor.defined()) return supplement->tensor_factor.item<double>();
  return supplement->double_factor;
}

/// True if the tensor's memory holds its values, in the order of their indices.
bool is_in_order(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

void check(const at::Tensor& tensor, Use use, const char* what) {
  if (!tensor.defined()) refuse(what, "a tensor is undefined");
  if (tensor.layout() != at::kStrided) {
    refuse(what,
           c10::str("expected a dense tensor, got one of layout ", tensor.layout(), "; convert it with to_dense()"));
  }
  if (!tensor.is_cpu() && !tensor.is_cuda() && !(extension_has_cuda_memory && tensor.is_privateuseone())) {
    refuse(what, c10::str("expected a tensor on a CPU or a CUDA device, got one on ", tensor.device()));
  }
  if (use != Use::kInput && at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    refuse(what, c10::str("expected a tensor whose elements have memory of their own for the result, got one of sizes ",
                          tensor.sizes(), " and strides ", tensor.strides(), "; use contiguous()"));
  }
}

bool are_side_by_side(const std::vector<at::Tensor>& tensors) {
  const char* next = static_cast<const char*>(tensors.front().data_ptr());
  const auto& storage = tensors.front().storage();
  for (const at::Tensor& tensor : tensors) {
    if (!is_in_order(tensor) || tensor.data_ptr() != next || !tensor.storage().is_alias_of(storage)) return false;
    next += tensor.nbytes();
  }
  return true;
}

}  // namespace

Staged stage(const at::Tensor& tensor, Use use, const char* what) {
  check(tensor, use, what);
  at::Tensor memory = tensor;
  if (!is_in_order(tensor)) {
    const at::NoGradGuard no_grad;
    memory = at::empty(tensor.sizes(), tensor.options());
    if (use != Use::kOutput) memory.copy_(tensor);
  }
  return {tensor, memory, elements_of(memory), use};
}

Elements elements_of(const at::Tensor& tensor) {
  const TypeRow row = row_of(tensor);
  const auto count = static_cast<size_t>(tensor.numel()) * row.per_number;
  return {count == 0 ? nullptr : tensor.data_ptr(), count, row.dtype};
}

size_t elements_per_number(const at::Tensor& tensor) {
  return row_of(tensor).per_number;
}

Reduction reduction_of(const c10d::ReduceOp& op, const at::Tensor& tensor, const char* what) {
  const TypeRow row = row_of(tensor);
  if (!row.is_reduced)
    refuse(what, c10::str("there is no reduction of ", tensor.scalar_type(), "; convert the tensor"));
  const bool is_sum = op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG || op == c10d::ReduceOp::PREMUL_SUM;
  if (tensor.is_complex() && !is_sum) {
    refuse(what, "complex numbers have sums and averages only; use view_as_real for other reductions of their parts");
  }
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return {FARANDOLE_SUM};
    case c10d::ReduceOp::AVG:
      return {FARANDOLE_AVERAGE};
    case c10d::ReduceOp::PRODUCT:
      return {FARANDOLE_PRODUCT};
    case c10d::ReduceOp::MIN:
      return {FARANDOLE_MIN};
    case c10d::ReduceOp::MAX:
      return {FARANDOLE_MAX};
    case c10d::ReduceOp::BAND:
      return {FARANDOLE_BIT_AND};
    case c10d::ReduceOp::BOR:
      return {FARANDOLE_BIT_OR};
    case c10d::ReduceOp::BXOR:
      return {FARANDOLE_BIT_XOR};
    case c10d::ReduceOp::PREMUL_SUM:
      return {FARANDOLE_SUM, factor_of(op)};
    default:
      refuse(what, c10::str("unknown reduction ", static_cast<int>(op.op_)));
  }
}

at::Tensor& only(std::vector<at::Tensor>& tensors, const char* what) {
  if (tensors.size() != 1) refuse(what, c10::str("expected one tensor, got ", tensors.size()));
  return tensors.front();
}

at::Tensor joined(const std::vector<at::Tensor>& tensors, Use use, const char* what) {
  if (tensors.empty()) refuse(what, "a list of tensors is empty");
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    check(tensor, use, what);
    if (tensor.scalar_type() != tensors.front().scalar_type() || tensor.device() != tensors.front().device()) {
      refuse(what, c10::str("the tensors of a list differ: one is ", tensors.front().scalar_type(), " on ",
                            tensors.front().device(), ", one is ", tensor.scalar_type(), " on ", tensor.device()));
    }
    count += tensor.numel();
  }
  if (are_side_by_side(tensors)) {
    return at::empty({0}, tensors.front().options())
        .set_(tensors.front().storage(), tensors.front().storage_offset(), {count}, {1});
  }
  at::Tensor whole = at::empty({count}, tensors.front().options());
  if (use == Use::kOutput) return whole;
  const at::NoGradGuard no_grad;
  int64_t first = 0;
  for (const at::Tensor& tensor : tensors) {
    whole.narrow(0, first, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    first += tensor.numel();
  }
  return whole;
}

void divide(const at::Tensor& whole, std::vector<at::Tensor>& tensors) {
  if (whole.numel() > 0 && whole.storage().is_alias_of(tensors.front().storage())) return;
  const at::NoGradGuard no_grad;
  int64_t first = 0;
  for (at::Tensor& tensor : tensors) {
    tensor.copy_(whole.narrow(0, first, tensor.numel()).view(tensor.sizes()));
    first += tensor.numel();
  }
}

std::vector<size_t> counts_of(const std::vector<at::Tensor>& tensors) {
  std::vector<size_t> counts;
  for (const at::Tensor& tensor : tensors) {
    counts.push_back(static_cast<size_t>(tensor.numel()) * elements_per_number(tensor));
  }
  return counts;
}

}  // namespace farandole_torch
