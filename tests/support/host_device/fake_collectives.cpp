// SPDX-License-Identifier: Apache-2.0
#include "fake_collectives.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "fake_kernels.h"

namespace farandole::fake {

namespace {

struct TypeRow {
  const char* name;  // as in the names of kernels; empty: there are no kernels of this type
  std::size_t bytes;
};
// By ncclDataType_t.
constexpr std::array kTypeRows{TypeRow{"i8", 1},  TypeRow{"u8", 1},  TypeRow{"i32", 4}, TypeRow{"u32", 4},
                               TypeRow{"i64", 8}, TypeRow{"u64", 8}, TypeRow{"f16", 2}, TypeRow{"f32", 4},
                               TypeRow{"f64", 8}, TypeRow{"bf16", 2}};
constexpr std::array kOpNames{"sum", "product", "max", "min"};  // by ncclRedOp_t

std::string reduce_kernel(int type, int op) {
  return fmt::format("farandole_reduce_{}_{}", kTypeRows[static_cast<std::size_t>(type)].name,
                     kOpNames[static_cast<std::size_t>(op)]);
}

std::string scale_kernel(int type) {
  return fmt::format("farandole_scale_{}", kTypeRows[static_cast<std::size_t>(type)].name);
}

void run_one(const KernelBody& body, const cuda::KernelTask& task, std::size_t element_bytes, Random& random) {
  if (task.count == 0) return;
  cuda::LargestArguments arguments;
  arguments.task_count = arguments.tile_count = 0;
  add_task(arguments, task, element_bytes);
  const auto blocks = static_cast<unsigned>(1 + random.below(3));
  run_kernel(body, {{blocks, 1, 1}, {cuda::kBlockThreads, 1, 1}, 0}, arguments, random);
}

/// Plans the messages of one rank. Members have the program's addresses; messages and `finish` have those for streams.
class CollectivePlan {
 public:
  explicit CollectivePlan(const CollectiveArguments& arguments)
      : arguments_(arguments),
        part_bytes_(arguments.call.count * bytes_of_type(arguments.call.type)),
        input_(static_cast<std::byte*>(const_cast<void*>(arguments.input))),
        output_(static_cast<std::byte*>(arguments.output)) {}

  PlannedCall make() {
    if (arguments_.factor != 1.0) multiply_input();
    switch (arguments_.call.kind) {
      case Collective::kAllReduce:
        reads(input_);
        writes(output_);
        send_to_peers([this](int) { return input_; });
        reduce(input_);
        break;
      case Collective::kBroadcast:
        plan_broadcast();
        break;
      case Collective::kReduce:
        plan_reduce();
        break;
      case Collective::kAllGather:
        plan_allgather();
        break;
      case Collective::kReduceScatter:
        for (int part = 0; part < arguments_.size; ++part) reads(part_of(input_, part));
        writes(output_);
        send_to_peers([this](int peer) { return part_of(input_, peer); });
        reduce(part_of(input_, arguments_.rank));
        break;
      case Collective::kNone:
        break;
    }
    return std::move(plan_);
  }

 private:
  std::byte* part_of(std::byte* memory, int rank) const {
    return memory + static_cast<std::size_t>(rank) * part_bytes_;
  }
  bool is_root() const { return arguments_.rank == arguments_.call.root; }
  void reads(const std::byte* memory) {
    if (multiplied_ != nullptr) return;  // `multiply_input` has added the access already
    plan_.accesses.push_back({memory, part_bytes_, false, "input"});
  }
  void writes(const std::byte* memory) { plan_.accesses.push_back({memory, part_bytes_, true, "output"}); }

