// SPDX-License-Identifier: Apache-2.0
#include "random_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "on_device.h"
#include "values.h"

namespace farandole::test {
namespace {

using Order = CommunicatorOptions::DeviceOrder;

/// A multiple of 12, so that averages of up to four ranks are integers.
double program_value(int rank, unsigned call, std::size_t index) {
  return 12.0 * static_cast<double>(static_cast<std::size_t>(rank + 1) * ((index + call) % 13) + index % 5);
}

}  // namespace

bool PlannedGroup::contains(int rank) const {
  return std::find(members.begin(), members.end(), rank) != members.end();
}

RandomProgram::RandomProgram(unsigned seed, int ranks) : random_(seed), ranks_(ranks) {
  const auto size = static_cast<std::size_t>(ranks_);
  const std::size_t count = 3 + below(3);
  for (std::size_t i = 0; i < count; ++i) {
    PlannedGroup group;
    group.members.resize(size);
    std::iota(group.members.begin(), group.members.end(), 0);
    // The first two have all ranks and an order each; the others have two or more ranks.
    if (i >= 2) std::shuffle(group.members.begin(), group.members.end(), random_);
    if (i >= 2) group.members.resize(2 + below(size - 1));
    std::sort(group.members.begin(), group.members.end());
    const bool is_caller = i == 0 || (i >= 2 && below(3) > 0);
    group.order = is_caller ? Order::kCaller : Order::kAgreed;
    groups_.push_back(std::move(group));
  }
}

PlannedCall RandomProgram::direct_call(std::size_t group) {
  constexpr std::array kKinds{Collective::kAllreduce, Collective::kBroadcast, Collective::kAllgather,
                              Collective::kReduceScatter};
  PlannedCall call;
  call.group = group;
  call.number = ++calls_;
  call.collective = kKinds[below(kKinds.size())];
  call.dtype = below(2) == 0 ? DType::kI32 : DType::kF32;
  call.count = 1 + below(40) * below(40) * 4 + call.number;
  call.root = static_cast<int>(below(groups_[group].members.size()));
  call.algorithm = "vendor";
  call.stream = below(kStreams);
  return call;
}

PlannedCall RandomProgram::any_call(std::size_t group) {
  constexpr std::array kWays{PlannedCall::Way::kInStream, PlannedCall::Way::kInStream,
                             PlannedCall::Way::kInStream, PlannedCall::Way::kBlocking,
                             PlannedCall::Way::kAsync,    PlannedCall::Way::kAsyncInStream};
  constexpr std::array kOps{ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kAverage};
  constexpr std::array kAlgorithms{"", "ring", "recursive_doubling"};
  PlannedCall call = direct_call(group);
  call.way = kWays[below(kWays.size())];
  call.algorithm = "";
  if (call.collective == Collective::kAllreduce) {
    call.op = kOps[below(kOps.size())];
    call.algorithm = kAlgorithms[below(kAlgorithms.size())];
  }
  return call;
}

std::vector<StreamView> program_streams(Communicator& ranks) {
  std::vector<StreamView> streams;
  for (std::size_t i = 0; i < RandomProgram::kStreams; ++i) streams.push_back(device_of(ranks).make_stream());
  return streams;
}

ProgramRank::ProgramRank(Communicator& ranks, const std::vector<PlannedGroup>& groups, std::vector<StreamView> streams)
    : ranks_(ranks), device_(device_of(ranks)), streams_(std::move(streams)) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string name = fmt::format("group {}", i);
    groups_.push_back(
        ranks.split(groups[i].contains(ranks.rank()) ? 0 : -1, 0, {.device_order = groups[i].order, .name = name}));
  }
}

void ProgramRank::synchronize() {
  for (const StreamView stream : streams_) device_.synchronize(stream);
}

