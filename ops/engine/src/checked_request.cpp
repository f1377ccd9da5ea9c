// SPDX-License-Identifier: Apache-2.0
#include "checked_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace farandole {
namespace {

[[noreturn]] void refuse(const RequestSpec& spec, const std::string& why) {
  throw InvalidArgument(describe(spec) + ": " + why);
}

bool has_new_shape(RequestKind kind) {
  return kind == RequestKind::kAllgather || kind == RequestKind::kAlltoall || kind == RequestKind::kReduceScatter;
}

bool reduces(RequestKind kind) {
  return kind == RequestKind::kAllreduce || kind == RequestKind::kReduceScatter;
}

LocalTensor copy_of(const farandole_tensor& from, const RequestSpec& spec) {
  if (from.dtype < FARANDOLE_BOOL || from.dtype > FARANDOLE_F64) {
    refuse(spec, fmt::format("dtype {} is none of farandole_dtype", static_cast<int>(from.dtype)));
  }
  LocalTensor tensor;
  tensor.dtype = static_cast<DType>(from.dtype);
  if (from.dimensions > 0) tensor.shape.assign(from.shape, from.shape + from.dimensions);
  if (from.splits != nullptr) tensor.splits.assign(from.splits, from.splits + from.splits_count);
  tensor.input = from.input;
  tensor.output = from.output;
  tensor.context = from.context;
  tensor.allocate = from.allocate;
  tensor.done = from.done;
  return tensor;
}

void check_memory(const LocalTensor& tensor, const RequestSpec& spec) {
  if (std::any_of(tensor.shape.begin(), tensor.shape.end(), [](std::int64_t length) { return length < 0; })) {
    refuse(spec, fmt::format("a dimension of shape [{}] is negative", fmt::join(tensor.shape, ", ")));
  }
  const bool is_empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
  if (has_new_shape(spec.kind)) {
    if (tensor.shape.empty()) refuse(spec, "needs at least one dimension; this tensor is a scalar");
    if (tensor.allocate == nullptr) refuse(spec, "needs the callback `allocate` for its output");
  } else if (spec.kind == RequestKind::kBarrier) {
    return;
  } else if (tensor.output == nullptr && !is_empty) {
    refuse(spec, "needs memory for its output");
  }
  if (tensor.input == nullptr && !is_empty) refuse(spec, "has elements, but its input is NULL");
}

void check_splits(const LocalTensor& tensor, const RequestSpec& spec, std::size_t size) {
  if (tensor.splits.empty()) {
    if (tensor.rows() % static_cast<std::int64_t>(size) == 0) return;
    refuse(spec, fmt::format("{} rows can not be dealt out equally to {} ranks; pass splits", tensor.rows(), size));
  }
  const bool fits = tensor.splits.size() == size &&
                    std::all_of(tensor.splits.begin(), tensor.splits.end(), [](auto rows) { return rows >= 0; }) &&
                    std::accumulate(tensor.splits.begin(), tensor.splits.end(), std::int64_t{0}) == tensor.rows();
  if (!fits) {
    refuse(spec, fmt::format("splits [{}] must be {} numbers, none negative, with the sum {} (the rows of the tensor)",
                             fmt::join(tensor.splits, ", "), size, tensor.rows()));
  }
}

/// Fields that came later are there if the caller's structure reaches to their end.
template <class Field>
bool has_field(const farandole_request& request, const Field& field) {
  const auto* const end = reinterpret_cast<const std::byte*>(&field) + sizeof field;
  return request.struct_bytes >= static_cast<std::size_t>(end - reinterpret_cast<const std::byte*>(&request));
}

std::uint64_t generation_of(const farandole_request& request) {
  return has_field(request, request.generation) ? request.generation : 0;
}

Waiting waiting_of(const farandole_request& request) {
  if (request.caller_waits == FARANDOLE_NOBODY_WAITS) return Waiting::kNobody;
  return request.caller_waits == FARANDOLE_PROGRAM_WAITS ? Waiting::kProgram : Waiting::kCaller;
}

bool is_by_order(const farandole_request& request) {
  return has_field(request, request.by_order) && request.by_order != 0;
}

void check_reduction(const RequestSpec& spec) {
  if (std::isnan(spec.prescale) || std::isnan(spec.postscale)) refuse(spec, "factors must be numbers, not NaN");
  if (spec.adasum && spec.kind != RequestKind::kAllreduce) refuse(spec, "adasum is for allreduce only");
  const bool needs_numbers = spec.op == ReduceOp::kAverage || spec.prescale != 1.0 || spec.postscale != 1.0;
  for (const TensorSpec& tensor : spec.tensors) {
    if (spec.adasum && !is_floating_point(tensor.dtype)) {
      refuse(spec, fmt::format("adasum needs a floating-point type, not {}; use sum or average", name(tensor.dtype)));
    }
    if (needs_numbers && tensor.dtype == DType::kBool) {
      refuse(spec, "averages and factors need numbers, not bool; use max (or), min (and), or a type of numbers");
    }
  }
}

int root_in_set(const farandole_request& request, const RequestSpec& spec, const std::vector<int>& ranks) {
  const auto found = std::find(ranks.begin(), ranks.end(), request.root);
  if (found == ranks.end()) {
    refuse(spec, fmt::format("root {} is none of the ranks [{}] of process set {}", request.root,
                             fmt::join(ranks, ", "), request.process_set));
  }
  return static_cast<int>(found - ranks.begin());
}

}  // namespace

