// SPDX-License-Identifier: Apache-2.0
#include "bench_case.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <new>
#include <type_traits>

#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"

namespace farandole::bench {
namespace {

bool gathers(Collective c) {
  return c == Collective::kAllgather || c == Collective::kGather;
}
bool scatters(Collective c) {
  return c == Collective::kReduceScatter || c == Collective::kScatter;
}

/// Value of element `index` on `rank`: a small number, so that sums and products are exact in most types.
double number(int rank, std::size_t index, ReduceOp op) {
  const auto mixed = static_cast<int>((index + static_cast<std::size_t>(rank)) % 3);
  if (is_bitwise(op)) return std::array{0, 3, 5}.at(static_cast<std::size_t>(mixed));
  return op == ReduceOp::kProduct ? 1 + mixed % 2 : mixed;
}

/// The value that an element stores for a number. A bool stores 1 for every number but 0, so that sum and max are "or",
/// and product and min are "and".
double as_element(DType dtype, double number) {
  return dtype == DType::kBool && number != 0 ? 1 : number;
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
  with_stored_type(view.dtype, [&](auto zero) {
    auto* const data = static_cast<decltype(zero)*>(view.data);
    for (std::size_t i = 0; i < view.count; ++i) assign(data[i], as_element(view.dtype, number(rank, first + i, op)));
  });
}

double combined_bits(double left, double right, ReduceOp op) {
  const auto a = static_cast<unsigned>(left), b = static_cast<unsigned>(right);
  if (op == ReduceOp::kBitAnd) return a & b;
  return op == ReduceOp::kBitOr ? a | b : a ^ b;
}

double reduced(int size, std::size_t index, DType dtype, ReduceOp op) {
  double result = as_element(dtype, number(0, index, op));
  for (int rank = 1; rank < size; ++rank) {
    const double next = as_element(dtype, number(rank, index, op));
    if (op == ReduceOp::kProduct) {
      result *= next;
    } else if (op == ReduceOp::kMin) {
      result = std::min(result, next);
    } else if (is_bitwise(op)) {
      result = combined_bits(result, next, op);
    } else {
      result = op == ReduceOp::kMax ? std::max(result, next) : result + next;
    }
  }
  return op == ReduceOp::kAverage ? result / size : result;
}

/// Expected value of element `i` of this rank's result.
double expected(const Communicator& ranks, const CallShape& shape, DType dtype, ReduceOp op, int root, std::size_t i) {
  if (shape.is_sendrecv) return number((ranks.rank() + ranks.size() - 1) % ranks.size(), i, op);
  const std::size_t part = shape.part;
  const std::size_t own = static_cast<std::size_t>(ranks.rank()) * part;
  switch (shape.collective) {
    case Collective::kReduceScatter:
      return reduced(ranks.size(), own + i, dtype, op);
    case Collective::kBroadcast:
      return number(root, i, op);
    case Collective::kScatter:
      return number(root, own + i, op);
    case Collective::kAllgather:
    case Collective::kGather:
      return number(static_cast<int>(i / part), i % part, op);
    case Collective::kAlltoall:
      return number(static_cast<int>(i / part), own + i % part, op);
    default:
      return reduced(ranks.size(), i, dtype, op);
  }
}

std::function<void()> call_of(Communicator& ranks, const Options& options, Collective collective,
                              const std::string& algorithm, ConstBufferView source, BufferView target) {
  const CallOptions named{.algorithm = algorithm};
  const ReduceOp op = options.op;
  const int root = options.root;
  switch (collective) {
    case Collective::kAllreduce:
      return [=, &ranks] { ranks.allreduce(source, target, op, named); };
    case Collective::kBroadcast:
      return [=, &ranks] { ranks.broadcast(target, root, named); };
    case Collective::kReduce:
      return [=, &ranks] { ranks.reduce(source, target, op, root, named); };
    case Collective::kAllgather:
      return [=, &ranks] { ranks.allgather(source, target, {}, named); };
    case Collective::kReduceScatter:
      return [=, &ranks] { ranks.reduce_scatter(source, target, op, {}, named); };
    case Collective::kGather:
      return [=, &ranks] { ranks.gather(source, target, root, {}, named); };
    case Collective::kScatter:
      return [=, &ranks] { ranks.scatter(source, target, root, {}, named); };
    case Collective::kAlltoall:
      return [=, &ranks] { ranks.alltoall(source, target, {}, {}, named); };
    case Collective::kBarrier:
      break;
  }
  return [=, &ranks] { ranks.barrier(named); };
}

std::function<void()> exchange_of(Communicator& ranks, ConstBufferView source, BufferView target) {
  const int next = (ranks.rank() + 1) % ranks.size();
  const int previous = (ranks.rank() + ranks.size() - 1) % ranks.size();
  return [=, &ranks] { ranks.exchange({{PeerMessage::send(source, next), PeerMessage::recv(target, previous)}}); };
}

VendorCall vendor_call(const Options& options, const CallShape& shape, ConstBufferView source, BufferView target) {
  VendorCall call;
  call.collective = shape.collective;
  call.input = source.data;
  call.output = target.data;
  call.count = has_parts(shape.collective) ? shape.part : shape.count;
  call.dtype = options.dtype;
  call.op = options.op;
  call.root = options.root;
  return call;
}

}  // namespace

Device& device_of(Communicator& ranks) {
  const MemorySpace space = ranks.device();
  return device_runtime(internals(ranks).settings()).runtime->open(space.ordinal);
}

CallShape shape_of(const Communicator& ranks, const Options& options, Collective collective, std::size_t bytes,
                   bool in_place) {
  const auto size = static_cast<std::size_t>(ranks.size());
  CallShape shape;
  shape.collective = collective;
  shape.in_place = in_place;
  shape.count = collective == Collective::kBarrier ? 0 : std::max<std::size_t>(1, bytes / size_in_bytes(options.dtype));
  if (has_parts(collective)) shape.count = std::max(size, shape.count / size * size);
  shape.part = shape.count / size;
  return shape;
}

CallShape sendrecv_shape_of(const Communicator& ranks, const Options& options, std::size_t bytes) {
  CallShape shape = shape_of(ranks, options, Collective::kAllreduce, bytes, /*in_place=*/false);
  shape.is_sendrecv = true;
  return shape;
}

Contender::Contender(Communicator& ranks, const Options& options, const CallShape& shape, bool for_vendor)
    : shape_(shape), expected_op_(for_vendor && options.op == ReduceOp::kAverage ? ReduceOp::kSum : options.op) {
  const std::size_t input_count = gathers(shape.collective) ? shape.part : shape.count;
  const std::size_t output_count = scatters(shape.collective) ? shape.part : shape.count;
  if (options.memory == Memory::kDevice) device_ = &device_of(ranks);
  const auto buffer = [&](std::size_t count) {
    if (device_ != nullptr) return ranks.allocate(count, options.dtype, device_->space());
    const bool in_window = options.memory == Memory::kWindow && !for_vendor;
    return in_window ? ranks.allocate(count, options.dtype) : Buffer(count, options.dtype);
  };
  pairs_ = std::make_shared<std::vector<Pair>>(static_cast<std::size_t>(options.pairs));
  try {
    for (Pair& pair : *pairs_) {
      pair.output = buffer(shape.in_place ? shape.count : output_count);
      if (!shape.in_place) pair.input = buffer(input_count);
    }
  } catch (const std::bad_alloc&) {
    throw InvalidArgument(fmt::format("no memory for {} pair{} of buffers of {} bytes; lower --max-bytes{}",
                                      options.pairs, options.pairs == 1 ? "" : "s",
                                      shape.count * size_in_bytes(options.dtype),
                                      options.pairs == 1 ? "" : " or --rotate-buffers"));
  }
  for (Pair& pair : *pairs_) {
    lay_out(pair, ranks.rank(), for_vendor);
    fill_first(pair, ranks.rank(), options.op);
  }
}

void Contender::fill_first(const Pair& pair, int rank, ReduceOp op) const {
  const bool one_sided = shape_.collective == Collective::kBroadcast;
  const BufferView source{const_cast<void*>(pair.source.data), pair.source.count, pair.source.dtype};
  const BufferView filled = one_sided ? pair.target : source;
  if (device_ == nullptr) return fill(filled, rank, 0, op);
  Buffer host(filled.count, filled.dtype);
  fill(host.view(), rank, 0, op);
  const StreamView stream(nullptr, device_->space());
  device_->copy(filled.data, host.view().data, filled.size_in_bytes(), stream);
  device_->synchronize(stream);
}

void Contender::zero(Pair& pair) const {
  const BufferView all = pair.output.view();
  if (device_ == nullptr) {
    std::fill_n(static_cast<std::byte*>(all.data), all.size_in_bytes(), std::byte{0});
    return;
  }
  const StreamView stream(nullptr, device_->space());
  device_->fill_zero(all.data, all.size_in_bytes(), stream);
  device_->synchronize(stream);
}

// In place, the smaller buffer is the rank's own part of the larger buffer. Exception: MPI's in-place reduce_scatter
// puts its result at the beginning.
void Contender::lay_out(Pair& pair, int rank, bool for_vendor) const {
  const BufferView whole = pair.output.view();
  pair.source = shape_.in_place ? whole : pair.input.view();
  pair.target = whole;
  if (!shape_.in_place) return;
  const std::size_t place = static_cast<std::size_t>(rank) * shape_.part;
  if (gathers(shape_.collective)) pair.source = whole.part(place, shape_.part);
  if (!scatters(shape_.collective)) return;
  const bool first = for_vendor && shape_.collective == Collective::kReduceScatter;
  pair.target = whole.part(first ? 0 : place, shape_.part);
}

void Contender::bind(Communicator& ranks, const Options& options, const std::string& algorithm) {
  calls_.clear();
  for (const Pair& pair : *pairs_) {
    calls_.push_back(shape_.is_sendrecv
                         ? exchange_of(ranks, pair.source, pair.target)
                         : call_of(ranks, options, shape_.collective, algorithm, pair.source, pair.target));
  }
}

Contender Contender::farandole(Communicator& ranks, const Options& options, const CallShape& shape,
                               const std::string& algorithm) {
  Contender contender(ranks, options, shape, /*for_vendor=*/false);
  contender.bind(ranks, options, algorithm);
  return contender;
}

Contender Contender::on(Communicator& other, const Options& options) const {
  Contender contender = *this;
  contender.bind(other, options, "");
  return contender;
}

Contender Contender::vendor(Communicator& ranks, const Options& options, const CallShape& shape,
                            VendorCollectives& collectives) {
  Contender contender(ranks, options, shape, /*for_vendor=*/true);
  for (const Pair& pair : *contender.pairs_) {
    contender.calls_.push_back(collectives.blocking(vendor_call(options, shape, pair.source, pair.target)));
  }
  return contender;
}

Contender Contender::nccl(Communicator& ranks, const Options& options, const CallShape& shape, NcclPeer& nccl) {
  if (!has_device_collective(shape.collective)) {
    throw InvalidArgument(fmt::format("--peer nccl: NCCL has no {}; name other collectives", name(shape.collective)));
  }
  Contender contender(ranks, options, shape, /*for_vendor=*/false);
  if (options.op == ReduceOp::kAverage) contender.expected_op_ = ReduceOp::kSum;
  for (const Pair& pair : *contender.pairs_) {
    const VendorCall call = vendor_call(options, shape, pair.source, pair.target);
    if (!nccl.supports(call)) {
      throw InvalidArgument(fmt::format("--peer nccl: NCCL has no {} of {}", name(options.op), name(options.dtype)));
    }
    contender.calls_.push_back([&nccl, call] { nccl.run(call); });
  }
  return contender;
}

long long Contender::try_all(Communicator& ranks, const Options& options) {
  std::vector<std::int64_t> wrong{0};
  for (std::size_t i = 0; i < pairs_->size(); ++i) {
    calls_[i]();
    if (options.check) wrong[0] += count_wrong(ranks, options, (*pairs_)[i]);
    // Repeated in-place reductions would make the values grow. Zeros stay finite and cost the same.
    if (shape_.in_place && reduces(shape_.collective)) zero((*pairs_)[i]);
  }
  ranks.allreduce(wrong, ReduceOp::kSum);
  return wrong[0];
}

long long Contender::count_wrong(const Communicator& ranks, const Options& options, const Pair& pair) const {
  const bool at_root_only = shape_.collective == Collective::kReduce || shape_.collective == Collective::kGather;
  if (shape_.collective == Collective::kBarrier || (at_root_only && ranks.rank() != options.root)) return 0;
  long long wrong = 0;
  Buffer host;
  ConstBufferView target = pair.target;
  if (device_ != nullptr) {
    host = Buffer(target.count, target.dtype);
    const StreamView stream(nullptr, device_->space());
    device_->copy(host.view().data, target.data, target.size_in_bytes(), stream);
    device_->synchronize(stream);
    target = host.view();
  }
  with_stored_type(target.dtype, [&](auto zero) {
    const auto* const data = static_cast<const decltype(zero)*>(target.data);
    for (std::size_t i = 0; i < target.count; ++i) {
      const double number = expected(ranks, shape_, options.dtype, expected_op_, options.root, i);
      double wanted = as_element(options.dtype, number);
      // Averages of integers are truncated, averages of floating-point values rounded; all other results are exact.
      if (std::is_integral_v<decltype(zero)>) wanted = std::trunc(wanted);
      if (std::abs(as_double(data[i]) - wanted) > 0.01 * std::abs(wanted)) ++wrong;
    }
  });
  return wrong;
}

}  // namespace farandole::bench
