// SPDX-License-Identifier: Apache-2.0
// Hierarchical collectives on device memory over simulated hosts, compared with a schedule on host memory. Values are
// chosen so that every order of operations gives the same bits.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "communicator_probe.h"
#include "driver_function.h"
#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "groups.h"
#include "message_of.h"
#include "on_device.h"
#include "values.h"
#include "variable.h"
#include "wrapped_transport.h"

namespace farandole::test {
namespace {

using ::testing::HasSubstr;

// Small, so that vectors which take no time have several slices.
constexpr const char* kSliceBytes = "2048";
constexpr std::size_t kSeveralSlices = 12'000;  // f32 elements: 4 slices and more on each layout

const std::vector<std::vector<int>>& layouts() {
  static const std::vector<std::vector<int>> all{
      {0, 1},       {0, 0, 1, 1},       {0, 1, 2},          {0, 0, 1},
      {0, 1, 0, 1}, {0, 0, 1, 1, 2, 2}, {0, 1, 1, 2, 2, 2}, {0, 0, 0, 1, 1, 1}};
  return all;
}

/// Host index of every rank of the job.
std::vector<int> hosts_of(Communicator& ranks) {
  const std::vector<std::int32_t> own{ranks.placement().host_index};
  std::vector<std::int32_t> all(static_cast<std::size_t>(ranks.size()));
  ranks.allgather(own, all);
  return {all.begin(), all.end()};
}

/// For ranks that are to count as living on these hosts: with a table that has measured alltoall, which names no
/// algorithm, to be hierarchical.
Communicator duplicate_for(Communicator& ranks, const std::vector<int>& layout) {
  TuningTable table;
  table.shape = internals(ranks).tuning_shape();
  table.shape.hosts = static_cast<int>(std::set<int>(layout.begin(), layout.end()).size());
  constexpr std::size_t kAnySize = std::numeric_limits<std::size_t>::max();
  table.of(Collective::kAlltoall, MemoryKind::kCuda) = {{kAnySize, "hierarchical", 1, 0}};
  return ranks.duplicate({.table = &table});
}

/// Calls `body` on communicators whose ranks count as living on these hosts, with several slices for little data.
void for_each_device_layout(const std::function<void(Communicator&, const std::vector<int>&)>& body,
                            std::size_t most_ranks = 8) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  const Variable slices("FARANDOLE_DEVICE_SLICE_BYTES", kSliceBytes);
  std::map<int, std::vector<std::vector<int>>> by_size;
  std::vector<int> sizes;
  for (const std::vector<int>& layout : layouts()) {
    if (layout.size() <= most_ranks) by_size[static_cast<int>(layout.size())].push_back(layout);
  }
  for (const auto& [size, of_size] : by_size) sizes.push_back(size);
  for_each_device_group(sizes, [&](Communicator& ranks) {
    std::vector<std::vector<int>> wanted;
    if (const auto found = by_size.find(ranks.size()); found != by_size.end()) wanted = found->second;
    if (ranks.placement().host_count > 1) wanted = {hosts_of(ranks)};
    for (const std::vector<int>& layout : wanted) {
      SCOPED_TRACE(testing::PrintToString(layout));
      Communicator hosts = CommunicatorProbe::on_hosts(duplicate_for(ranks, layout), layout);
      body(hosts, layout);
    }
  });
}

/// 1, 2 or 3, and for products 1 or 2: whatever is done with those of some ranks is exact in every type.
Buffer exact_values(int rank, std::size_t count, DType dtype, ReduceOp op) {
  Buffer buffer(count, dtype);
  const std::size_t values = op == ReduceOp::kProduct || dtype == DType::kBool ? 2 : 3;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t value = (i + 5 * static_cast<std::size_t>(rank)) % values;
    store(buffer.view(), i, static_cast<double>(dtype == DType::kBool ? value : value + 1));
  }
  return buffer;
}

struct HierarchyCase {
  Collective collective = Collective::kAllreduce;
  std::size_t count = 0;  // of the vector; of collectives that have parts of each part
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  bool in_place = false;
  double prescale = 1.0, postscale = 1.0;
  bool uneven = false;
};

