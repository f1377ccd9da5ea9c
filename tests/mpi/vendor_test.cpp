// SPDX-License-Identifier: Apache-2.0
// Compares MPI's own allreduce with the library's kernels.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "farandole/core/reduce.h"
#include "mpi_job.h"

namespace {
int created = 0;  // communicators
}

/// In place of MPI's, which it calls.
extern "C" int MPI_Comm_create_group(MPI_Comm communicator, MPI_Group members, int tag, MPI_Comm* result) {
  ++created;
  return PMPI_Comm_create_group(communicator, members, tag, result);
}

namespace farandole::mpi {
namespace {

/// Elements whose sums and products are exact in every type.
Buffer contribution(int process, std::size_t count, DType dtype) {
  Buffer ones(count, dtype);
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<int>((i + static_cast<std::size_t>(process)) % 3) + 1;
    void* at = ones.view().part(i, 1).data;
    const auto store = [at](auto element) { std::memcpy(at, &element, sizeof(element)); };
    switch (dtype) {
      case DType::kBool:
        store(value != 1);
        break;
      case DType::kU8:
      case DType::kI8:
        store(static_cast<std::int8_t>(value));
        break;
      case DType::kU16:
      case DType::kI16:
        store(static_cast<std::int16_t>(value));
        break;
      case DType::kI32:
      case DType::kU32:
        store(value);
        break;
      case DType::kI64:
      case DType::kU64:
        store(static_cast<std::int64_t>(value));
        break;
      case DType::kF16:
        store(to_half(static_cast<float>(value)));
        break;
      case DType::kBF16:
        store(to_bfloat16(static_cast<float>(value)));
        break;
      case DType::kF32:
        store(static_cast<float>(value));
        break;
      case DType::kF64:
        store(static_cast<double>(value));
        break;
    }
  }
  return ones;
}

void check_allreduce(VendorCollectives& vendor, std::span<const int> processes, std::size_t count, DType dtype,
                     ReduceOp op, bool in_place) {
  Buffer expected = contribution(processes.front(), count, dtype);
  for (const int process : processes.subspan(1)) {
    Buffer other = contribution(process, count, dtype);
    reduce(expected.view().data, expected.view().data, other.view().data, count, dtype, op);
  }
  Buffer input = contribution(group->process(), count, dtype);
  Buffer separate(count, dtype);
  void* output = in_place ? input.view().data : separate.view().data;
  ASSERT_TRUE(vendor.supports(dtype, op));
  finish(*vendor.allreduce(input.view().data, output, count, dtype, op), "allreduce");
  EXPECT_EQ(count == 0 ? 0 : std::memcmp(output, expected.view().data, expected.view().size_in_bytes()), 0)
      << name(dtype) << " " << name(op) << ", " << count << " elements, in place " << in_place;
}

TEST(MpiVendor, ReducesEveryTypeWithEveryOperation) {
  std::vector<int> processes(static_cast<std::size_t>(group->process_count()));
  std::iota(processes.begin(), processes.end(), 0);
  const auto vendor = group->vendor_collectives(processes, 1);
  if (thread_level == MPI_THREAD_SERIALIZED) {
    EXPECT_EQ(vendor, nullptr) << "making it would block with the lock held";
    return;
  }
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (op == ReduceOp::kAverage && !is_floating_point(dtype)) continue;
      if (!is_defined(op, dtype)) {
        EXPECT_FALSE(vendor->supports(dtype, op)) << name(dtype) << " " << name(op);
        continue;
      }
      for (const std::size_t count : {0U, 1U, 7U, 20U}) {
        check_allreduce(*vendor, processes, count, dtype, op, false);
        check_allreduce(*vendor, processes, count, dtype, op, true);
      }
    }
  }
}

/// The tag of this channel is the number that the vendor's communicator is made with.
TEST(MpiVendor, CreationTakesNoMessagesOfOtherCommunicators) {
  if (thread_level == MPI_THREAD_SERIALIZED || group->process_count() < 2) GTEST_SKIP();
  const Ring ring(*group);
  const Channel outgoing{0, 0, ring.me, ring.next + 1}, incoming{0, 0, ring.previous, ring.me + 1};
  const std::vector<unsigned char> sent = pattern(64, static_cast<unsigned>(ring.me));
  std::vector<unsigned char> received(sent.size());
  const auto receive = group->transport().recv(incoming, received.data(), received.size());
  std::vector<int> processes(static_cast<std::size_t>(group->process_count()));
  std::iota(processes.begin(), processes.end(), 0);
  const auto vendor = group->vendor_collectives(processes, 1);
  const auto send = group->transport().send(outgoing, sent.data(), sent.size());
  finish(*receive, "a receive that was there before");
  finish(*send, "its send");
  EXPECT_EQ(received, pattern(64, static_cast<unsigned>(ring.previous)));
}

TEST(MpiVendor, WorksAmongSomeProcesses) {
  if (thread_level == MPI_THREAD_SERIALIZED) GTEST_SKIP();
  std::vector<int> processes;
  for (int process = group->process() % 2; process < group->process_count(); process += 2) processes.push_back(process);
  const auto vendor = group->vendor_collectives(processes, 1);
  check_allreduce(*vendor, processes, 20, DType::kF32, ReduceOp::kSum, false);
}

std::vector<int> all_processes() {
  std::vector<int> processes(static_cast<std::size_t>(group->process_count()));
  std::iota(processes.begin(), processes.end(), 0);
  return processes;
}

TEST(MpiVendor, SameIdAndProcessesReuseTheCommunicator) {
  if (thread_level == MPI_THREAD_SERIALIZED) GTEST_SKIP();
  const std::vector<int> processes = all_processes();
  created = 0;
  for (int i = 0; i < 200; ++i) {
    const auto vendor = group->vendor_collectives(processes, 9);
    if (i % 50 == 0) check_allreduce(*vendor, processes, 20, DType::kF32, ReduceOp::kSum, false);
  }
  EXPECT_EQ(created, 1);
}

TEST(MpiVendor, LiveInstancesShareNoCommunicator) {
  if (thread_level == MPI_THREAD_SERIALIZED) GTEST_SKIP();
  const std::vector<int> processes = all_processes();
  created = 0;
  const auto first = group->vendor_collectives(processes, 10);
  const auto second = group->vendor_collectives(processes, 11);
  EXPECT_EQ(created, 2);
  // Begun in one order, finished in the other.
  Buffer ones = contribution(0, 8, DType::kF32), sum(8, DType::kF32);
  const auto late = first->allreduce(ones.view().data, sum.view().data, 8, DType::kF32, ReduceOp::kSum);
  check_allreduce(*second, processes, 20, DType::kF32, ReduceOp::kSum, false);
  finish(*late, "the allreduce of the first");
}

TEST(MpiVendor, AllRecreateItAfterOneProcessFreedIt) {
  if (thread_level == MPI_THREAD_SERIALIZED) GTEST_SKIP();
  const std::vector<int> processes = all_processes(), own{group->process()};
  (void)group->vendor_collectives(processes, 12);
  if (group->process() == 0) {
    for (std::size_t i = 0; i <= CommunicatorPool::kMaxKept; ++i) {
      (void)group->vendor_collectives(own, static_cast<std::uint16_t>(100 + i));
    }
  }
  barrier();
  created = 0;
  const auto vendor = group->vendor_collectives(processes, 12);
  EXPECT_EQ(created, 1);
  check_allreduce(*vendor, processes, 20, DType::kF32, ReduceOp::kSum, false);
}

}  // namespace
}  // namespace farandole::mpi