LocalRequest checked_request(const farandole_request& request, const std::vector<int>& ranks) {
  LocalRequest checked;
  RequestSpec& spec = checked.spec;
  if (request.name == nullptr || *request.name == '\0') throw InvalidArgument("a request needs a name");
  spec.name = request.name;
  if (request.collective < FARANDOLE_ALLREDUCE || request.collective > FARANDOLE_BARRIER) {
    throw InvalidArgument(fmt::format("request '{}': collective {} is none of farandole_collective", spec.name,
                                      static_cast<int>(request.collective)));
  }
  spec.kind = static_cast<RequestKind>(request.collective);
  if (has_field(request, request.about) && request.about != nullptr) spec.about = request.about;
  spec.by_order = is_by_order(request);
  if (request.tensor_count < 1 || request.tensors == nullptr) refuse(spec, "has no tensors; it needs at least one");
  if (reduces(spec.kind)) {
    if (request.op < FARANDOLE_SUM || request.op > FARANDOLE_ADASUM) {
      refuse(spec, fmt::format("op {} is none of farandole_reduce_op", static_cast<int>(request.op)));
    }
    spec.adasum = request.op == FARANDOLE_ADASUM;
    if (!spec.adasum) spec.op = static_cast<ReduceOp>(request.op);
    spec.prescale = request.prescale;
    spec.postscale = request.postscale;
  }
  if (spec.kind == RequestKind::kBroadcast) spec.root = root_in_set(request, spec, ranks);
  for (int i = 0; i < request.tensor_count; ++i) {
    LocalTensor tensor = copy_of(request.tensors[i], spec);
    check_memory(tensor, spec);
    if (spec.kind == RequestKind::kAlltoall) check_splits(tensor, spec, ranks.size());
    const bool first_differs = spec.kind == RequestKind::kAllgather || spec.kind == RequestKind::kAlltoall;
    TensorSpec& compared = spec.tensors.emplace_back();
    compared.dtype = tensor.dtype;
    compared.shape.assign(tensor.shape.begin() + (first_differs ? 1 : 0), tensor.shape.end());
    checked.tensors.push_back(std::move(tensor));
  }
  check_reduction(spec);
  checked.process_set = request.process_set;
  checked.waiting = waiting_of(request);
  checked.generation = generation_of(request);
  return checked;
}

LocalRequest refusal_of(const farandole_request& request, const std::string& why) {
  LocalRequest refusal;
  if (request.name != nullptr) refusal.spec.name = request.name;
  refusal.spec.kind = RequestKind::kRefused;
  refusal.spec.about = why;
  refusal.spec.by_order = is_by_order(request);
  refusal.process_set = request.process_set;
  refusal.generation = generation_of(request);
  refusal.tensors.emplace_back();
  return refusal;
}

}  // namespace farandole