void run_case(Communicator& ranks, const HierarchyCase& c, BufferView input, BufferView output,
              const std::string& algorithm) {
  CallOptions options;
  options.algorithm = algorithm;
  options.prescale = c.prescale;
  options.postscale = c.postscale;
  std::vector<std::size_t> counts;
  for (int rank = 0; c.uneven && rank < ranks.size(); ++rank) {
    counts.push_back(c.count + 3 * static_cast<std::size_t>(rank));
  }
  call_collective(ranks, c.collective, input, output, c.op, ranks.size() / 2, counts, options);
}

/// A schedule, on host memory.
const char* schedule_of(Collective collective) {
  switch (collective) {
    case Collective::kBroadcast:
    case Collective::kReduce:
      return "binomial";
    case Collective::kGather:
    case Collective::kScatter:
      return "linear";
    case Collective::kAlltoall:
      return "pairwise";
    default:
      return "ring";
  }
}

void check_case(Communicator& ranks, const HierarchyCase& c) {
  const auto size = static_cast<std::size_t>(ranks.size()), rank = static_cast<std::size_t>(ranks.rank());
  const bool gathers = c.collective == Collective::kAllgather || c.collective == Collective::kGather;
  const bool scatters = c.collective == Collective::kReduceScatter || c.collective == Collective::kScatter;
  const bool has_parts = gathers || scatters || c.collective == Collective::kAlltoall;
  const std::size_t part = c.count + (c.uneven ? 3 * rank : 0);
  const std::size_t all = has_parts ? c.count * size + (c.uneven ? 3 * size * (size - 1) / 2 : 0) : c.count;
  const std::size_t own = gathers ? part : all;  // elements of the input
  const std::size_t place = gathers ? c.count * rank + (c.uneven ? 3 * rank * (rank - 1) / 2 : 0) : 0;
  Buffer input = exact_values(ranks.rank(), own, c.dtype, c.op);
  Buffer output = exact_values(ranks.rank() + 1, scatters ? part : all, c.dtype, c.op);
  if (c.in_place && own > 0) {
    std::memcpy(static_cast<std::byte*>(output.view().data) + place * size_in_bytes(c.dtype), input.view().data,
                input.view().size_in_bytes());
  }
  const auto input_of = [&](Buffer& in, Buffer& out) -> BufferView {
    if (!c.in_place) return in.view();
    return {static_cast<std::byte*>(out.view().data) + place * size_in_bytes(c.dtype), own, c.dtype, out.view().space};
  };
  Buffer device_input = to_device(ranks, input.view()), device_output = to_device(ranks, output.view());
  run_case(ranks, c, input_of(input, output), output.view(), schedule_of(c.collective));
  run_case(ranks, c, input_of(device_input, device_output), device_output.view(), "hierarchical");
  const Buffer came = to_host(ranks, device_output.view()), stayed = to_host(ranks, device_input.view());
  const std::string what =
      fmt::format("{} of {} {} {}, in place {}, uneven {}, factors {} {}, rank {}", name(c.collective), c.count,
                  name(c.dtype), name(c.op), c.in_place, c.uneven, c.prescale, c.postscale, rank);
  EXPECT_TRUE(same_bits(came.view(), output.view())) << what;
  EXPECT_TRUE(same_bits(stayed.view(), input.view())) << "input of " << what;
}

TEST(DeviceHierarchy, EveryLayoutAndCount) {
  for_each_device_layout([](Communicator& ranks, const std::vector<int>& /*layout*/) {
    const auto size = static_cast<std::size_t>(ranks.size());
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, size - 1, std::size_t{977}, kSeveralSlices}) {
      for (const bool in_place : {false, true}) {
        check_case(ranks, {Collective::kAllreduce, count, DType::kI32, ReduceOp::kSum, in_place});
        check_case(ranks, {Collective::kReduce, count, DType::kI32, ReduceOp::kSum, in_place});
        for (const Collective collective : {Collective::kAllgather, Collective::kGather, Collective::kAlltoall}) {
          check_case(ranks, {collective, count / size, DType::kI32, ReduceOp::kSum, in_place});
        }
      }
      check_case(ranks, {Collective::kBroadcast, count, DType::kI32});
      check_case(ranks, {Collective::kReduceScatter, count / size, DType::kI32});
      check_case(ranks, {Collective::kScatter, count / size, DType::kI32});
    }
    EXPECT_EQ(internals(ranks).choose(Collective::kAlltoall, 1000, MemoryKind::kCuda), "hierarchical");
    for (const Collective collective :
         {Collective::kAllgather, Collective::kReduceScatter, Collective::kGather, Collective::kScatter}) {
      check_case(ranks, {.collective = collective, .count = 701, .dtype = DType::kF64, .uneven = true});
    }
  });
}

