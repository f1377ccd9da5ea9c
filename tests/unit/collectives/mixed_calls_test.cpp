// SPDX-License-Identifier: Apache-2.0
// Many random calls in flight together on simulated hosts, some of them invalid or mismatched: each call gives its
// result, or the same error on all ranks.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "communicator_probe.h"
#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "values.h"

namespace farandole {
namespace {

using test::first_difference;
using test::reduced;
using test::value;
using test::values;

using Counts = std::vector<std::size_t>;
using Layout = std::vector<int>;

/// Random parameters of a call, equal on all ranks.
struct Drawn {
  Collective collective = Collective::kAllreduce;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  Counts counts;  // of each rank's part; of an allreduce, reduce and broadcast the first one is that of the vector
  bool is_uneven = false;  // counts are passed
  int root = 0;
  bool in_place = false;
  bool blocks = false;
  double factor = 1.0;  // before, and one over it after
  std::string algorithm;
  int odd_rank = -1;     // that calls something else; -1: none
  bool refuses = false;  // and knows it

  std::size_t total() const { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); }
  std::size_t first_of(int rank) const {
    return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
  }
  std::size_t count_of(int rank) const { return counts[static_cast<std::size_t>(rank)]; }
  bool has_vector() const {
    return collective == Collective::kAllreduce || collective == Collective::kReduce ||
           collective == Collective::kBroadcast;
  }
};

class Random {
 public:
  explicit Random(unsigned seed) : generator_(seed) {}
  std::size_t below(std::size_t end) { return generator_() % end; }
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return *(all.begin() + below(all.size()));
  }

 private:
  std::mt19937 generator_;
};

std::size_t draw_count(Random& random, std::size_t element_bytes) {
  // Around the limits: of lines, of one-shot vectors, of exchanges, of short traffic, of slices.
  const std::size_t bytes = random.one_of<std::size_t>(
      {0, 1, 8, 60, 1000, 2048, 4096, 10000, 16384, 21845, 32768, 43690, 65536, 131072, 300000, 2100000});
  const std::size_t count = bytes / element_bytes;
  return random.below(2) == 0 ? count : count + random.below(4);
}

std::string draw_algorithm(Random& random, const Communicator& ranks, const Drawn& call) {
  if (call.collective == Collective::kAlltoall || call.collective == Collective::kBarrier) return "";
  constexpr std::size_t kMaxPayloadBytes = 60U << 10;
  std::vector<std::string> names;
  for (const Algorithm& one : algorithms()) {
    if (one.collective == call.collective && one.supports(ranks.size())) names.emplace_back(one.name);
  }
  if (internals(ranks).choose(Collective::kReduce, 4U << 20) == "hierarchical") names.emplace_back("hierarchical");
  const std::size_t bytes = call.total() * size_in_bytes(call.dtype) * static_cast<std::size_t>(ranks.size());
  if (!ranks.shares_memory() && ranks.size() > 1 && bytes <= kMaxPayloadBytes) names.emplace_back("exchange");
  return names[random.below(names.size())];
}

Drawn draw_call(Random& random, const Communicator& ranks) {
  Drawn call;
  const auto size = static_cast<std::size_t>(ranks.size());
  call.collective = static_cast<Collective>(random.below(kCollectiveCount));
  call.dtype = random.one_of({DType::kF32, DType::kF32, DType::kI8, DType::kU8, DType::kF16, DType::kBF16, DType::kF64,
                              DType::kI64, DType::kU32, DType::kU64, DType::kBool});
  call.op = random.one_of({ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin});
  if (!is_floating_point(call.dtype) && random.below(2) == 0) {
    call.op = random.one_of({ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor});
  }
  const std::size_t count = draw_count(random, size_in_bytes(call.dtype));
  call.counts.assign(size, call.has_vector() ? 0 : count / size);
  if (call.has_vector()) call.counts[0] = count;
  const bool may_be_uneven = !call.has_vector() && call.collective != Collective::kBarrier;
  call.is_uneven = may_be_uneven && random.below(2) == 0;
  for (std::size_t rank = 0; call.is_uneven && rank < size; ++rank) {
    call.counts[rank] = random.below(3) == 0 ? 0 : count / size * random.below(3) + random.below(3);
  }
  call.root = static_cast<int>(random.below(size));
  call.in_place = random.below(2) == 0;
  call.blocks = random.below(4) == 0;
  if (is_floating_point(call.dtype) && random.below(3) == 0) call.factor = 0.5;
  if (random.below(2) == 0) call.algorithm = draw_algorithm(random, ranks, call);
  if (call.collective != Collective::kBarrier && size > 1 && random.below(6) == 0) {
    call.odd_rank = static_cast<int>(random.below(size));
    call.refuses = random.below(2) == 0;
  }
  return call;
}

