#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>

#include "bench.h"
#include "farandole/core/deadline.h"

namespace farandole::bench {
namespace {

constexpr std::size_t kManyCallsBelow = 64 << 10;  // the clock is too coarse for one short call

/// Buffers and the call of one case. Chunks of the collectives that gather or scatter have `part` elements per rank.
struct Case {
  Buffer input, output;
  ConstBufferView source;
  BufferView target;
  std::function<void()> call;
};

bool gathers(Collective c) {
  return c == Collective::kAllgather || c == Collective::kGather;
}
bool scatters(Collective c) {
  return c == Collective::kReduceScatter || c == Collective::kScatter;
}
bool reduces(Collective c) {
  return c == Collective::kAllreduce || c == Collective::kReduce || c == Collective::kReduceScatter;
}

/// Small numbers, so that sums and products are exact in most types.
double number(int rank, std::size_t index, ReduceOp op) {
  const auto mixed = static_cast<int>((index + static_cast<std::size_t>(rank)) % 3);
  return op == ReduceOp::kProduct ? 1 + mixed % 2 : mixed;
}

template <class Visitor>
void visit(BufferView view, const Visitor& visitor) {
  switch (view.dtype) {
    case DType::kBool:
    case DType::kU8:
      return visitor(static_cast<std::uint8_t*>(view.data));
    case DType::kI8:
      return visitor(static_cast<std::int8_t*>(view.data));
    case DType::kU16:
      return visitor(static_cast<std::uint16_t*>(view.data));
    case DType::kI16:
      return visitor(static_cast<std::int16_t*>(view.data));
    case DType::kI32:
      return visitor(static_cast<std::int32_t*>(view.data));
    case DType::kI64:
      return visitor(static_cast<std::int64_t*>(view.data));
    case DType::kF16:
      return visitor(static_cast<Half*>(view.data));
    case DType::kBF16:
      return visitor(static_cast<BFloat16*>(view.data));
    case DType::kF32:
      return visitor(static_cast<float*>(view.data));
    case DType::kF64:
      return visitor(static_cast<double*>(view.data));
  }
}

void assign(Half& element, double number) {
  element = to_half(static_cast<float>(number));
}
void assign(BFloat16& element, double number) {
  element = to_bfloat16(static_cast<float>(number));
}
template <class T>
void assign(T& element, double number) {
  element = static_cast<T>(number);
}
double as_double(Half element) {
  return to_float(element);
}
double as_double(BFloat16 element) {
  return to_float(element);
}
template <class T>
double as_double(T element) {
  return static_cast<double>(element);
}

void fill(BufferView view, int rank, std::size_t first, ReduceOp op) {
  visit(view, [&](auto* data) {
    for (std::size_t i = 0; i < view.count; ++i) assign(data[i], number(rank, first + i, op));
  });
}

double reduced(int size, std::size_t index, ReduceOp op) {
  double result = number(0, index, op);
  for (int rank = 1; rank < size; ++rank) {
    const double next = number(rank, index, op);
    if (op == ReduceOp::kProduct) {
      result *= next;
    } else if (op == ReduceOp::kMin) {
      result = std::min(result, next);
    } else {
      result = op == ReduceOp::kMax ? std::max(result, next) : result + next;
    }
  }
  return op == ReduceOp::kAverage ? result / size : result;
}

/// What element `i` of this rank's result must be.
double expected(const Communicator& ranks, Collective collective, const Options& options, std::size_t i,
                std::size_t part) {
  const auto own = static_cast<std::size_t>(ranks.rank());
  switch (collective) {
    case Collective::kReduceScatter:
      return reduced(ranks.size(), own * part + i, options.op);
    case Collective::kBroadcast:
      return number(options.root, i, options.op);
    case Collective::kScatter:
      return number(options.root, own * part + i, options.op);
    case Collective::kAllgather:
    case Collective::kGather:
      return number(static_cast<int>(i / part), i % part, options.op);
    case Collective::kAlltoall:
      return number(static_cast<int>(i / part), own * part + i % part, options.op);
    default:
      return reduced(ranks.size(), i, options.op);
  }
}

std::function<void()> call_of(Communicator& ranks, const Options& options, Collective collective,
                              const std::string& algorithm, ConstBufferView source, BufferView target) {
  ReduceOptions reduction;
  reduction.algorithm = algorithm;
  const ReduceOp op = options.op;
  const int root = options.root;
  switch (collective) {
    case Collective::kAllreduce:
      return [=, &ranks] { ranks.allreduce(source, target, op, reduction); };
    case Collective::kBroadcast:
      return [=, &ranks, &algorithm] { ranks.broadcast(target, root, algorithm); };
    case Collective::kReduce:
      return [=, &ranks] { ranks.reduce(source, target, op, root, reduction); };
    case Collective::kAllgather:
      return [=, &ranks, &algorithm] { ranks.allgather(source, target, {}, algorithm); };
    case Collective::kReduceScatter:
      return [=, &ranks] { ranks.reduce_scatter(source, target, op, {}, reduction); };
    case Collective::kGather:
      return [=, &ranks, &algorithm] { ranks.gather(source, target, root, {}, algorithm); };
    case Collective::kScatter:
      return [=, &ranks, &algorithm] { ranks.scatter(source, target, root, {}, algorithm); };
    case Collective::kAlltoall:
      return [=, &ranks] { ranks.alltoall(source, target); };
    case Collective::kBarrier:
      break;
  }
  return [&ranks] { ranks.barrier(); };
}

/// Fills in buffers of `count` elements in all; in place, the smaller side lies at its place in the larger one.
void prepare(Case& c, const Communicator& ranks, const Options& options, Collective collective, std::size_t count,
             bool in_place) {
  const std::size_t part = count / static_cast<std::size_t>(ranks.size());
  const auto own = static_cast<std::size_t>(ranks.rank());
  const std::size_t input_count = gathers(collective) ? part : count;
  const std::size_t output_count = scatters(collective) ? part : count;
  c.output = Buffer(in_place ? count : output_count, options.dtype);
  if (!in_place) c.input = Buffer(input_count, options.dtype);
  const BufferView whole = c.output.view();
  const BufferView source = !in_place ? c.input.view() : gathers(collective) ? whole.part(own * part, part) : whole;
  c.target = in_place && scatters(collective) ? whole.part(own * part, part) : whole;
  c.source = source;
  fill(collective == Collective::kBroadcast ? c.target : source, ranks.rank(), 0, options.op);
}

long long count_wrong(Communicator& ranks, const Options& options, Collective collective, const Case& c,
                      std::size_t part) {
  long long wrong = 0;
  const bool at_root_only = collective == Collective::kReduce || collective == Collective::kGather;
  if (collective != Collective::kBarrier && (!at_root_only || ranks.rank() == options.root)) {
    visit(c.target, [&](auto* data) {
      for (std::size_t i = 0; i < c.target.count; ++i) {
        const double wanted = expected(ranks, collective, options, i, part);
        // Averages round; everything else is exact.
        if (std::abs(as_double(data[i]) - wanted) > 0.01 * std::abs(wanted)) ++wrong;
      }
    });
  }
  std::vector<std::int64_t> total{wrong};
  ranks.allreduce(total, ReduceOp::kSum);
  return total[0];
}

int samples_for(const Options& options, std::size_t bytes) {
  if (options.iterations > 0) return options.iterations;
  return bytes > (16 << 20) ? 10 : bytes > (1 << 20) ? 40 : bytes > (64 << 10) ? 100 : 300;
}

}  // namespace

double Result::busbw_gbs() const {
  const double n = ranks;
  switch (collective) {
    case Collective::kAllreduce:
      return algbw_gbs() * 2 * (n - 1) / n;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kBarrier:
      return algbw_gbs();
    default:
      return algbw_gbs() * (n - 1) / n;
  }
}

Result measure(Communicator& ranks, const Options& options, Collective collective, const std::string& algorithm,
               std::size_t bytes, bool in_place) {
  const auto size = static_cast<std::size_t>(ranks.size());
  const bool by_parts = gathers(collective) || scatters(collective) || collective == Collective::kAlltoall;
  std::size_t count =
      collective == Collective::kBarrier ? 0 : std::max<std::size_t>(1, bytes / size_in_bytes(options.dtype));
  if (by_parts) count = std::max(size, count / size * size);
  Case c;
  prepare(c, ranks, options, collective, count, in_place);
  c.call = call_of(ranks, options, collective, algorithm, c.source, c.target);

  Result result;
  result.collective = collective;
  result.algorithm = algorithm.empty() ? ranks.choose(collective, count * size_in_bytes(options.dtype)) : algorithm;
  result.transport = ranks.transport();
  result.ranks = ranks.size();
  result.bytes = count * size_in_bytes(options.dtype);
  result.count = count;
  result.in_place = in_place;
  c.call();
  if (options.check) result.wrong = count_wrong(ranks, options, collective, c, count / size);
  // Repeated in-place reductions grow: zeros keep them finite, and cost the same.
  if (in_place && reduces(collective))
    std::fill_n(c.output.as<std::byte>(), c.output.view().size_in_bytes(), std::byte{0});

  const int samples = samples_for(options, result.bytes);
  const int calls = result.bytes <= kManyCallsBelow ? 10 : 1;
  std::vector<double> times;
  for (int i = -samples / 10 - 2; i < samples; ++i) {
    ranks.barrier();
    const auto start = Clock::now();
    for (int k = 0; k < calls; ++k) c.call();
    const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
    if (i >= 0) times.push_back(elapsed.count() / calls);
  }
  std::sort(times.begin(), times.end());
  result.p50_us = times[times.size() / 2];
  result.p99_us = times[std::min(times.size() - 1, times.size() * 99 / 100)];
  return result;
}

std::vector<Result> run(Communicator& ranks, const Options& options) {
  std::vector<Result> results;
  const std::vector<std::string> automatic{""};
  for (const Collective collective : options.collectives) {
    for (const std::string& algorithm : options.algorithms.empty() ? automatic : options.algorithms) {
      double next = static_cast<double>(options.min_bytes);
      for (; next <= static_cast<double>(options.max_bytes); next *= options.factor) {
        const auto bytes = static_cast<std::size_t>(next);
        const std::size_t first = results.size();
        if (options.out_of_place && collective != Collective::kBroadcast) {
          results.push_back(measure(ranks, options, collective, algorithm, bytes, false));
        }
        if (options.in_place && collective != Collective::kBarrier) {
          results.push_back(measure(ranks, options, collective, algorithm, bytes, true));
        }
        const Result* apart = nullptr;
        const Result* in_place = nullptr;
        for (std::size_t i = first; i < results.size(); ++i) (results[i].in_place ? in_place : apart) = &results[i];
        if (ranks.rank() == 0) print_line(apart, in_place);
        if (collective == Collective::kBarrier) break;
      }
    }
  }
  return results;
}

}  // namespace farandole::bench
