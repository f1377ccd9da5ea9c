// SPDX-License-Identifier: Apache-2.0
#include "operation/call.h"

#include <fmt/core.h>

#include <bit>
#include <numeric>
#include <string_view>

#include "farandole/core/error.h"

namespace farandole {
namespace {

/// False for a descriptor that no rank can have made, because a peer's memory or messages are corrupt.
bool is_call(const Descriptor& descriptor) {
  return static_cast<int>(descriptor.collective) < kCollectiveCount &&
         static_cast<int>(descriptor.dtype) < kDTypeCount && is_reduce_op(descriptor.op);
}

std::uint64_t digest_of_options(const Call& call, int segments) {
  std::uint64_t digest = mix(mix(static_cast<std::uint64_t>(segments), std::bit_cast<std::uint64_t>(call.postscale)),
                             call.is_uneven() ? 1 : 0);
  // In an alltoall each rank has its own counts.
  if (call.collective == Collective::kAlltoall) return digest;
  for (const std::size_t count : call.counts) digest = mix(digest, count);
  return digest;
}

std::uint8_t algorithm_number(const Selection& selection) {
  if (selection.algorithm == nullptr) return selection.method->number;
  return static_cast<std::uint8_t>(selection.algorithm - algorithms().data());
}

std::string_view algorithm_name(std::uint8_t number) {
  const auto table = algorithms();
  if (number < table.size()) return table[number].name;
  for (const Method* method : methods()) {
    if (!method->name.empty() && method->number == number) return method->name;
  }
  return "with arguments that it refuses";
}

}  // namespace

KeptCall::KeptCall(const Call& call)
    : Call(call),
      own_counts_(call.counts.begin(), call.counts.end()),
      own_recv_counts_(call.recv_counts.begin(), call.recv_counts.end()) {
  counts = own_counts_;
  recv_counts = own_recv_counts_;
  algorithm = {};
}

std::size_t Parts::total() const {
  return counts_.empty() ? each_ * size_ : std::accumulate(counts_.begin(), counts_.end(), std::size_t{0});
}

std::vector<std::size_t> Parts::to_vector() const {
  if (counts_.empty()) return std::vector<std::size_t>(size_, each_);
  return {counts_.begin(), counts_.end()};
}

std::vector<std::size_t> Parts::offsets() const {
  std::vector<std::size_t> offsets(size_ + 1, 0);
  for (std::size_t rank = 0; rank < size_; ++rank) offsets[rank + 1] = offsets[rank] + (*this)[rank];
  return offsets;
}

Parts parts_of(const Call& call, int size) {
  switch (call.collective) {
    case Collective::kAllgather:
    case Collective::kGather:
      return {call.counts, call.input.count, size};
    case Collective::kScatter:
      return {call.counts, call.output.count, size};
    default:
      return {call.counts, call.input.count / static_cast<std::size_t>(size), size};
  }
}

Parts recv_parts_of(const Call& call, int size) {
  return {call.recv_counts, call.output.count / static_cast<std::size_t>(size), size};
}

Descriptor describe_call(const PreparedCall& prepared) {
  const Call& call = prepared.call;
  const Selection& selection = prepared.selection;
  // Compute the usual digest once: most programs make calls without options.
  static const std::uint64_t no_options = digest_of_options({}, 1);
  const bool is_plain = selection.segments == 1 && call.postscale == 1.0 && !call.is_uneven();
  Descriptor descriptor;
  descriptor.collective = call.collective;
  descriptor.dtype = call.input.dtype;
  descriptor.memory = prepared.space.kind;
  descriptor.op = call.op;
  descriptor.algorithm = prepared.is_valid() ? algorithm_number(selection) : Descriptor::kRefused;
  descriptor.root = call.root;
  descriptor.count = call.exchanges_counts() ? 0 : prepared.total;
  descriptor.digest = is_plain ? no_options : digest_of_options(call, selection.segments);
  return descriptor;
}

std::string describe(const Descriptor& descriptor) {
  if (!is_call(descriptor)) return "something that is no collective";
  if (descriptor.algorithm == Descriptor::kMessage) {
    return fmt::format("a message of {} {} elements in device memory", descriptor.count, name(descriptor.dtype));
  }
  std::string text(name(descriptor.collective));
  if (descriptor.collective == Collective::kBarrier) return text;
  if (descriptor.collective == Collective::kAlltoall && descriptor.count == 0) {
    text += fmt::format(" of {} elements in uneven parts", name(descriptor.dtype));
  } else {
    text += fmt::format(" of {} {} elements", descriptor.count, name(descriptor.dtype));
  }
  if (descriptor.memory != MemoryKind::kHost) text += " in device memory";
  if (reduces(descriptor.collective)) text += fmt::format(", {}", name(descriptor.op));
  if (descriptor.root >= 0) text += fmt::format(", root {}", descriptor.root);
  text += fmt::format(", {}", algorithm_name(descriptor.algorithm));
  return text;
}

FlightSubject subject_of(const Descriptor& descriptor) {
  return {std::bit_cast<FlightSubject::Words>(descriptor),
          [](const FlightSubject::Words& words) { return describe(std::bit_cast<Descriptor>(words)); }};
}

std::uint64_t mix(std::uint64_t digest, std::uint64_t value) {
  // splitmix64's finaliser
  std::uint64_t z = digest * 0x9e3779b97f4a7c15ULL + value + 0x632be59bd9b4e019ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

namespace {

[[noreturn]] void throw_message_mismatch(const Group& group, int rank, const Descriptor& message, int other_rank,
                                         const Descriptor& other_message) {
  const auto description = [&](int caller, const Descriptor& what) {
    return fmt::format("{} {} {} {} elements", group.endpoint->topology().describe(group.member(caller)),
                       caller == what.root ? "sends" : "receives", what.count, name(what.dtype));
  };
  throw Mismatch(fmt::format("in {}: {}, but {}: both must name the same count and type; no data was touched",
                             group.describe(), description(rank, message), description(other_rank, other_message)));
}

}  // namespace

void throw_mismatch(const Group& group, int rank, const Descriptor& called, int other_rank,
                    const Descriptor& other_called) {
  const bool are_messages = called.algorithm == Descriptor::kMessage && other_called.algorithm == Descriptor::kMessage;
  if (are_messages) throw_message_mismatch(group, rank, called, other_rank, other_called);
  const auto description = [&](int caller, const Descriptor& what) {
    return group.endpoint->topology().describe(group.member(caller)) + " called " + describe(what);
  };
  std::string_view hint = "every rank must make the same calls in the same order; no data was touched";
  if (describe(called) == describe(other_called)) {
    hint =
        "they differ in uneven counts, scale, segments, a barrier's algorithm, or the number of calls before; no data "
        "was touched";
  }
  throw Mismatch(fmt::format("{}, but {}: {}", description(rank, called), description(other_rank, other_called), hint));
}

void throw_refused(const Descriptor& called) {
  throw Mismatch(fmt::format("the ranks disagree on what they send each other in {}", describe(called)));
}

}  // namespace farandole
