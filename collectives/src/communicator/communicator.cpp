// SPDX-License-Identifier: Apache-2.0
#include "farandole/collectives/communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "communicator/communicator_state.h"
#include "farandole/core/error.h"
#include "farandole/internal/average.h"
#include "farandole/internal/digest.h"

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

Communicator Communicator::of_world(World& world, int replica) {
  if (replica < 0 || replica >= world.replicas()) {
    throw InvalidArgument(fmt::format("replica {} is not one of this process's 0 … {}", replica, world.replicas() - 1));
  }
  constexpr std::uint16_t kWorldId = 0;
  Group group;
  group.endpoint = world.endpoint(replica).share();
  if (group.endpoint->communicator_ids().used()[kWorldId] != 0) {
    throw InvalidArgument("the communicator of this world exists already; use its duplicate()");
  }
  const std::string& file = group.endpoint->settings().collectives.tuning;
  if (!file.empty()) {
    group.table = std::make_shared<TuningTable>(TuningTable::parse(group.endpoint->tuning_text(), file));
  }
  group.endpoint->late_ranks().set_has_left(false);
  group.compares = group.endpoint->settings().collectives.check != "off";
  group.id = kWorldId;
  group.rank = group.endpoint->rank();
  for (int rank = 0; rank < world.size(); ++rank) group.members.push_back(rank);
  return Communicator(std::make_shared<State>(std::move(group)));
}

namespace {

/// Arguments of one rank's `split`, which the ranks gather.
struct SplitArguments {
  std::int64_t color, key;
  std::int64_t compares;
  std::int64_t table_digest;  ///< 0 for the parent's table
  std::int64_t device_order;
  std::int64_t may_be_direct;  ///< 1 if this rank may enqueue calls directly, see DirectCalls
  std::int64_t generation;     ///< proposed by the rank, see CommunicatorIds
};

std::int64_t digest(const TuningTable& table) {
  return static_cast<std::int64_t>(Digest().add(table.to_json()).value());
}

/// @throws Mismatch  two ranks of the new communicator pass different values of an option that must be the same
void check_options(int first_rank, const SplitArguments& first, int rank, const SplitArguments& member) {
  std::string_view what;
  if (member.table_digest != first.table_digest) what = "tables";
  if (member.compares != first.compares) what = "values of `compare`";
  if (member.device_order != first.device_order) what = "values of `device_order`";
  if (what.empty()) return;
  throw Mismatch(
      fmt::format("making a communicator: rank {} and rank {} pass different {}; all of its ranks must pass the same",
                  first_rank, rank, what));
}

/// The lowest `count` ids that no rank uses. @throws InvalidArgument  fewer ids are free
std::vector<std::uint16_t> free_ids(std::span<const std::uint8_t> used, std::size_t count) {
  std::vector<std::uint16_t> ids;
  for (std::size_t id = 0; id < used.size() && ids.size() < count; ++id) {
    if (used[id] == 0) ids.push_back(static_cast<std::uint16_t>(id));
  }
  if (ids.size() < count) {
    throw InvalidArgument(fmt::format("no communicator id is free: {} are in use; destroy some", used.size()));
  }
  return ids;
}

}  // namespace

Communicator Communicator::split(int color, int key, const CommunicatorOptions& options) {
  const Group& parent = state().group();
  if (options.table != nullptr) options.table->check();
  if (!(options.timeout.count() >= 0)) {
    throw InvalidArgument(
        fmt::format("making a communicator: timeout is {} s; expected a time, or 0 for FARANDOLE_TIMEOUT",
                    options.timeout.count()));
  }
  CommunicatorIds& ids = parent.endpoint->communicator_ids();
  const std::lock_guard creating(ids.creation_mutex());
  const SplitArguments own{color,
                           key,
                           options.compare,
                           options.table == nullptr ? 0 : digest(*options.table),
                           static_cast<std::int64_t>(options.device_order),
                           DirectCalls::are_possible(*parent.endpoint),
                           static_cast<std::int64_t>(ids.propose_generation())};
  std::vector<SplitArguments> members(static_cast<std::size_t>(size()));
  constexpr std::size_t kFields = sizeof(SplitArguments) / sizeof(std::int64_t);
  allgather({&own.color, kFields, DType::kI64}, {&members.front().color, kFields * members.size(), DType::kI64});
  std::vector<std::uint8_t> used = ids.used();
  allreduce(used, ReduceOp::kMax);
  if (color < 0) return {};
  bool is_direct = options.device_order == CommunicatorOptions::DeviceOrder::kCaller;
  const std::vector<std::uint16_t> free = free_ids(used, is_direct ? 2 : 1);
  std::int64_t generation = 0;
  std::vector<std::pair<std::int64_t, int>> order;  // (key, rank in the parent)
  for (int rank = 0; rank < size(); ++rank) {
    const SplitArguments& member = members[static_cast<std::size_t>(rank)];
    generation = std::max(generation, member.generation);
    if (member.color != color) continue;
    order.emplace_back(member.key, rank);
    const int first = order.front().second;
    check_options(first, members[static_cast<std::size_t>(first)], rank, member);
    is_direct = is_direct && member.may_be_direct != 0;
  }
  ids.accept_generation(static_cast<std::uint64_t>(generation));
  std::sort(order.begin(), order.end());
  Group group;
  group.endpoint = parent.endpoint;
  group.table = options.table == nullptr ? parent.table : std::make_shared<TuningTable>(*options.table);
  group.progress = options.progress;
  group.compares = options.compare || parent.endpoint->settings().collectives.check != "off";
  group.watches = options.watch;
  group.timeout = options.timeout;
  group.name = options.name;
  group.id = free.front();
  if (is_direct) group.direct = CommunicatorKey{free.back(), static_cast<std::uint64_t>(generation)};
  for (const auto& [unused, rank] : order) {
    if (rank == parent.rank) group.rank = static_cast<int>(group.members.size());
    group.members.push_back(parent.member(rank));
  }
  return Communicator(std::make_shared<State>(std::move(group)));
}

Communicator Communicator::duplicate(const CommunicatorOptions& options) {
  return split(0, rank(), options);
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
