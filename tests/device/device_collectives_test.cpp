// SPDX-License-Identifier: Apache-2.0
// Every collective and algorithm on device memory gives the same bits as the same call on host memory.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "on_device.h"
#include "random_values.h"

namespace farandole::test {
namespace {

const std::vector<int>& device_sizes() {
  static const std::vector<int> sizes{1, 2, 3, 4, 5, 8};
  return sizes;
}

std::vector<std::size_t> counts_for(int size) {
  const auto p = static_cast<std::size_t>(size);
  return {0, 1, p - 1, p, 97, 40'009};
}

struct Case {
  Collective collective = Collective::kAllreduce;
  std::string algorithm;  ///< empty: Farandole's choice
  std::size_t count = 0;  ///< of the whole vector; of alltoall and its like about that
  DType dtype = DType::kI32;
  ReduceOp op = ReduceOp::kSum;
  bool in_place = false;
  bool uneven = false;
  int segments = 0;
  double prescale = 1.0, postscale = 1.0;
};

std::string describe(const Case& c, const Communicator& ranks) {
  return fmt::format("{} by {} of {} {} {}, in place {}, uneven {}, {} segments, factors {} {}, rank {} of {}",
                     name(c.collective), c.algorithm.empty() ? "auto" : c.algorithm, c.count, name(c.dtype), name(c.op),
                     c.in_place, c.uneven, c.segments, c.prescale, c.postscale, ranks.rank(), ranks.size());
}

/// Runs one case with these buffers. @param host_algorithm  what runs on host memory in the place of `vendor`
void run(Communicator& ranks, const Case& c, BufferView input, BufferView output, const std::string& algorithm) {
  CallOptions options;
  options.algorithm = algorithm;
  options.segments = c.segments;
  options.prescale = c.prescale;
  options.postscale = c.postscale;
  std::vector<std::size_t> counts;
  if (c.uneven) {
    std::size_t left = c.count;
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const std::size_t own =
          rank + 1 == ranks.size()
              ? left
              : std::min(left, c.count / static_cast<std::size_t>(ranks.size()) + (rank % 2 == 0 ? 3 : 0));
      counts.push_back(own);
      left -= own;
    }
  }
  call_collective(ranks, c.collective, input, output, c.op, ranks.size() / 2, counts, options);
}

/// Elements of this rank's input and output.
std::pair<std::size_t, std::size_t> lengths(const Communicator& ranks, const Case& c) {
  const auto size = static_cast<std::size_t>(ranks.size()), rank = static_cast<std::size_t>(ranks.rank());
  const std::size_t each = c.count / size;
  std::size_t own = each;
  std::size_t all = each * size;
  if (c.uneven) {
    all = c.count;
    std::size_t left = c.count;
    for (std::size_t r = 0; r <= rank; ++r) {
      own = r + 1 == size ? left : std::min(left, each + (r % 2 == 0 ? 3 : 0));
      left -= own;
    }
  }
  switch (c.collective) {
    case Collective::kAllgather:
    case Collective::kGather:
      return {own, all};
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return {all, own};
    case Collective::kAlltoall:
      return {all, all};
    default:
      return {c.count, c.count};
  }
}

/// NCCL multiplies each input, and Farandole the sum: the results may differ in their last digits.
bool rounds_before_the_sum(const Case& c) {
  const bool has_factor = c.prescale != 1.0 || c.postscale != 1.0 || c.op == ReduceOp::kAverage;
  return c.algorithm == "vendor" && has_factor && is_floating_point(c.dtype);
}

/// Half of the digits that the type has; a wrong factor or sum is farther away.
double tolerance_of(DType dtype) {
  return dtype == DType::kF64 ? 1e-8 : dtype == DType::kF32 ? 1e-4 : 1.0 / 16;
}

/// Describes the first element that differs by more than rounding; empty if there is none.
std::string first_that_is_far(ConstBufferView came, ConstBufferView wanted) {
  double largest = 0;
  for (std::size_t i = 0; i < wanted.count; ++i) largest = std::max(largest, std::abs(load(wanted, i)));
  for (std::size_t i = 0; i < wanted.count; ++i) {
    if (std::abs(load(came, i) - load(wanted, i)) <= tolerance_of(wanted.dtype) * largest) continue;
    return fmt::format("element {} is {}, expected about {}", i, load(came, i), load(wanted, i));
  }
  return {};
}

void check(Communicator& ranks, const Case& c) {
  const auto [in, out] = lengths(ranks, c);
  Buffer input = random_values(static_cast<unsigned>(ranks.rank()), in, c.dtype, c.op);
  Buffer output = random_values(static_cast<unsigned>(ranks.rank()) + 100, out, c.dtype, c.op);
  Buffer device_input = to_device(ranks, input.view()), device_output = to_device(ranks, output.view());
  const bool in_place = c.in_place && in == out;
  // Another algorithm associates differently: the vendor is compared where that does not matter.
  run(ranks, c, input.view(), in_place ? input.view() : output.view(), c.algorithm == "vendor" ? "" : c.algorithm);
  run(ranks, c, device_input.view(), in_place ? device_input.view() : device_output.view(), c.algorithm);
  const Buffer came_output = to_host(ranks, device_output.view()), came_input = to_host(ranks, device_input.view());
  if (rounds_before_the_sum(c)) {
    const Buffer& came = in_place ? came_input : came_output;
    EXPECT_EQ(first_that_is_far(came.view(), (in_place ? input : output).view()), "") << describe(c, ranks);
    if (in_place) return;
  } else {
    EXPECT_TRUE(same_bits(came_output.view(), output.view())) << describe(c, ranks);
  }
  EXPECT_TRUE(same_bits(came_input.view(), input.view())) << "input of " << describe(c, ranks);
}

std::vector<std::string> algorithms_of(Collective collective, int size) {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective == collective && algorithm.supports(size)) names.emplace_back(algorithm.name);
  }
  return names;
}

