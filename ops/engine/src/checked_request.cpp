// SPDX-License-Identifier: Apache-2.0
#include "checked_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "farandole/internal/c_interface.h"
#include "farandole/internal/memory_range.h"

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

constexpr std::size_t kMaxTextBytes = 1 << 20;
constexpr std::int32_t kMaxDimensions = 255;

/// Returns the text, cut off after kMaxTextBytes + 1 bytes, so that callers recognise a text that is too long; empty
/// for null.
std::string_view limited_text(const char* text) {
  return text == nullptr ? std::string_view() : std::string_view(text, strnlen(text, kMaxTextBytes + 1));
}

/// The request's name; empty for a missing name and for a name that is too long.
std::string_view name_of(const farandole_request& request) {
  const std::string_view name = limited_text(request.name);
  return name.size() > kMaxTextBytes ? std::string_view() : name;
}

/// Throws unless there are no splits or one per rank. Reads at most `size` splits, whatever `splits_count` says.
void check_splits_count(const farandole_tensor& from, const RequestSpec& spec, std::size_t size) {
  if (from.splits == nullptr) {
    if (from.splits_count == 0) return;
    refuse(spec, fmt::format("splits_count is {}, but splits is NULL", from.splits_count));
  }
  if (from.splits_count >= 0 && static_cast<std::size_t>(from.splits_count) == size) return;
  const auto shown = std::min(static_cast<std::size_t>(std::max(from.splits_count, 0)), size);
  refuse(spec, fmt::format("splits [{}], {} in all, must be {} numbers, one for each rank of the process set",
                           fmt::join(from.splits, from.splits + shown, ", "), from.splits_count, size));
}

void check_pointers(const farandole_tensor& from, const RequestSpec& spec, std::size_t size) {
  if (from.done == nullptr) refuse(spec, "needs the callback `done`; it is NULL");
  if (from.dimensions < 0 || from.dimensions > kMaxDimensions) {
    refuse(spec, fmt::format("dimensions is {}; a tensor has 0 to {}", from.dimensions, kMaxDimensions));
  }
  if (from.shape == nullptr && from.dimensions > 0) {
    refuse(spec, fmt::format("has {} dimensions, but its shape is NULL", from.dimensions));
  }
  if (spec.kind == RequestKind::kAlltoall) check_splits_count(from, spec, size);
}

MemorySpace space_of(const farandole_tensor& from, const RequestSpec& spec) {
  const int memory = number_in(from.memory);
  if (memory == FARANDOLE_HOST_MEMORY) return {};
  if (memory != FARANDOLE_CUDA_MEMORY) refuse(spec, fmt::format("memory {} is none of farandole_memory", memory));
  if (from.device < 0 || from.device > std::numeric_limits<std::uint16_t>::max()) {
    refuse(spec, fmt::format("device {} is no device's number", from.device));
  }
  return {MemoryKind::kCuda, static_cast<std::uint16_t>(from.device)};
}