TEST(DeviceHierarchy, TypesOperationsFactorsAndPlaceByPairs) {
  for_each_device_layout(
      [](Communicator& ranks, const std::vector<int>& /*layout*/) {
        int k = 0;  // walks through the parameters that are not in the loops
        for (const DType dtype : kAllDTypes) {
          for (const ReduceOp op : kAllReduceOps) {
            ++k;
            if (!is_defined(op, dtype)) continue;
            // Contributions are divided first: their sum is exact for a power of two only.
            const bool rounds = dtype == DType::kF16 && !std::has_single_bit(static_cast<unsigned>(ranks.size()));
            if (rounds && op == ReduceOp::kAverage) continue;
            const std::size_t counts[] = {37, 1031, 8 * kSeveralSlices / (3 * size_in_bytes(dtype))};
            HierarchyCase c{Collective::kAllreduce, counts[k % 3], dtype, op, k % 2 == 0};
            const bool takes_factors = dtype != DType::kBool && !is_bitwise(op);
            if (takes_factors && k % 5 == 1) c.prescale = 2;
            if (takes_factors && k % 4 == 1) c.postscale = 3;
            check_case(ranks, c);
          }
        }
      },
      /*most_ranks=*/4);
}

/// Elements whose sum leaves the type, and whose average is the element itself.
TEST(DeviceHierarchy, AveragesAreRightThoughTheirSumsLeaveTheType) {
  for_each_device_layout(
      [](Communicator& ranks, const std::vector<int>& /*layout*/) {
        for (const auto& [dtype, number] : {std::pair(DType::kU8, 200.0),
                                            {DType::kI16, -32'768.0},
                                            {DType::kI32, 2e9},
                                            {DType::kU32, 4e9},
                                            {DType::kF16, 60'000.0}}) {
          Buffer values(1031, dtype);
          for (std::size_t i = 0; i < 1031; ++i) store(values.view(), i, number);
          Buffer input = to_device(ranks, values.view());
          CallOptions options;
          options.algorithm = "hierarchical";
          ranks.allreduce(input.view(), input.view(), ReduceOp::kAverage, options);
          const Buffer came = to_host(ranks, input.view());
          for (std::size_t i = 0; i < 1031; ++i) {
            ASSERT_NEAR(load(came.view(), i), number, dtype == DType::kF16 ? 2 * ranks.size() * 0x1p-11 * number : 0)
                << name(dtype);
          }
        }
      },
      /*most_ranks=*/4);
}

/// The collectives of both communicators take turns on the device, whatever the order of calls.
TEST(DeviceHierarchy, RunsBesideOtherOperationsInAnyOrder) {
  for_each_device_layout(
      [](Communicator& ranks, const std::vector<int>& layout) {
        Communicator other = CommunicatorProbe::on_hosts(ranks.duplicate(), layout);
        Communicator half = ranks.split(ranks.rank() % 2);
        std::vector<Buffer> buffers;
        std::vector<Work> works;
        const auto start = [&](Communicator& on, const char* algorithm) {
          const std::vector<float> host(kSeveralSlices, static_cast<float>(ranks.rank() + 1));
          buffers.push_back(to_device(ranks, host));
          CallOptions options;
          options.algorithm = algorithm;
          works.push_back(on.allreduce_async(buffers.back().view(), ReduceOp::kSum, options));
        };
        for (int repetition = 0; repetition < 5; ++repetition) {
          const std::vector<std::function<void()>> calls{[&] { start(ranks, "hierarchical"); },
                                                         [&] { start(other, "hierarchical"); },
                                                         [&] { start(other, "ring"); }, [&] { start(half, "ring"); }};
          const std::vector<int> orders[] = {{0, 1, 2, 3}, {1, 0, 3, 2}, {3, 1, 2, 0}};
          for (const int call : orders[ranks.rank() % 3]) calls[static_cast<std::size_t>(call)]();
        }
        const auto sum = static_cast<float>(ranks.size() * (ranks.size() + 1)) / 2;
        for (Work& work : works) work.wait();
        std::size_t in_half = 0;
        for (const Buffer& buffer : buffers) {
          Buffer host = to_host(ranks, buffer.view());
          if (host.as<float>()[0] != sum) ++in_half;
          EXPECT_EQ(host.as<float>()[0], host.as<float>()[kSeveralSlices - 1]);
        }
        EXPECT_EQ(in_half, 5U);  // those of half of the ranks
      },
      /*most_ranks=*/4);
}

/// The call is ordered after work enqueued before the call; work enqueued afterwards sees the result.
TEST(DeviceHierarchy, IsOrderedWithTheCallersStream) {
  for_each_device_layout(
      [](Communicator& ranks, const std::vector<int>& /*layout*/) {
        Device& device = device_of(ranks);
        const StreamView stream = device.make_stream();
        const std::vector<float> own(kSeveralSlices, static_cast<float>(ranks.rank() + 1));
        const Buffer source = to_device(ranks, own);
        for (const bool in_place : {false, true}) {
          Buffer values = ranks.allocate(kSeveralSlices, DType::kF32, ranks.device());
          Buffer results = ranks.allocate(kSeveralSlices, DType::kF32, ranks.device());
          std::vector<float> came(kSeveralSlices);
          for (int i = 0; i < 300; ++i) device.fill_zero(values.view().data, values.view().size_in_bytes(), stream);
          device.copy(values.view().data, source.view().data, source.view().size_in_bytes(), stream);
          CallOptions options;
          options.algorithm = "hierarchical";
          options.stream = stream;
          const BufferView output = in_place ? values.view() : results.view();
          ranks.allreduce(values.view(), output, ReduceOp::kSum, options);
          device.copy(came.data(), output.data, output.size_in_bytes(), stream);
          device.synchronize(stream);
          const auto sum = static_cast<float>(ranks.size() * (ranks.size() + 1)) / 2;
          EXPECT_EQ(came, std::vector<float>(kSeveralSlices, sum));
          ranks.barrier();
        }
      },
      /*most_ranks=*/4);
}

/// The transport takes device addresses, like a CUDA-aware MPI: kernels reduce, and no data is copied to the host.
TEST(DeviceHierarchy, MessagesOfDeviceMemoryNeedNoCopies) {
  for_each_device_layout([](Communicator& ranks, const std::vector<int>& layout) {
    if (is_launched()) return;  // a job on several hosts has several transports, and one is wrapped
    std::optional<WrappedTransport> transport;
    Communicator direct =
        CommunicatorProbe::on_hosts_by(duplicate_for(ranks, layout), layout, [&](Transport& usual) -> Transport& {
          DeviceRuntime& runtime = *device_runtime(internals(ranks).settings()).runtime;
          return transport.emplace(usual, runtime, WrappedTransport::Options{.takes_device_memory = true});
        });
    const auto size = static_cast<std::size_t>(ranks.size());
    for (const std::size_t count : {std::size_t{1}, size - 1, std::size_t{977}, kSeveralSlices}) {
      for (const bool in_place : {false, true}) {
        check_case(direct, {Collective::kAllreduce, count, DType::kI32, ReduceOp::kSum, in_place});
        for (const Collective collective : {Collective::kAllgather, Collective::kGather, Collective::kAlltoall}) {
          check_case(direct, {collective, count / size, DType::kI32, ReduceOp::kSum, in_place});
        }
      }
      check_case(direct, {Collective::kBroadcast, count, DType::kI32});
      check_case(direct, {Collective::kReduce, count, DType::kI32});
      check_case(direct, {Collective::kReduceScatter, count / size, DType::kI32});
      check_case(direct, {Collective::kScatter, count / size, DType::kI32});
      check_case(direct, {Collective::kAllreduce, count, DType::kBF16, ReduceOp::kAverage, false, 2, 3});
    }
    // The first rank of each host exchanges something whatever the layout.
    const bool meets =
        std::find(layout.begin(), layout.end(), layout[static_cast<std::size_t>(ranks.rank())]) - layout.begin() ==
        ranks.rank();
    EXPECT_TRUE(!meets || transport->of_device_memory() > 0);
    EXPECT_EQ(transport->without_device(), 0);
    direct.barrier();
  });
}

/// However long the vector is, and again for the next one; and each slice is the vendor's inside a host.
TEST(DeviceHierarchy, PinnedMemoryIsBoundedAndUsedAgain) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  auto* const calls_of = find_in_driver<unsigned long(const char*)>("fake_device_calls");
  if (calls_of == nullptr) GTEST_SKIP() << "only the double counts calls";
  if (is_launched()) GTEST_SKIP() << "counts the calls of all ranks";
  const Variable slices("FARANDOLE_DEVICE_SLICE_BYTES", kSliceBytes);
  const unsigned long before = calls_of("cuMemHostAlloc"), reduced_before = calls_of("ncclReduceScatter");
  for_each_device_group({4}, [&](Communicator& ranks) {
    Communicator hosts = CommunicatorProbe::on_hosts(ranks.duplicate(), {0, 0, 1, 1});
    CallOptions options;
    options.algorithm = "hierarchical";
    for (int repetition = 0; repetition < 5; ++repetition) {
      Buffer values = ranks.allocate(20 * kSeveralSlices, DType::kF32, ranks.device());
      hosts.allreduce(values.view(), ReduceOp::kSum, options);
    }
  });
  const unsigned long made = calls_of("cuMemHostAlloc") - before;
  EXPECT_LE(made, 4U * 3U);
  constexpr unsigned long kLeastSlices = 200;  // of 468 KiB per carrier; that they begin at aligned places costs some
  EXPECT_GE(calls_of("ncclReduceScatter") - reduced_before, 4U * 5U * kLeastSlices);
}

/// The least that the setting takes, and more than any vector has.
TEST(DeviceHierarchy, SlicesMayBeAsShortOrAsLongAsTheSettingAllows) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  for (const char* const bytes : {"256", "1GiB"}) {
    const Variable slices("FARANDOLE_DEVICE_SLICE_BYTES", bytes);
    for_each_device_group({4}, [](Communicator& ranks) {
      if (is_launched()) return;  // settings were read when the job was joined
      const std::vector<int> layout{0, 0, 1, 1};
      Communicator hosts = CommunicatorProbe::on_hosts(duplicate_for(ranks, layout), layout);
      for (const Collective collective : {Collective::kAllreduce, Collective::kScatter, Collective::kAlltoall}) {
        check_case(hosts, {collective, 5000, DType::kF32});
      }
    });
  }
}

TEST(DeviceHierarchy, SettingForcesItIfPossibleElseExplainsWhyNot) {
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  const Variable forced("FARANDOLE_BROADCAST", "hierarchical");
  for_each_device_group({2}, [](Communicator& ranks) {
    if (is_launched()) return;  // settings were read when the job was joined
    Communicator one_host = CommunicatorProbe::on_hosts(ranks.duplicate(), {0, 0});
    Communicator hosts = CommunicatorProbe::on_hosts(ranks.duplicate(), {0, 1});
    constexpr std::size_t kBytes = 1 << 20;
    EXPECT_EQ(internals(one_host).choose(Collective::kBroadcast, kBytes, MemoryKind::kCuda), "vendor");
    EXPECT_THAT(internals(one_host).explain(Collective::kBroadcast, kBytes, MemoryKind::kCuda),
                HasSubstr("because hierarchical, which a setting forces, needs several hosts"));
    EXPECT_EQ(internals(hosts).choose(Collective::kAllreduce, kBytes, MemoryKind::kCuda), "vendor");
    EXPECT_EQ(internals(hosts).choose(Collective::kBroadcast, kBytes, MemoryKind::kCuda), "hierarchical");
    EXPECT_THAT(internals(hosts).explain(Collective::kBroadcast, kBytes, MemoryKind::kCuda),
                HasSubstr("through pinned memory"));
    Buffer values = ranks.allocate(10, DType::kF32, ranks.device());
    CallOptions options;
    options.algorithm = "hierarchical";
    EXPECT_THAT(message_of<InvalidArgument>([&] { one_host.allreduce(values.view(), ReduceOp::kSum, options); }),
                HasSubstr("needs several hosts"));
  });
}

}  // namespace
}  // namespace farandole::test
