// SPDX-License-Identifier: Apache-2.0
// Minimum and maximum of f32 and f64 by the vendor's collective, which combines ordered integers.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "double_calls.h"
#include "graph_capture.h"
#include "groups.h"
#include "on_device.h"

namespace farandole::test {
namespace {

constexpr std::array kMinAndMax{ReduceOp::kMin, ReduceOp::kMax};

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

/// Any sign and payload; quiet or signalling.
template <class T>
T random_nan(std::mt19937_64& random) {
  using Bits = BitsOf<T>;
  const auto exponent = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  return std::bit_cast<T>(static_cast<Bits>(random()) | exponent | 1);
}

/// A number of any kind: subnormal, of any size, infinite, a power of two, or a zero.
template <class T>
T random_number(std::mt19937_64& random) {
  using Limits = std::numeric_limits<T>;
  const T sign = random() % 2 == 0 ? T{1} : T{-1};
  switch (random() % 6) {
    case 0:
      return sign * Limits::denorm_min() * static_cast<T>(1 + random() % 5);
    case 1:
      return sign * Limits::infinity();
    case 2:
      return sign * (random() % 2 == 0 ? Limits::max() : Limits::min());
    case 3:
      return sign * static_cast<T>(1 + random() % 3);
    default: {
      const T value = std::bit_cast<T>(static_cast<BitsOf<T>>(random()));
      return std::isnan(value) ? T{7} : value;
    }
  }
}

/// A rank's vector, of which any schedule gives the same bits: of an element at most one rank has a NaN, and no rank
/// has a zero of another sign. @param is_scaled  without NaNs, infinities, and values that scaling rounds to zero
template <class T>
std::vector<T> values_of(const Communicator& ranks, std::size_t count, bool is_scaled = false) {
  std::mt19937_64 shared(count), own(static_cast<unsigned>(ranks.rank()) + 1);
  std::vector<T> values(count);
  for (T& value : values) {
    const auto choice = shared() % 8;
    const auto rank_with_nan = static_cast<int>(shared() % static_cast<std::uint64_t>(ranks.size()));
    value = random_number<T>(own);
    if (choice == 0 && ranks.rank() == rank_with_nan && !is_scaled) value = random_nan<T>(own);
    if (value == 0 || (is_scaled && !std::isnormal(value))) value = T{1};
    if (choice == 1) value = T{0};
    if (choice == 2) value = -T{0};
  }
  return values;
}

struct MinimumCase {
  Collective collective = Collective::kAllreduce;
  ReduceOp op = ReduceOp::kMin;
  std::size_t each = 0;  ///< elements per rank
  bool in_place = false;
  double prescale = 1.0, postscale = 1.0;
};

/// Runs the case on host memory, and on the device by `caller` with a stream, and compares all bits.
template <class T>
void check_minimum(Communicator& ranks, Communicator& caller, const MinimumCase& c) {
  const std::string what = fmt::format("{} of {} {} by {}, in place {}, factors {} {}", name(c.op), c.each,
                                       name(dtype_of<T>), name(c.collective), c.in_place, c.prescale, c.postscale);
  const std::size_t count = c.each * static_cast<std::size_t>(ranks.size());
  std::vector<T> input = values_of<T>(ranks, count, c.prescale != 1.0 || c.postscale != 1.0);
  std::vector<T> output(c.collective == Collective::kReduceScatter ? c.each : count, T{3});
  const bool in_place = c.in_place && input.size() == output.size();
  Buffer device_input = to_device(ranks, input), device_output = to_device(ranks, output);
  const StreamView stream(nullptr, ranks.device());
  const auto run = [&](Communicator& by, BufferView from, BufferView to, const CallOptions& options) {
    call_collective(by, c.collective, from, to, c.op, ranks.size() / 2, {}, options);
  };
  run(ranks, input, in_place ? BufferView(input) : BufferView(output),
      {.prescale = c.prescale, .postscale = c.postscale});
  run(caller, device_input.view(), in_place ? device_input.view() : device_output.view(),
      {.prescale = c.prescale, .postscale = c.postscale, .algorithm = "vendor", .stream = stream});
  device_of(ranks).synchronize(stream);
  EXPECT_TRUE(same_bits(to_host(ranks, device_input.view()).view(), input)) << "input of " << what;
  EXPECT_TRUE(same_bits(to_host(ranks, device_output.view()).view(), output)) << what;
}

template <class T>
void check_all(Communicator& ranks, Communicator& caller) {
  for (const Collective collective : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter}) {
    for (const ReduceOp op : kMinAndMax) {
      for (const bool in_place : {false, true}) {
        for (const std::size_t each : {0, 1, 1003}) check_minimum<T>(ranks, caller, {collective, op, each, in_place});
        check_minimum<T>(ranks, caller, {collective, op, 501, in_place, 0.5, 1.0});
        check_minimum<T>(ranks, caller, {collective, op, 501, in_place, -2.0, 3.0});
      }
    }
  }
}

TEST(DeviceMinimum, GivesTheBitsOfTheHost) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  for_each_device_group({2, 3, 4}, [](Communicator& ranks) {
    Communicator caller = ranks.duplicate({.device_order = CommunicatorOptions::DeviceOrder::kCaller});
    for (Communicator* by : {&ranks, &caller}) {
      check_all<float>(ranks, *by);
      check_all<double>(ranks, *by);
    }
  });
}