LocalTensor checked_copy(const farandole_tensor& from, const RequestSpec& spec, std::size_t size) {
  const int dtype = number_in(from.dtype);
  if (dtype < FARANDOLE_BOOL || dtype > FARANDOLE_U64) {
    refuse(spec, fmt::format("dtype {} is none of farandole_dtype", dtype));
  }
  check_pointers(from, spec, size);
  LocalTensor tensor;
  tensor.dtype = static_cast<DType>(dtype);
  if (from.dimensions > 0) tensor.shape.assign(from.shape, from.shape + from.dimensions);
  if (spec.kind == RequestKind::kAlltoall && from.splits != nullptr) {
    tensor.splits.assign(from.splits, from.splits + from.splits_count);
  }
  tensor.space = space_of(from, spec);
  if (!tensor.space.is_host()) {
    // 2 is CUDA's handle cudaStreamPerThread, which would be another stream in the engine's thread.
    if (from.stream == reinterpret_cast<void*>(2)) {
      refuse(spec,
             "the stream is cudaStreamPerThread, which is another stream in each thread; pass a stream of your own");
    }
    tensor.stream = StreamView(from.stream, tensor.space);
    tensor.ready_handle = from.ready_event;
  }
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
  if (!is_possible(tensor.dtype, tensor.shape)) {
    refuse(spec, fmt::format("{} of shape [{}] would take more than {} bytes, which no process has room for",
                             name(tensor.dtype), fmt::join(tensor.shape, ", "), kMaxTensorBytes));
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

/// True if no part is negative and the sum of the parts is `total`. Subtracts from `total`, because adding the parts
/// could overflow.
bool sum_is(const std::vector<std::int64_t>& parts, std::int64_t total) {
  for (const std::int64_t part : parts) {
    if (part < 0 || part > total) return false;
    total -= part;
  }
  return total == 0;
}

void check_splits(const LocalTensor& tensor, const RequestSpec& spec, std::size_t size) {
  if (tensor.splits.empty()) {
    if (tensor.rows() % static_cast<std::int64_t>(size) == 0) return;
    refuse(spec, fmt::format("{} rows cannot be dealt out equally to {} ranks; pass splits", tensor.rows(), size));
  }
  if (!sum_is(tensor.splits, tensor.rows())) {
    refuse(spec, fmt::format("splits [{}] must be {} numbers, none negative, with the sum {} (the rows of the tensor)",
                             fmt::join(tensor.splits, ", "), size, tensor.rows()));
  }
}

Waiting waiting_of(const farandole_request& request, const RequestSpec& spec) {
  switch (request.caller_waits) {
    case FARANDOLE_NOBODY_WAITS:
      return Waiting::kNobody;
    case FARANDOLE_CALLER_WAITS:
      return Waiting::kCaller;
    case FARANDOLE_PROGRAM_WAITS:
      return Waiting::kProgram;
    default:
      refuse(spec, fmt::format("caller_waits {} is none of farandole_waiting", request.caller_waits));
  }
}

double factor_of(double factor, const farandole_request& request) {
  return factor == 0.0 && request.has_factors == 0 ? 1.0 : factor;
}

void check_reduction(const RequestSpec& spec) {
  if (std::isnan(spec.prescale) || std::isnan(spec.postscale)) refuse(spec, "factors must be numbers, not NaN");
  if (spec.adasum && spec.kind != RequestKind::kAllreduce) refuse(spec, "adasum is for allreduce only");
  const bool has_factors = spec.prescale != 1.0 || spec.postscale != 1.0;
  if (is_bitwise(spec.op) && has_factors) {
    refuse(spec, fmt::format("{} takes no factors; leave prescale and postscale at 1", name(spec.op)));
  }
  const bool needs_numbers = spec.op == ReduceOp::kAverage || has_factors;
  for (const TensorSpec& tensor : spec.tensors) {
    if (spec.adasum && !is_floating_point(tensor.dtype)) {
      refuse(spec, fmt::format("adasum needs a floating-point type, not {}; use sum or average", name(tensor.dtype)));
    }
    if (is_bitwise(spec.op) && !is_defined(spec.op, tensor.dtype)) {
      refuse(spec, fmt::format("there is no {} of {}; use an integer type or bool", name(spec.op), name(tensor.dtype)));
    }
    if (needs_numbers && tensor.dtype == DType::kBool) {
      refuse(spec, "averages and factors need numbers, not bool; use max (or), min (and), or a type of numbers");
    }
  }
}

/// Input or output memory of a tensor of a request.
struct TensorMemory {
  MemoryRange range;
  std::size_t tensor;
  bool is_output;
};

std::string describe(const TensorMemory& memory) {
  return fmt::format("the {} of tensor {} {}", memory.is_output ? "output" : "input", memory.tensor,
                     describe(memory.range));
}

/// Returns all memory that the request's collectives read or write, ascending. If input and output of a tensor are the
/// same memory, it is listed once.
std::vector<TensorMemory> memory_of(const LocalRequest& request) {
  std::vector<TensorMemory> all;
  for (std::size_t i = 0; i < request.tensors.size(); ++i) {
    const LocalTensor& tensor = request.tensors[i];
    const std::size_t bytes = request.spec.tensors[i].size_in_bytes();
    if (bytes == 0) continue;
    all.push_back({MemoryRange(tensor.output, bytes), i, true});
    if (tensor.input != tensor.output) all.push_back({MemoryRange(tensor.input, bytes), i, false});
  }
  std::sort(all.begin(), all.end(),
            [](const TensorMemory& a, const TensorMemory& b) { return a.range.begin < b.range.begin; });
  if (request.spec.kind == RequestKind::kBroadcast) {
    // Several tensors may share one output: a variable that is listed twice receives the same values twice.
    const auto is_same = [](const TensorMemory& a, const TensorMemory& b) {
      return a.range == b.range && a.is_output && b.is_output;
    };
    all.erase(std::unique(all.begin(), all.end(), is_same), all.end());
  }
  return all;
}

/// Throws if an output overlaps other memory of the request, because the collective would write the output while it may
/// still read the other memory. Sweeps the ranges in ascending order: compares each output with the earlier range that
/// reaches furthest, and each input with the earlier output that reaches furthest.
void check_overlaps(const LocalRequest& request) {
  if (request.spec.kind != RequestKind::kAllreduce && request.spec.kind != RequestKind::kBroadcast) return;
  const TensorMemory* furthest = nullptr;  // range before `each` with the highest end
  const TensorMemory* furthest_output = nullptr;
  const std::vector<TensorMemory> all = memory_of(request);
  for (const TensorMemory& each : all) {
    const TensorMemory* const before = each.is_output ? furthest : furthest_output;
    if (before != nullptr && overlap(before->range, each.range)) {
      refuse(request.spec,
             fmt::format("{} overlaps {}; an output may be the input of its own tensor, and must be apart "
                         "from all other memory of the request",
                         describe(each), describe(*before)));
    }
    if (furthest == nullptr || each.range.end() > furthest->range.end()) furthest = &each;
    if (each.is_output && (furthest_output == nullptr || each.range.end() > furthest_output->range.end()))
      furthest_output = &each;
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

/// Checks and translates the request, except its tensors.
RequestSpec spec_of(const farandole_request& request, const std::vector<int>& ranks) {
  RequestSpec spec;
  spec.name = name_of(request);
  if (spec.name.empty()) throw InvalidArgument(fmt::format("a request needs a name of 1 to {} bytes", kMaxTextBytes));
  const int collective = number_in(request.collective);
  if (collective < FARANDOLE_ALLREDUCE || collective > FARANDOLE_BARRIER) {
    throw InvalidArgument(
        fmt::format("request '{}': collective {} is none of farandole_collective", spec.name, collective));
  }
  spec.kind = static_cast<RequestKind>(collective);
  spec.by_order = request.by_order != 0;
  const std::string_view about = limited_text(request.about);
  if (about.size() > kMaxTextBytes) refuse(spec, fmt::format("`about` has more than {} bytes", kMaxTextBytes));
  spec.about = about;
  if (reduces(spec.kind)) {
    const int op = number_in(request.op);
    if (op < FARANDOLE_SUM || op > FARANDOLE_BIT_XOR) {
      refuse(spec, fmt::format("op {} is none of farandole_reduce_op", op));
    }
    spec.adasum = op == FARANDOLE_ADASUM;
    if (!spec.adasum) spec.op = static_cast<ReduceOp>(op);
    spec.prescale = factor_of(request.prescale, request);
    spec.postscale = factor_of(request.postscale, request);
  }
  if (spec.kind == RequestKind::kBroadcast) spec.root = root_in_set(request, spec, ranks);
  return spec;
}

}  // namespace

farandole_request known_request(const farandole_request* request) {
  if (request == nullptr) throw InvalidArgument("the request is NULL");
  const std::size_t bytes = struct_bytes_of(request);
  if (!can_be_struct_bytes<farandole_request>(bytes))
    throw InvalidArgument(not_struct_bytes(bytes, "farandole_request"));
  return known_part<farandole_request>(request, bytes);
}

LocalRequest checked_request(const farandole_request& request, const std::vector<int>& ranks) {
  LocalRequest checked;
  checked.spec = spec_of(request, ranks);
  RequestSpec& spec = checked.spec;
  if (request.tensor_count < 1 || request.tensors == nullptr) refuse(spec, "has no tensors; it needs at least one");
  const std::size_t struct_bytes = struct_bytes_of(request.tensors);
  if (!can_be_struct_bytes<farandole_tensor>(struct_bytes)) {
    refuse(spec, not_struct_bytes(struct_bytes, "farandole_tensor"));
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(request.tensor_count); ++i) {
    const void* const element = element_of(request.tensors, struct_bytes, i);
    if (struct_bytes_of(element) != struct_bytes) {
      refuse(spec, fmt::format("struct_bytes of tensor {} is {}, that of the first one {}; they must be the same", i,
                               struct_bytes_of(element), struct_bytes));
    }
    LocalTensor tensor = checked_copy(known_part<farandole_tensor>(element, struct_bytes), spec, ranks.size());
    check_memory(tensor, spec);
    if (spec.kind == RequestKind::kAlltoall) check_splits(tensor, spec, ranks.size());
    const bool first_differs = spec.kind == RequestKind::kAllgather || spec.kind == RequestKind::kAlltoall;
    TensorSpec& compared = spec.tensors.emplace_back();
    compared.dtype = tensor.dtype;
    compared.memory = tensor.space.kind;
    compared.shape.assign(tensor.shape.begin() + (first_differs ? 1 : 0), tensor.shape.end());
    checked.tensors.push_back(std::move(tensor));
  }
  check_reduction(spec);
  check_overlaps(checked);
  checked.process_set = request.process_set;
  checked.waiting = waiting_of(request, spec);
  checked.generation = request.generation;
  return checked;
}

LocalRequest refusal_of(const farandole_request& request, std::string_view why) {
  LocalRequest refusal;
  refusal.spec.name = name_of(request);
  refusal.spec.kind = RequestKind::kRefused;
  refusal.spec.about = why.substr(0, kMaxTextBytes);
  refusal.spec.by_order = request.by_order != 0;
  refusal.process_set = request.process_set;
  refusal.generation = request.generation;
  refusal.tensors.emplace_back();
  return refusal;
}

}  // namespace farandole