bool has_vendor(Collective collective, int size) {
  return size > 1 && collective != Collective::kGather && collective != Collective::kScatter;
}

TEST(DeviceCollectives, EveryAlgorithmSizeAndCount) {
  for_each_device_group(device_sizes(), [](Communicator& ranks) {
    for (const Collective collective :
         {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter, Collective::kBroadcast,
          Collective::kAllgather, Collective::kGather, Collective::kScatter}) {
      std::vector<std::string> names = algorithms_of(collective, ranks.size());
      if (has_vendor(collective, ranks.size())) names.emplace_back("vendor");
      for (const std::string& algorithm : names) {
        for (const std::size_t count : counts_for(ranks.size())) {
          for (const bool in_place : {false, true})
            check(ranks, {collective, algorithm, count, DType::kI32, ReduceOp::kSum, in_place});
        }
      }
    }
  });
}

TEST(DeviceCollectives, AlltoallOfEverySizeAndCount) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  for_each_device_group(device_sizes(), [](Communicator& ranks) {
    for (const std::size_t count : counts_for(ranks.size())) {
      for (const bool in_place : {false, true})
        check(ranks, {Collective::kAlltoall, {}, count, DType::kI32, ReduceOp::kSum, in_place});
    }
  });
}

/// Ranks a and b exchange parts of the same length, which differs from pair to pair.
TEST(DeviceCollectives, AlltoallOfUnevenParts) {
  for_each_device_group({2, 3, 4}, [](Communicator& ranks) {
    for (const std::size_t each : {0, 1, 1000}) {
      std::vector<std::size_t> counts;
      std::size_t total = 0;
      for (int peer = 0; peer < ranks.size(); ++peer) {
        counts.push_back(each * static_cast<std::size_t>((ranks.rank() + peer) % 3));
        total += counts.back();
      }
      Buffer input = random_values(static_cast<unsigned>(ranks.rank()), total, DType::kI32, ReduceOp::kSum);
      Buffer output(total, DType::kI32);
      for (const bool in_place : {false, true}) {
        Buffer device_input = to_device(ranks, input.view()), device_output = to_device(ranks, output.view());
        const BufferView target = in_place ? device_input.view() : device_output.view();
        ranks.alltoall(device_input.view(), target, counts, counts);
        ranks.alltoall(input.view(), output.view(), counts, counts);
        EXPECT_TRUE(same_bits(to_host(ranks, target).view(), output.view())) << each << ", in place " << in_place;
      }
    }
  });
}

