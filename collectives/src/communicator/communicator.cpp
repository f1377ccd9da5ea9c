// SPDX-License-Identifier: Apache-2.0
#include "farandole/collectives/communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "communicator/communicator_state.h"
#include "farandole/core/error.h"
#include "farandole/internal/average.h"

namespace farandole {

void Communicator::throw_empty() {
  throw InvalidArgument(
      "this Communicator refers to no ranks: it was default-constructed or moved from, or a split gave this rank none");
}

namespace {

/// Call of a collective that moves data without a reduction, or of a barrier.
Call movement(Collective collective, ConstBufferView input, BufferView output, const CallOptions& options) {
  Call call;
  call.collective = collective;
  call.input = input;
  call.output = output;
  call.algorithm = options.algorithm;
  call.segments = options.segments;
  call.prescale = options.prescale;
  call.postscale = options.postscale;
  call.stream = options.stream;
  return call;
}

Call reduction(Collective collective, ConstBufferView input, BufferView output, ReduceOp op, const CallOptions& options,
               int size) {
  Call call = movement(collective, input, output, options);
  call.op = op;
  call.prescale = user_factor(options.prescale, input.dtype);
  call.final_scale = op == ReduceOp::kAverage ? average_factor(options.postscale, input.dtype, size)
                                              : user_factor(options.postscale, input.dtype);
  return call;
}

/// Empty view for ranks whose output is ignored, in the memory of the input.
BufferView no_output(ConstBufferView input) {
  return {nullptr, 0, input.dtype, input.space};
}
/// Empty view for ranks whose input is ignored, of the type and in the memory of the output.
ConstBufferView no_input(BufferView output) {
  return {nullptr, 0, output.dtype, output.space};
}

Call broadcast_call(BufferView values, int root, const CallOptions& options) {
  Call call = movement(Collective::kBroadcast, values, values, options);
  call.root = root;
  return call;
}

Call reduce_call(ConstBufferView input, BufferView output, ReduceOp op, int root, const CallOptions& options,
                 const Group& group) {
  const bool is_root = group.rank == root;
  Call call = reduction(Collective::kReduce, input, is_root ? output : no_output(input), op, options, group.size());
  call.root = root;
  return call;
}

Call allgather_call(ConstBufferView input, BufferView output, std::span<const std::size_t> counts,
                    const CallOptions& options) {
  Call call = movement(Collective::kAllgather, input, output, options);
  call.counts = counts;
  return call;
}

Call reduce_scatter_call(ConstBufferView input, BufferView output, ReduceOp op, std::span<const std::size_t> counts,
                         const CallOptions& options, int size) {
  Call call = reduction(Collective::kReduceScatter, input, output, op, options, size);
  call.counts = counts;
  return call;
}

Call gather_call(ConstBufferView input, BufferView output, int root, std::span<const std::size_t> counts,
                 const CallOptions& options, int rank) {
  Call call = movement(Collective::kGather, input, rank == root ? output : no_output(input), options);
  call.root = root;
  call.counts = counts;
  return call;
}

Call scatter_call(ConstBufferView input, BufferView output, int root, std::span<const std::size_t> counts,
                  const CallOptions& options, int rank) {
  Call call = movement(Collective::kScatter, rank == root ? input : no_input(output), output, options);
  call.root = root;
  call.counts = counts;
  return call;
}

Call alltoall_call(ConstBufferView input, BufferView output, std::span<const std::size_t> send_counts,
                   std::span<const std::size_t> recv_counts, const CallOptions& options) {
  Call call = movement(Collective::kAlltoall, input, output, options);
  call.counts = send_counts;
  call.recv_counts = recv_counts;
  return call;
}

Call barrier_call(const CallOptions& options) {
  return movement(Collective::kBarrier, {}, {}, options);
}

}  // namespace

void Communicator::allreduce(ConstBufferView input, BufferView output, ReduceOp op, const CallOptions& options) {
  state().run(reduction(Collective::kAllreduce, input, output, op, options, size()));
}
Work Communicator::allreduce_async(AsyncInput input, BufferView output, ReduceOp op, const CallOptions& options) {
  return state().start(reduction(Collective::kAllreduce, input, output, op, options, size()));
}

void Communicator::broadcast(BufferView values, int root, const CallOptions& options) {
  state().run(broadcast_call(values, root, options));
}
Work Communicator::broadcast_async(BufferView values, int root, const CallOptions& options) {
  return state().start(broadcast_call(values, root, options));
}

void Communicator::reduce(ConstBufferView input, BufferView output, ReduceOp op, int root, const CallOptions& options) {
  state().run(reduce_call(input, output, op, root, options, state().group()));
}
Work Communicator::reduce_async(AsyncInput input, BufferView output, ReduceOp op, int root,
                                const CallOptions& options) {
  return state().start(reduce_call(input, output, op, root, options, state().group()));
}

void Communicator::allgather(ConstBufferView input, BufferView output, std::span<const std::size_t> counts,
                             const CallOptions& options) {
  state().run(allgather_call(input, output, counts, options));
}
Work Communicator::allgather_async(AsyncInput input, BufferView output, std::span<const std::size_t> counts,
                                   const CallOptions& options) {
  return state().start(allgather_call(input, output, counts, options));
}

void Communicator::reduce_scatter(ConstBufferView input, BufferView output, ReduceOp op,
                                  std::span<const std::size_t> counts, const CallOptions& options) {
  state().run(reduce_scatter_call(input, output, op, counts, options, size()));
}
Work Communicator::reduce_scatter_async(AsyncInput input, BufferView output, ReduceOp op,
                                        std::span<const std::size_t> counts, const CallOptions& options) {
  return state().start(reduce_scatter_call(input, output, op, counts, options, size()));
}

void Communicator::gather(ConstBufferView input, BufferView output, int root, std::span<const std::size_t> counts,
                          const CallOptions& options) {
  state().run(gather_call(input, output, root, counts, options, rank()));
}
Work Communicator::gather_async(AsyncInput input, BufferView output, int root, std::span<const std::size_t> counts,
                                const CallOptions& options) {
  return state().start(gather_call(input, output, root, counts, options, rank()));
}

void Communicator::scatter(ConstBufferView input, BufferView output, int root, std::span<const std::size_t> counts,
                           const CallOptions& options) {
  state().run(scatter_call(input, output, root, counts, options, rank()));
}
Work Communicator::scatter_async(AsyncInput input, BufferView output, int root, std::span<const std::size_t> counts,
                                 const CallOptions& options) {
  return state().start(scatter_call(input, output, root, counts, options, rank()));
}

void Communicator::alltoall(ConstBufferView input, BufferView output, std::span<const std::size_t> send_counts,
                            std::span<const std::size_t> recv_counts, const CallOptions& options) {
  state().run(alltoall_call(input, output, send_counts, recv_counts, options));
}
Work Communicator::alltoall_async(AsyncInput input, BufferView output, std::span<const std::size_t> send_counts,
                                  std::span<const std::size_t> recv_counts, const CallOptions& options) {
  return state().start(alltoall_call(input, output, send_counts, recv_counts, options));
}

void Communicator::barrier(const CallOptions& options) {
  state().run(barrier_call(options));
}
Work Communicator::barrier_async(const CallOptions& options) {
  return state().start(barrier_call(options));
}

std::string broadcast_text(Communicator& ranks, std::string text, int root) {
  auto bytes = static_cast<std::int64_t>(text.size());
  ranks.broadcast(BufferView(&bytes, 1, DType::kI64), root);
  text.resize(static_cast<std::size_t>(bytes));
  ranks.broadcast(BufferView(text.data(), text.size(), DType::kU8), root);
  return text;
}

int Communicator::rank() const {
  return state().group().rank;
}
int Communicator::size() const {
  return state().group().size();
}

namespace {
const RankInfo& info(const Group& group) {
  return group.endpoint->topology().rank(group.endpoint->rank());
}
}  // namespace

Placement Communicator::placement() const {
  const Group& group = state().group();
  const RankInfo& own = info(group);
  return {own.local_rank, own.local_size, own.host_index, group.endpoint->topology().host_count()};
}
std::string Communicator::describe(int rank) const {
  return state().group().endpoint->topology().describe(state().group().member(rank));
}
bool Communicator::shares_memory() const {
  return state().queue().shares_memory();
}

Buffer Communicator::allocate(std::size_t count, DType dtype, MemorySpace space) {
  const Group& group = state().group();
  group.endpoint->faults().check_world();
  if (space.is_host()) {
    if (!group.endpoint->shares_memory(info(group).host_index)) return Buffer(count, dtype);
    return group.endpoint->memory().allocate(count, dtype);
  }
  const MemorySpace own = device();
  if (space != own) {
    throw InvalidArgument(
        fmt::format("allocate: this rank uses {}, not {}", farandole::describe(own), farandole::describe(space)));
  }
  return state().queue().devices().context().allocate(count, dtype);
}
MemorySpace Communicator::device() {
  state().group().endpoint->faults().check_world();
  return state().queue().devices().context().space();
}

std::size_t Communicator::trim_device_memory() {
  state().group().endpoint->faults().check_world();
  return DeviceContext::opened() == nullptr ? 0 : state().queue().devices().context().trim();
}

void Communicator::abort(std::string_view text) {
  Endpoint& endpoint = state().endpoint();
  endpoint.faults().check_process();
  endpoint.faults().give_up(fmt::format("aborted: {}", text));
}

}  // namespace farandole