/// Where the host's result depends on the algorithm, the device's is still of the values.
template <class T>
void check_ties(Communicator& ranks, ReduceOp op) {
  std::mt19937_64 random(7);  // the same on all ranks
  std::vector<std::vector<T>> nans(static_cast<std::size_t>(ranks.size()));
  for (std::vector<T>& of_rank : nans) {
    for (int i = 0; i < 500; ++i) of_rank.push_back(random_nan<T>(random));
  }
  std::vector<T> values = nans[static_cast<std::size_t>(ranks.rank())];
  values.push_back(ranks.rank() == 0 ? -T{0} : T{0});
  Buffer device = to_device(ranks, values);
  ranks.allreduce(device.view(), op, {.algorithm = "vendor"});
  Buffer host = to_host(ranks, device.view());
  const auto bits_of = [](T value) { return std::bit_cast<BitsOf<T>>(value); };
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    EXPECT_TRUE(
        std::any_of(nans.begin(), nans.end(),
                    [&](const std::vector<T>& of_rank) { return bits_of(of_rank[i]) == bits_of(host.as<T>()[i]); }))
        << name(op) << " of NaNs, " << i;
  }
  EXPECT_EQ(std::signbit(host.as<T>()[values.size() - 1]), op == ReduceOp::kMin) << name(op) << " of zeros";
}

TEST(DeviceMinimum, OfNansIsOneOfThemAndOfZerosHasASign) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    for (const ReduceOp op : kMinAndMax) {
      check_ties<float>(ranks, op);
      check_ties<double>(ranks, op);
    }
  });
}

/// Farandole chooses the vendor by itself.
TEST(DeviceMinimum, IsOneCallOfTheVendorBetweenTwoKernels) {
  for_each_device_group({2, 4}, [](Communicator& ranks) {
    Communicator caller = ranks.duplicate({.device_order = CommunicatorOptions::DeviceOrder::kCaller});
    const StreamView stream = device_of(ranks).make_stream();
    Buffer values = to_device(ranks, values_of<float>(ranks, 1000));
    const auto find_maximum = [&] {
      caller.allreduce(values.view(), ReduceOp::kMax, {.stream = stream});
      device_of(ranks).synchronize(stream);
      ranks.barrier();
    };
    find_maximum();
    const unsigned long launches = calls_of("cuLaunchKernel"), reductions = calls_of("ncclAllReduce");
    const unsigned long allocations = calls_of("cuMemAlloc");
    ranks.barrier();
    find_maximum();
    if (reductions > 0) {
      const auto in_process = static_cast<unsigned long>(is_launched() ? 1 : ranks.size());
      EXPECT_EQ(calls_of("ncclAllReduce") - reductions, in_process);
      EXPECT_EQ(calls_of("cuLaunchKernel") - launches, 2 * in_process);
      EXPECT_EQ(calls_of("cuMemAlloc"), allocations);
    }
    ranks.barrier();
  });
}

TEST(DeviceMinimum, ReplaysOfAGraphGiveTheBitsOfTheCall) {
  for_each_device_group({2, 3}, [](Communicator& ranks) {
    const StreamView stream = device_of(ranks).make_stream();
    for (const Collective collective : {Collective::kAllreduce, Collective::kReduceScatter}) {
      Communicator caller = ranks.duplicate({.device_order = CommunicatorOptions::DeviceOrder::kCaller});
      const std::size_t each = 700, count = each * static_cast<std::size_t>(ranks.size());
      const Buffer input = to_device(ranks, values_of<double>(ranks, count));
      const std::vector<double> nothing(collective == Collective::kAllreduce ? count : each);
      Buffer output = to_device(ranks, nothing);
      const auto find_minimum = [&] {
        const BufferView from(const_cast<void*>(input.view().data), count, DType::kF64, ranks.device());
        call_collective(caller, collective, from, output.view(), ReduceOp::kMin, 0, {},
                        {.algorithm = "vendor", .stream = stream});
      };
      find_minimum();
      device_of(ranks).synchronize(stream);
      const Buffer expected = to_host(ranks, output.view());
      StreamCapture capture(device_of(ranks), stream);
      find_minimum();
      const auto graph = capture.end();
      for (int replay = 0; replay < 3; ++replay) {
        copy_now(device_of(ranks), output.view().data, nothing.data(), output.view().size_in_bytes());
        graph->launch(stream);
        device_of(ranks).synchronize(stream);
        ASSERT_TRUE(same_bits(to_host(ranks, output.view()).view(), expected.view())) << name(collective);
      }
    }
  });
}

}  // namespace
}  // namespace farandole::test