TEST(DeviceCollectives, FactorsOfTheVendorsReductions) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  for_each_device_group({2}, [](Communicator& ranks) {
    if (ranks.size() != 2) return;  // of more values, the order of additions shows
    for (const Collective collective : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter}) {
      for (const DType dtype : {DType::kF32, DType::kF64}) {
        for (const auto& [prescale, postscale] : {std::pair(0.5, 1.0), {1.0, 3.0}, {0.3, 0.7}}) {
          for (const bool in_place : {false, true}) {
            Case c{collective, "vendor", 40'009, dtype, ReduceOp::kSum, in_place};
            c.prescale = prescale;
            c.postscale = postscale;
            check(ranks, c);
          }
        }
      }
    }
  });
}

TEST(DeviceCollectives, TypesOperationsSegmentsFactorsAndPlaceByPairs) {
  for_each_device_group({2, 3, 4}, [](Communicator& ranks) {
    int k = 0;  // walks through the parameters that are not in the loops
    for (const Collective collective : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter}) {
      for (const std::string& algorithm : algorithms_of(collective, ranks.size())) {
        for (const DType dtype : kAllDTypes) {
          for (const ReduceOp op : kAllReduceOps) {
            if (op == ReduceOp::kAverage || !is_defined(op, dtype)) continue;
            ++k;
            const std::size_t counts[] = {1, 37, 1031};
            Case c{collective, algorithm, counts[k % 3], dtype, op, k % 2 == 0, k % 4 == 1, 1 + k % 3};
            const bool takes_factors = dtype != DType::kBool && !is_bitwise(op);
            if (takes_factors && k % 5 == 0) c.prescale = 0.5;
            if (takes_factors && k % 7 == 0) c.postscale = 3;
            if (collective == Collective::kAllreduce || collective == Collective::kReduce) c.uneven = false;
            check(ranks, c);
          }
        }
      }
    }
  });
}

TEST(DeviceCollectives, AveragesAndUnevenPartsOfEveryCollective) {
  for_each_device_group({2, 3, 5}, [](Communicator& ranks) {
    for (const DType dtype : kAllDTypes) {
      if (dtype == DType::kBool) continue;
      for (const int segments : {1, 3}) {
        check(ranks, {Collective::kAllreduce, "ring", 1031, dtype, ReduceOp::kAverage, false, false, segments});
      }
    }
    for (const Collective collective :
         {Collective::kReduceScatter, Collective::kAllgather, Collective::kGather, Collective::kScatter}) {
      for (const std::string& algorithm : algorithms_of(collective, ranks.size())) {
        check(ranks, {collective, algorithm, 1031, DType::kF32, ReduceOp::kSum, false, true});
      }
    }
  });
}

/// Elements whose sum leaves the type, and whose average is the element itself.
TEST(DeviceCollectives, AveragesAreRightThoughTheirSumsLeaveTheType) {
  for_each_device_group({2, 4}, [](Communicator& ranks) {
    for (const Collective collective : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter}) {
      std::vector<std::string> names = algorithms_of(collective, ranks.size());
      if (has_vendor(collective, ranks.size())) names.emplace_back("vendor");
      for (const std::string& algorithm : names) {
        for (const auto& [dtype, number] : {std::pair(DType::kU8, 200.0),
                                            {DType::kI8, -128.0},
                                            {DType::kU16, 65'535.0},
                                            {DType::kI16, -32'768.0},
                                            {DType::kI32, 2e9},
                                            {DType::kU32, 4e9},
                                            {DType::kF16, 60'000.0}}) {
          if (algorithm == "vendor" && size_in_bytes(dtype) == 2 && dtype != DType::kF16) continue;
          for (const double prescale : {1.0, 0.5}) {
            Case c{collective, algorithm, 1032, dtype, ReduceOp::kAverage};
            c.prescale = prescale;
            const auto [in, out] = lengths(ranks, c);
            Buffer values(in, dtype);
            for (std::size_t i = 0; i < in; ++i) store(values.view(), i, number);
            Buffer input = to_device(ranks, values.view());
            Buffer output = to_device(ranks, values.view().part(0, out));
            run(ranks, c, input.view(), output.view(), algorithm);
            if (collective == Collective::kReduce && ranks.rank() != ranks.size() / 2) continue;
            const Buffer came = to_host(ranks, output.view());
            const double wanted = dtype == DType::kF16 ? number * prescale : std::trunc(number * prescale);
            ASSERT_EQ(first_difference(came.view(), [&](std::size_t) { return wanted; }), "") << describe(c, ranks);
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace farandole::test