/// One rank's side of it.
class Side {
 public:
  Side(Communicator& ranks, const Drawn& call) : ranks_(ranks), call_(call), rank_(ranks.rank()) {
    const bool reduces_all = reduces(call.collective);
    const ReduceOp op = reduces_all ? call.op : ReduceOp::kSum;
    const std::size_t total = call.total(), own = call.count_of(rank_);
    std::size_t in = total, out = total;
    switch (call.collective) {
      case Collective::kAllgather:
      case Collective::kGather:
        in = own;
        break;
      case Collective::kReduceScatter:
      case Collective::kScatter:
        out = own;
        break;
      default:
        break;
    }
    if (call.collective == Collective::kAlltoall && call.is_uneven) {
      // Rank a sends (a + b) % 3 times the count of b.
      for (int peer = 0; peer < ranks.size(); ++peer) {
        sends_.push_back(sent(rank_, peer));
        receives_.push_back(sent(peer, rank_));
      }
      in = std::accumulate(sends_.begin(), sends_.end(), std::size_t{0});
      out = std::accumulate(receives_.begin(), receives_.end(), std::size_t{0});
    }
    input_ = values(rank_, 0, in, call.dtype, op);
    output_ = values(rank_ + 1, 0, out, call.dtype, op);
    before_ = values(rank_ + 1, 0, out, call.dtype, op);
    from_ = input_.view();
    to_ = output_.view();
    if (call.in_place) lie_in_place();
  }
  void start() {
    if (rank_ == call_.odd_rank) return start_another();
    CallOptions options{call_.factor, 1 / call_.factor, call_.algorithm};
    const CallOptions plain{.algorithm = call_.algorithm};
    const Counts counts = call_.is_uneven ? call_.counts : Counts();
    const BufferView at_root = rank_ == call_.root ? to_ : BufferView();
    switch (call_.collective) {
      case Collective::kAllreduce:
        work_ = ranks_.allreduce_async(from_, to_, call_.op, options);
        break;
      case Collective::kReduce:
        work_ = ranks_.reduce_async(from_, at_root, call_.op, call_.root, options);
        break;
      case Collective::kBroadcast:
        work_ = ranks_.broadcast_async(rank_ == call_.root ? input_.view() : to_, call_.root, plain);
        break;
      case Collective::kAllgather:
        work_ = ranks_.allgather_async(from_, to_, counts, plain);
        break;
      case Collective::kGather:
        work_ = ranks_.gather_async(from_, at_root, call_.root, counts, plain);
        break;
      case Collective::kReduceScatter:
        work_ = ranks_.reduce_scatter_async(from_, to_, call_.op, counts, options);
        break;
      case Collective::kScatter:
        work_ = ranks_.scatter_async(
            rank_ == call_.root ? ConstBufferView(from_) : ConstBufferView(nullptr, 0, call_.dtype), to_, call_.root,
            counts, plain);
        break;
      case Collective::kAlltoall:
        work_ = ranks_.alltoall_async(from_, to_, sends_, receives_);
        break;
      case Collective::kBarrier:
        work_ = ranks_.barrier_async();
    }
    if (call_.blocks && call_.odd_rank < 0) work_.wait();
  }
  std::string end() {
    if (call_.odd_rank >= 0) return end_of_a_mistake();
    work_.wait();
    const int size = ranks_.size();
    const bool is_result = call_.collective != Collective::kReduce && call_.collective != Collective::kGather;
    if (!is_result && rank_ != call_.root) return "";
    if (call_.collective == Collective::kBroadcast && rank_ == call_.root) return "";
    if (call_.collective == Collective::kBarrier) return "";
    if (call_.in_place && call_.collective == Collective::kAlltoall && call_.is_uneven) to_ = output_.view();
    return first_difference(to_, [&](std::size_t i) { return expected(i, size); });
  }

