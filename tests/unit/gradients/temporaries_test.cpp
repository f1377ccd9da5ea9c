// SPDX-License-Identifier: Apache-2.0
// Containers that are read or written after the call has returned must not be temporaries: calls that pass one do not
// compile.
#include <gtest/gtest.h>

#include <array>
#include <complex>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/gradients/gradient_averager.h"

namespace farandole {
namespace {

using Vector = std::vector<float>;
using Array = std::array<float, 3>;
using Span = std::span<float>;

/// Whether each asynchronous collective takes a value of `Input`.
template <class Input>
concept TakenByAllreduce = requires(Communicator& ranks, Input&& input, Vector& output) {
  ranks.allreduce_async(std::forward<Input>(input), output, ReduceOp::kSum, CallOptions{});
};
template <class Input>
concept TakenByReduce = requires(Communicator& ranks, Input&& input, Vector& output) {
  ranks.reduce_async(std::forward<Input>(input), output, ReduceOp::kSum, 0);
};
template <class Input>
concept TakenByAllgather = requires(Communicator& ranks, Input&& input, Vector& output) {
  ranks.allgather_async(std::forward<Input>(input), output);
};
template <class Input>
concept TakenByReduceScatter = requires(Communicator& ranks, Input&& input, Vector& output) {
  ranks.reduce_scatter_async(std::forward<Input>(input), output, ReduceOp::kSum);
};
template <class Input>
concept TakenByGather = requires(Communicator& ranks, Input&& input, Vector& output) {
  ranks.gather_async(std::forward<Input>(input), output, 0);
};
template <class Input>
concept TakenByScatter = requires(Communicator& ranks, Input&& input, Vector& output) {
  ranks.scatter_async(std::forward<Input>(input), output, 0);
};
template <class Input>
concept TakenByAlltoall = requires(Communicator& ranks, Input&& input, Vector& output) {
  ranks.alltoall_async(std::forward<Input>(input), output);
};
template <class Input>
inline constexpr bool taken_by_all = TakenByAllreduce<Input>&& TakenByReduce<Input>&& TakenByAllgather<Input>&&
    TakenByReduceScatter<Input>&& TakenByGather<Input>&& TakenByScatter<Input>&& TakenByAlltoall<Input>;
template <class Input>
inline constexpr bool taken_by_any =
    TakenByAllreduce<Input> || TakenByReduce<Input> || TakenByAllgather<Input> || TakenByReduceScatter<Input> ||
    TakenByGather<Input> || TakenByScatter<Input> || TakenByAlltoall<Input>;

static_assert(taken_by_all<Vector&> && taken_by_all<const Vector&> && taken_by_all<Array&>);
static_assert(taken_by_all<Span> && taken_by_all<std::span<const float>> && taken_by_all<const Span&>);
static_assert(taken_by_all<BufferView> && taken_by_all<ConstBufferView> && taken_by_all<const BufferView&>);
static_assert(!taken_by_any<Vector> && !taken_by_any<const Vector> && !taken_by_any<Array>);

/// Whether each collective writes to a value of `Output`.
template <class Output>
concept TakesOutput = requires(Communicator& ranks, const Vector& input, Output&& output) {
  ranks.allreduce_async(input, std::forward<Output>(output), ReduceOp::kSum);
};
template <class Output>
concept TakesInPlace = requires(Communicator& ranks, Output&& output) {
  ranks.allreduce_async(std::forward<Output>(output), ReduceOp::kSum);
};
template <class Output>
concept TakesBroadcast = requires(Communicator& ranks, Output&& output) {
  ranks.broadcast_async(std::forward<Output>(output), 0);
};
template <class Output>
inline constexpr bool is_output = TakesOutput<Output>&& TakesInPlace<Output>&& TakesBroadcast<Output>;
template <class Output>
inline constexpr bool is_refused_output = !TakesOutput<Output> && !TakesInPlace<Output> && !TakesBroadcast<Output>;

static_assert(is_output<Vector&> && is_output<Array&> && is_output<Span> && is_output<BufferView>);
static_assert(is_refused_output<Vector> && is_refused_output<Array> && is_refused_output<const Vector&>);

// Braces do not get a temporary through either.
template <class Input>
concept TakenInBraces = requires(Communicator& ranks, Input&& input, Vector& output) {
  ranks.allgather_async({std::forward<Input>(input)}, output);
};
static_assert(TakenInBraces<Vector&> && !TakenInBraces<Vector>);

/// A gradient is kept for the life of the averager.
template <class Values>
concept IsGradient = requires(Values&& values) {
  GradientSpan{std::forward<Values>(values), "weights"};
};
static_assert(IsGradient<Vector&> && IsGradient<Span> && IsGradient<BufferView> && !IsGradient<Vector>);

// A blocking call is done with its input when it returns.
template <class Input>
concept TakenByBlocking = requires(Communicator& ranks, Input&& input, Vector& output) {
  ranks.allgather(std::forward<Input>(input), output);
};
static_assert(TakenByBlocking<Vector> && TakenByBlocking<const Vector&>);

struct Pair {
  double weight = 0;
  std::int32_t index = 0;
};
template <class Values>
concept HasByteView = requires(Values&& values) {
  byte_view(std::forward<Values>(values));
};
static_assert(HasByteView<std::vector<Pair>&> && HasByteView<const std::vector<Pair>&> && HasByteView<std::span<Pair>>);
static_assert(HasByteView<Pair&> && HasByteView<const Pair&>);
static_assert(!HasByteView<std::vector<Pair>> && !HasByteView<Pair>);
static_assert(!HasByteView<std::vector<std::string>&> && !HasByteView<std::string*&>);

TEST(ByteView, MovesAnyTriviallyCopyableType) {
  run_replicas(3, [](Communicator& ranks) {
    const auto size = static_cast<std::size_t>(ranks.size());
    const auto pair_of = [](int rank, int place) { return Pair{rank + 0.5 * place, 10 * rank + place}; };
    const auto are_equal = [](const Pair& a, const Pair& b) { return a.weight == b.weight && a.index == b.index; };
    const std::vector<Pair> own{pair_of(ranks.rank(), 0), pair_of(ranks.rank(), 1)};
    std::vector<Pair> all(2 * size);
    ranks.allgather(byte_view(own), byte_view(all));
    std::vector<Pair> gathered(2 * size), scattered(2);
    ranks.gather(byte_view(own), byte_view(gathered), 1);
    ranks.scatter(byte_view(all), byte_view(scattered), 0);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      for (int place = 0; place < 2; ++place) {
        const auto index = static_cast<std::size_t>(2 * rank + place);
        EXPECT_TRUE(are_equal(all[index], pair_of(rank, place)));
        EXPECT_TRUE(ranks.rank() != 1 || are_equal(gathered[index], pair_of(rank, place)));
      }
    }
    EXPECT_TRUE(are_equal(scattered[1], pair_of(ranks.rank(), 1)));
    // Counts are bytes.
    std::vector<std::complex<double>> sent(size, {1.0 * ranks.rank(), -1.0}), received(size);
    const std::vector<std::size_t> counts(size, sizeof(std::complex<double>));
    ranks.alltoall(byte_view(sent), byte_view(received), counts, counts);
    for (std::size_t rank = 0; rank < size; ++rank) {
      EXPECT_EQ(received[rank], std::complex<double>(static_cast<double>(rank), -1.0));
    }
    long double number = ranks.rank() + 0.25L;
    ranks.broadcast(byte_view(number), 2);
    EXPECT_EQ(number, 2.25L);
  });
}

}  // namespace
}  // namespace farandole
