// SPDX-License-Identifier: Apache-2.0
#include "communicator/validate.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "farandole/collectives/algorithms.h"
#include "farandole/core/error.h"
#include "farandole/internal/memory_range.h"
#include "farandole/internal/shared_memory.h"
#include "farandole/internal/view_address.h"

namespace farandole {
namespace {

void require_entries(std::string_view what, std::span<const std::size_t> counts, std::size_t size) {
  if (!counts.empty() && counts.size() != size) {
    throw InvalidArgument(fmt::format("{}: expected {} entries, got {}", what, size, counts.size()));
  }
}

void require_count(std::string_view what, std::size_t expected, std::size_t actual) {
  if (expected != actual)
    throw InvalidArgument(fmt::format("{}: expected {} elements, got {}", what, expected, actual));
}

void require_memory(std::string_view what, const void* data, std::size_t count) {
  if (data == nullptr && count > 0) {
    throw InvalidArgument(fmt::format("{}: the address is null, but there are {} elements", what, count));
  }
}

void require_address_in(const Call& call, const DeviceRuntime& runtime, const SharedMemory& windows,
                        std::string_view what, const ConstBufferView& view) {
  // Windows are known to be host memory. Do not ask the driver, which takes a lock for each query.
  if (view.space.is_host() && windows.offset_of(view.data, view.size_in_bytes())) return;
  const std::string problem = address_problem(runtime, what, view);
  if (!problem.empty()) throw InvalidArgument(fmt::format("{}: {}", name(call.collective), problem));
}

/// Requires that the call's stream is not being captured. A call that is not enqueued directly takes its place in the
/// order of calls when it is made; the launch of a graph has no such place.
void require_no_capture(const Call& call, Device& device) {
  const StreamView stream = call.stream.valid() ? call.stream : StreamView(nullptr, device.space());
  if (!device.is_capturing(stream)) return;
  if (!call.stream.valid()) {
    throw InvalidArgument(
        fmt::format("{}: work of the device's default stream is captured into a graph: end the capture "
                    "before the call, or pass a stream that is not captured",
                    name(call.collective)));
  }
  throw InvalidArgument(fmt::format(
      "{}: the stream is captured into a graph, where this call cannot be: end the capture before the call, or "
      "make blocking calls of a communicator in the caller's device order (DeviceOrder::kCaller)",
      name(call.collective)));
}

[[noreturn]] void refuse_space(const Call& call, std::string_view what, MemorySpace space,
                               const std::string& expected) {
  throw InvalidArgument(
      fmt::format("{}: expected {} in {}, got {}", name(call.collective), what, expected, describe(space)));
}

/// Checks that all buffers of a call are in host memory, or all in the memory of this rank's device.
void validate_spaces(const PreparedCall& prepared, DeviceSlot& devices, bool may_be_captured) {
  const Call& call = prepared.call;
  if (call.input.count > 0 && call.output.count > 0 && call.output.space != call.input.space) {
    refuse_space(call, "output", call.output.space, describe(call.input.space) + ", where the input is");
  }
  const MemorySpace space = prepared.space;
  if (!space.is_host()) {
    const MemorySpace own = devices.context().space();
    const auto describe_own = [&] { return describe(own) + ", the device of this rank"; };
    if (space != own) refuse_space(call, "buffers", space, describe_own());
    if (call.stream.valid() && call.stream.space != own) {
      refuse_space(call, "a stream", call.stream.space, describe_own());
    }
    if (!may_be_captured) require_no_capture(call, devices.context().device());
  } else if (call.stream.valid()) {
    refuse_space(call, "buffers", space, describe(call.stream.space) + ", where the stream is");
  }
  const DeviceRuntime* const runtime = DeviceContext::opened();
  if (runtime == nullptr) return;
  const SharedMemory& windows = devices.group().endpoint->memory();
  require_address_in(call, *runtime, windows, "input", call.input);
  const bool is_in_place = call.output.data == call.input.data && call.output.space == call.input.space &&
                           call.output.count == call.input.count && call.output.dtype == call.input.dtype;
  if (!is_in_place) require_address_in(call, *runtime, windows, "output", call.output);
}

bool has_segments(Collective collective) {
  const auto table = algorithms();
  return std::any_of(table.begin(), table.end(), [&](const Algorithm& algorithm) {
    return algorithm.collective == collective && algorithm.pipelined;
  });
}

/// One field of CallOptions that some collectives do not use. `algorithm` has no row: every collective uses it.
struct OptionRule {
  std::string_view field;
  bool (*is_set)(const Call& call);
  bool (*is_used_by)(Collective collective);
};
constexpr std::array kOptionRules{
    OptionRule{"segments", [](const Call& call) { return call.segments != 0; }, has_segments},
    OptionRule{"prescale", [](const Call& call) { return call.prescale != 1.0; }, reduces},
    OptionRule{"postscale", [](const Call& call) { return call.postscale != 1.0; }, reduces},
    OptionRule{"stream", [](const Call& call) { return call.stream.valid(); },
               [](Collective collective) { return collective != Collective::kBarrier; }},
};

[[noreturn]] void refuse_option(const Call& call, const OptionRule& rule) {
  std::string users;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (rule.is_used_by(collective)) users += fmt::format("{}{}", users.empty() ? "" : ", ", name(collective));
  }
  throw InvalidArgument(fmt::format("{}: the option `{}` is set, which only {} use; leave it at its default",
                                    name(call.collective), rule.field, users));
}

/// Checks that the collective uses each option that the call sets. Most calls set no option and skip the rules.
void validate_options(const Call& call) {
  const bool is_plain = call.segments == 0 && call.prescale == 1.0 && call.postscale == 1.0 && !call.stream.valid();
  if (is_plain) return;
  for (const OptionRule& rule : kOptionRules) {
    if (rule.is_set(call) && !rule.is_used_by(call.collective)) refuse_option(call, rule);
  }
  if (call.segments < 0 || call.segments > kMaxSegments) {
    throw InvalidArgument(fmt::format("{}: expected 1 to {} segments, or 0 for Farandole's choice, got {}",
                                      name(call.collective), kMaxSegments, call.segments));
  }
}

void validate_bitwise(const Call& call) {
  if (!is_defined(call.op, call.input.dtype)) {
    throw InvalidArgument(fmt::format("{}: there is no {} of {}; use an integer type or bool", name(call.collective),
                                      name(call.op), name(call.input.dtype)));
  }
  if (call.prescale != 1.0 || call.postscale != 1.0) {
    throw InvalidArgument(fmt::format("{}: the option `{}` is set, which {} does not use; leave it at its default",
                                      name(call.collective), call.prescale != 1.0 ? "prescale" : "postscale",
                                      name(call.op)));
  }
}

void validate_reduction(const Call& call) {
  if (!reduces(call.collective)) return;
  if (is_bitwise(call.op)) return validate_bitwise(call);
  if (call.input.dtype != DType::kBool) return;
  if (call.op == ReduceOp::kAverage) {
    throw InvalidArgument(
        fmt::format("{}: there is no average of bool; use max (or), min (and), or numbers", name(call.collective)));
  }
  if (call.prescale != 1.0 || call.postscale != 1.0) {
    throw InvalidArgument(
        fmt::format("{}: bool has no factors; leave them at 1, or use numbers", name(call.collective)));
  }
}

void validate_counts(const PreparedCall& prepared, int rank, bool has_input, bool has_output) {
  const Call& call = prepared.call;
  if (call.collective == Collective::kBroadcast || call.collective == Collective::kBarrier) return;
  if (call.collective == Collective::kAllreduce || call.collective == Collective::kReduce) {
    if (has_output) require_count("output", call.input.count, call.output.count);
    return;
  }
  const auto own = static_cast<std::size_t>(rank);
  const Parts& parts = prepared.parts;
  switch (call.collective) {
    case Collective::kAllgather:
    case Collective::kGather:
      require_count("input", parts[own], call.input.count);
      if (has_output) require_count("output", prepared.total, call.output.count);
      break;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      if (has_input) require_count("input", prepared.total, call.input.count);
      require_count("output", parts[own], call.output.count);
      break;
    case Collective::kAlltoall: {
      const Parts& recv_parts = prepared.recv_parts;
      require_count("input", parts.total(), call.input.count);
      require_count("output", recv_parts.total(), call.output.count);
      require_count("what this rank expects from itself", parts[own], recv_parts[own]);
      break;
    }
    default:
      break;
  }
}

/// Number of elements before the part of `rank`.
std::size_t first_of(const Parts& parts, int rank) {
  std::size_t first = 0;
  for (std::size_t before = 0; before < static_cast<std::size_t>(rank); ++before) first += parts[before];
  return first;
}

/// For a call in place: offset of the shorter buffer in the longer buffer, in elements.
std::size_t in_place_offset(const PreparedCall& prepared, int rank) {
  const Collective collective = prepared.call.collective;
  return has_parts(collective) && collective != Collective::kAlltoall ? first_of(prepared.parts, rank) : 0;
}

[[noreturn]] void refuse_overlap(const Call& call, const MemoryRange& input, const MemoryRange& output,
                                 std::uintptr_t in_place) {
  std::string remedy = "pass the same memory twice";
  if (call.collective == Collective::kAllgather || call.collective == Collective::kGather) {
    remedy = fmt::format("let the input lie at its place in the output, {:#x}", in_place);
  } else if (call.collective == Collective::kReduceScatter || call.collective == Collective::kScatter) {
    remedy = fmt::format("let the output lie at its place in the input, {:#x}", in_place);
  }
  throw InvalidArgument(fmt::format("{}: the input {} overlaps the output {}; {}, or memory apart from it",
                                    name(call.collective), describe(input), describe(output), remedy));
}

/// Checks that no memory is overwritten before it is read, by this rank or by a peer that reads this rank's memory.
void validate_overlap(const PreparedCall& prepared, int rank) {
  const Call& call = prepared.call;
  const MemoryRange input(call.input), output(ConstBufferView(call.output));
  if (overlap(input, output) && call.collective != Collective::kBroadcast) {
    const bool gathers = call.collective == Collective::kAllgather || call.collective == Collective::kGather;
    const std::size_t skipped_bytes = in_place_offset(prepared, rank) * size_in_bytes(call.input.dtype);
    const std::uintptr_t in_place = (gathers ? output : input).begin + skipped_bytes;
    if ((gathers ? input : output).begin != in_place) refuse_overlap(call, input, output, in_place);
  }
  if (!call.is_uneven()) return;
  for (const auto& counts : {call.counts, call.recv_counts}) {
    if (const MemoryRange range(counts.data(), counts.size_bytes()); overlap(range, output)) {
      throw InvalidArgument(fmt::format("{}: the counts {} overlap the output {}, which would overwrite them",
                                        name(call.collective), describe(range), describe(output)));
    }
  }
}

}  // namespace