ProgramCall::ProgramCall(ProgramRank& rank, const PlannedGroup& group, const PlannedCall& plan)
    : rank_(rank), group_(group), plan_(plan) {
  const std::size_t members = group.members.size();
  const std::size_t inputs = plan.collective == Collective::kReduceScatter ? plan.count * members : plan.count;
  const std::size_t outputs = plan.collective == Collective::kAllgather ? plan.count * members : plan.count;
  Buffer host(inputs, plan.dtype);
  for (std::size_t i = 0; i < inputs; ++i) store(host.view(), i, program_value(rank.rank(), plan.number, i));
  source_ = to_device(rank.ranks(), host.view());
  input_ = rank.ranks().allocate(inputs, plan.dtype, rank.ranks().device());
  output_ = rank.ranks().allocate(outputs, plan.dtype, rank.ranks().device());
}

CallOptions ProgramCall::options() const {
  const bool has_stream = plan_.way == PlannedCall::Way::kInStream || plan_.way == PlannedCall::Way::kAsyncInStream;
  return {.algorithm = plan_.algorithm, .stream = has_stream ? rank_.stream(plan_.stream) : StreamView()};
}

void ProgramCall::start() {
  const CallOptions with = options();
  const std::size_t bytes = input_.view().size_in_bytes();
  // With a stream the input comes by an earlier copy in that stream.
  if (with.stream.valid()) {
    rank_.device().copy(input_.view().data, source_.view().data, bytes, with.stream);
  } else {
    copy_now(rank_.device(), input_.view().data, source_.view().data, bytes);
  }
  if (plan_.way == PlannedCall::Way::kInStream || plan_.way == PlannedCall::Way::kBlocking) return start_blocking();
  work_ = start_async();
}

void ProgramCall::start_blocking() {
  Communicator& group = rank_.group(plan_.group);
  switch (plan_.collective) {
    case Collective::kBroadcast:
      return group.broadcast(input_.view(), plan_.root, options());
    case Collective::kAllgather:
      return group.allgather(input_.view(), output_.view(), {}, options());
    case Collective::kReduceScatter:
      return group.reduce_scatter(input_.view(), output_.view(), plan_.op, {}, options());
    default:
      return group.allreduce(input_.view(), output_.view(), plan_.op, options());
  }
}

Work ProgramCall::start_async() {
  Communicator& group = rank_.group(plan_.group);
  switch (plan_.collective) {
    case Collective::kBroadcast:
      return group.broadcast_async(input_.view(), plan_.root, options());
    case Collective::kAllgather:
      return group.allgather_async(input_.view(), output_.view(), {}, options());
    case Collective::kReduceScatter:
      return group.reduce_scatter_async(input_.view(), output_.view(), plan_.op, {}, options());
    default:
      return group.allreduce_async(input_.view(), output_.view(), plan_.op, options());
  }
}

void ProgramCall::wait() {
  if (work_) work_->wait();
}

double ProgramCall::reduced(std::size_t index) const {
  double result = program_value(group_.members[0], plan_.number, index);
  for (std::size_t i = 1; i < group_.members.size(); ++i) {
    const double next = program_value(group_.members[i], plan_.number, index);
    result = plan_.op == ReduceOp::kMax ? std::max(result, next) : result + next;
  }
  return plan_.op == ReduceOp::kAverage ? result / static_cast<double>(group_.members.size()) : result;
}

double ProgramCall::expected(std::size_t index) const {
  switch (plan_.collective) {
    case Collective::kBroadcast:
      return program_value(group_.members[static_cast<std::size_t>(plan_.root)], plan_.number, index);
    case Collective::kAllgather:
      return program_value(group_.members[index / plan_.count], plan_.number, index % plan_.count);
    case Collective::kReduceScatter:
      return reduced(static_cast<std::size_t>(rank_.group(plan_.group).rank()) * plan_.count + index);
    default:
      return reduced(index);
  }
}

std::string ProgramCall::difference() const {
  const Buffer& result = plan_.collective == Collective::kBroadcast ? input_ : output_;
  const Buffer host = to_host(rank_.ranks(), result.view());
  const std::string found = first_difference(host.view(), [this](std::size_t i) { return expected(i); });
  return found.empty() ? "" : fmt::format("call {} on group {}: {}", plan_.number, plan_.group, found);
}

unsigned first_seed(unsigned otherwise) {
  const char* const given = std::getenv("PROGRAM_SEED");
  return given == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(given, nullptr, 10));
}

}  // namespace farandole::test