 private:
  std::size_t sent(int from, int to) const { return call_.count_of(to) * static_cast<std::size_t>((from + to) % 3); }
  void lie_in_place() {
    switch (call_.collective) {
      case Collective::kAllreduce:
      case Collective::kReduce:
        to_ = input_.view();
        break;
      case Collective::kAlltoall:
        if (!call_.is_uneven) to_ = input_.view();
        break;
      case Collective::kReduceScatter:
        to_ = input_.view().part(call_.first_of(rank_), call_.count_of(rank_));
        break;
      case Collective::kAllgather:
      case Collective::kGather: {
        if (call_.collective == Collective::kGather && rank_ != call_.root) break;
        const BufferView part = output_.view().part(call_.first_of(rank_), call_.count_of(rank_));
        if (part.count > 0) std::memcpy(part.data, input_.view().data, part.size_in_bytes());
        from_ = part;
        break;
      }
      default:
        break;
    }
  }
  void start_another() {
    if (call_.refuses) {
      Buffer& other = another_.emplace(3, call_.dtype);
      work_ = ranks_.allreduce_async(ConstBufferView(other.view()), other.view().part(0, 2), ReduceOp::kMax);
      return;
    }
    Buffer& other = another_.emplace(call_.total() % 2 == 0 ? 1009 : 50'000, call_.dtype);
    work_ = call_.total() % 3 == 0 ? ranks_.broadcast_async(other.view(), 0)
                                   : ranks_.allreduce_async(other.view(), ReduceOp::kMax);
  }
  std::string end_of_a_mistake() {
    try {
      work_.wait();
    } catch (const Mismatch&) {
      if (call_.refuses && rank_ == call_.odd_rank) return "a Mismatch";
      return call_.in_place
                 ? ""
                 : first_difference(output_.view(), [&](std::size_t i) { return test::load(before_.view(), i); });
    } catch (const InvalidArgument&) {
      return call_.refuses && rank_ == call_.odd_rank ? "" : "an InvalidArgument";
    }
    return "no error";
  }
  double expected(std::size_t index, int size) const {
    switch (call_.collective) {
      case Collective::kAllreduce:
      case Collective::kReduce:
        return reduced(size, index, call_.dtype, call_.op);
      case Collective::kReduceScatter:
        return reduced(size, call_.first_of(rank_) + index, call_.dtype, call_.op);
      case Collective::kBroadcast:
        return value(call_.root, index, call_.dtype, ReduceOp::kSum);
      case Collective::kScatter:
        return value(call_.root, call_.first_of(rank_) + index, call_.dtype, ReduceOp::kSum);
      case Collective::kAllgather:
      case Collective::kGather: {
        int from = 0;
        while (index >= call_.count_of(from)) index -= call_.count_of(from++);
        return value(from, index, call_.dtype, ReduceOp::kSum);
      }
      case Collective::kAlltoall: {
        int from = 0;
        const auto part = [&](int peer) { return call_.is_uneven ? sent(peer, rank_) : call_.count_of(rank_); };
        while (index >= part(from)) index -= part(from++);
        std::size_t first = 0;
        for (int to = 0; to < rank_; ++to) first += call_.is_uneven ? sent(from, to) : call_.count_of(to);
        return value(from, first + index, call_.dtype, ReduceOp::kSum);
      }
      default:
        return 0;
    }
  }

  Communicator& ranks_;
  const Drawn& call_;
  const int rank_;
  Counts sends_, receives_;
  Buffer input_, output_, before_;
  BufferView from_, to_;
  std::optional<Buffer> another_;
  Work work_;
};

std::string text_of(const Drawn& call, std::size_t index) {
  return fmt::format("call {}: {} of {} {} elements, {}, root {}, in place {}, uneven {}, '{}', odd {}", index,
                     name(call.collective), call.total(), name(call.dtype), name(call.op), call.root, call.in_place,
                     call.is_uneven, call.algorithm, call.odd_rank);
}

void make_calls(Communicator& ranks, unsigned seed) {
  Random random(seed * 7919 + static_cast<unsigned>(ranks.size()));
  std::vector<Drawn> calls;
  for (int i = 0; i < 24; ++i) calls.push_back(draw_call(random, ranks));
  std::vector<std::unique_ptr<Side>> sides;
  for (const Drawn& call : calls) sides.push_back(std::make_unique<Side>(ranks, call));
  for (const auto& side : sides) side->start();
  for (std::size_t i = sides.size(); i-- > 0;) {
    EXPECT_EQ(sides[i]->end(), "") << text_of(calls[i], i) << ", rank " << ranks.rank();
  }
}

/// Every other rank, or the rest, last rank first.
Communicator part_in_reverse(Communicator& all, const Layout& layout) {
  Layout hosts;
  for (int rank = all.size() - 1; rank >= 0; --rank) {
    if (rank % 2 == all.rank() % 2) hosts.push_back(layout[static_cast<std::size_t>(rank)]);
  }
  return CommunicatorProbe::on_hosts(all.split(all.rank() % 2, -all.rank()), hosts);
}

TEST(MixedCalls, GiveTheirResultsOnRandomHosts) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    Random random(seed);
    const auto size = static_cast<int>(2 + random.below(6));
    const std::size_t hosts = 2 + random.below(4);
    Layout layout;
    for (int rank = 0; rank < size; ++rank) layout.push_back(static_cast<int>(random.below(hosts)));
    SCOPED_TRACE(fmt::format("seed {}, hosts {}", seed, testing::PrintToString(layout)));
    const bool splits = random.below(3) == 0;
    run_replicas(size, [&](Communicator& all) {
      Communicator whole = CommunicatorProbe::on_hosts(all.duplicate(), layout);
      if (splits) {
        Communicator part = part_in_reverse(all, layout);
        make_calls(part, seed);
      }
      make_calls(whole, seed);
    });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace farandole