  void add(Message::Direction direction, int peer, std::byte* data) {
    std::byte* const memory = direction == Message::Direction::kSend ? sent(data) : stream_address(data);
    plan_.messages.push_back({direction, MessageClass::kCollective, peer, memory, part_bytes_, arguments_.call});
  }
  template <class PartOf>
  void send_to_peers(const PartOf& part_of_peer) {
    for (int peer = 0; peer < arguments_.size; ++peer) {
      if (peer != arguments_.rank) add(Message::Direction::kSend, peer, part_of_peer(peer));
    }
  }
  /// Makes all messages send a multiplied copy of the input.
  void multiply_input() {
    const bool has_parts = arguments_.call.kind == Collective::kReduceScatter;
    const std::size_t parts = has_parts ? static_cast<std::size_t>(arguments_.size) : 1;
    for (std::size_t part = 0; part < parts; ++part) reads(part_of(input_, static_cast<int>(part)));
    auto copy = std::make_shared<std::vector<std::byte>>(part_bytes_ * parts);
    plan_.begin = [copy, from = stream_address(input_), elements = arguments_.call.count * parts,
                   factor = arguments_.factor, bytes = bytes_of_type(arguments_.call.type),
                   scale = find_kernel(scale_kernel(arguments_.call.type)).value()](Random& random) {
      run_one(scale, {copy->data(), from, nullptr, elements, factor}, bytes, random);
    };
    multiplied_ = std::move(copy);
  }
  /// Translates an address in the input for streams: into the multiplied copy if there is one.
  std::byte* sent(const std::byte* memory) const {
    if (multiplied_ != nullptr) return multiplied_->data() + (memory - input_);
    return stream_address(const_cast<std::byte*>(memory));
  }

  /// Copies after the messages. No-op in place, as in NCCL: the memory is not written, so concurrent readers are
  /// allowed.
  void copy_at_end(std::byte* target, const std::byte* source) {
    if (target == source) return;
    plan_.finish = [to = stream_address(target), from = stream_address(source),
                    bytes = part_bytes_](Random& /*random*/) { std::memmove(to, from, bytes); };
  }

  void plan_broadcast() {
    if (!is_root()) {
      writes(output_);
      add(Message::Direction::kReceive, arguments_.call.root, output_);
      return;
    }
    reads(input_);
    writes(output_);
    send_to_peers([this](int) { return input_; });
    copy_at_end(output_, input_);
  }

  void plan_reduce() {
    reads(input_);
    if (!is_root()) return add(Message::Direction::kSend, arguments_.call.root, input_);
    writes(output_);
    reduce(input_);
  }

  void plan_allgather() {
    reads(input_);
    for (int part = 0; part < arguments_.size; ++part) writes(part_of(output_, part));
    send_to_peers([this](int) { return input_; });
    for (int peer = 0; peer < arguments_.size; ++peer) {
      if (peer != arguments_.rank) add(Message::Direction::kReceive, peer, part_of(output_, peer));
    }
    copy_at_end(part_of(output_, arguments_.rank), input_);
  }

  // Receives a part from every peer, and reduces the parts and `own` in the order of ranks.
  void reduce(const std::byte* own) {
    auto parts = std::make_shared<std::vector<std::byte>>(part_bytes_ * static_cast<std::size_t>(arguments_.size));
    for (int peer = 0; peer < arguments_.size; ++peer) {
      if (peer != arguments_.rank) add(Message::Direction::kReceive, peer, part_of(parts->data(), peer));
    }
    const CollectiveCall& call = arguments_.call;
    const KernelBody combine = find_kernel(reduce_kernel(call.type, call.op)).value();
    plan_.finish = [parts = std::move(parts), own = sent(own), kept = multiplied_, output = stream_address(output_),
                    bytes = part_bytes_, rank = arguments_.rank, size = arguments_.size, elements = call.count, combine,
                    element_bytes = bytes_of_type(call.type)](Random& random) {
      std::byte* const sum = parts->data();
      std::memcpy(sum + static_cast<std::size_t>(rank) * bytes, own, bytes);
      for (int peer = 1; peer < size; ++peer) {
        run_one(combine, {sum, sum, sum + static_cast<std::size_t>(peer) * bytes, elements, 1.0}, element_bytes,
                random);
      }
      std::memcpy(output, sum, bytes);
    };
  }

  const CollectiveArguments arguments_;
  const std::size_t part_bytes_;
  std::byte* const input_;
  std::byte* const output_;
  PlannedCall plan_;
  std::shared_ptr<std::vector<std::byte>> multiplied_;  // null without a factor
};

}  // namespace

std::size_t bytes_of_type(int type) {
  const bool is_one = type >= 0 && type < static_cast<int>(kTypeRows.size());
  return is_one ? kTypeRows[static_cast<std::size_t>(type)].bytes : 0;
}

std::string why_no_reduction(int type, int op) {
  if (op < 0 || op >= static_cast<int>(kOpNames.size())) return fmt::format("there is no operation {}", op);
  const std::string kernel = reduce_kernel(type, op);
  return find_kernel(kernel) ? "" : fmt::format("the double has no kernel {}", kernel);
}

PlannedCall plan_collective(const CollectiveArguments& arguments) {
  return CollectivePlan(arguments).make();
}

}  // namespace farandole::fake