std::string address_problem(const DeviceRuntime& runtime, std::string_view what, const ConstBufferView& view) {
  if (view.data == nullptr || view.count == 0) return {};
  const MemorySpace found = runtime.space_of(view.data);
  if (found != view.space) {
    return fmt::format("{} is said to be in {}, but its address is in {}", what, describe(view.space), describe(found));
  }
  if (view.space.is_host()) return {};
  const MemorySpace end = runtime.space_of(static_cast<const std::byte*>(view.data) + view.size_in_bytes() - 1);
  if (end != view.space) {
    return fmt::format(
        "{} has {} {} elements, which are more than there is memory at its address; expected a number of elements, not "
        "of bytes, of memory that was not freed",
        what, view.count, name(view.dtype));
  }
  // A kernel that reads a misaligned element destroys the device's context.
  if (reinterpret_cast<std::uintptr_t>(view.data) % size_in_bytes(view.dtype) != 0) {
    return fmt::format("expected {} in device memory at a multiple of {} bytes, the size of {}, got address {}", what,
                       size_in_bytes(view.dtype), name(view.dtype), view.data);
  }
  return {};
}

void validate(const PreparedCall& prepared, int rank, int size, DeviceSlot& devices, bool may_be_captured) {
  const Call& call = prepared.call;
  const bool at_root = call.root < 0 || rank == call.root;
  if (is_rooted(call.collective) && (call.root < 0 || call.root >= size)) {
    throw InvalidArgument(fmt::format("{}: root {} is not a rank of this communicator, which has 0 … {}",
                                      name(call.collective), call.root, size - 1));
  }
  const bool has_input = call.collective != Collective::kScatter || at_root;
  const bool has_output = (call.collective != Collective::kReduce && call.collective != Collective::kGather) || at_root;
  validate_options(call);
  validate_spaces(prepared, devices, may_be_captured);
  if (has_input) require_memory("input", call.input.data, call.input.count);
  if (has_output) require_memory("output", call.output.data, call.output.count);
  if (has_input && has_output && call.input.dtype != call.output.dtype) {
    throw InvalidArgument(fmt::format("{}: input is {}, output is {}; they must have the same type",
                                      name(call.collective), name(call.input.dtype), name(call.output.dtype)));
  }
  validate_reduction(call);
  require_entries("counts", call.counts, static_cast<std::size_t>(size));
  require_entries("receive counts", call.recv_counts, static_cast<std::size_t>(size));
  validate_counts(prepared, rank, has_input, has_output);
  validate_overlap(prepared, rank);
}

}  // namespace farandole
