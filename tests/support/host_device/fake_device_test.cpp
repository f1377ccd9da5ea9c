// SPDX-License-Identifier: Apache-2.0
// Tests of the double of libcuda under correct use.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

#include "fake_tables.h"
#include "sanitizers.h"

namespace farandole::fake {
namespace {

using testing::Each;
using testing::HasSubstr;

using Streams = FakeDeviceTest;
using Memory = FakeDeviceTest;
using Kernels = FakeDeviceTest;
using Driver = FakeDeviceTest;

// Records an event in the stream, and returns it.
CUevent recorded_in(CUstream stream) {
  const CUevent event = make_event();
  EXPECT_EQ(cuda_api().cuEventRecord(event, stream), CUDA_SUCCESS);
  return event;
}

// Returns false as soon as the event is complete; true if it stays incomplete for a while. Where a test expects true,
// slow machines cannot make it fail.
bool stays_incomplete(CUevent event) {
  for (int look = 0; look < 200; ++look) {
    if (cuda_api().cuEventQuery(event) == CUDA_SUCCESS) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

void set_bytes(const Vector<std::uint8_t>& memory, unsigned char value, CUstream stream) {
  EXPECT_EQ(cuda_api().cuMemsetD8Async(memory.address(), value, memory.bytes(), stream), CUDA_SUCCESS);
}

void copy(const Vector<std::uint8_t>& target, const Vector<std::uint8_t>& source, CUstream stream) {
  EXPECT_EQ(cuda_api().cuMemcpyAsync(target.address(), source.address(), source.bytes(), stream), CUDA_SUCCESS);
}

TEST_F(Driver, DescribesItsDevices) {
  int version = 0;
  int count = 0;
  EXPECT_EQ(cuda_api().cuDriverGetVersion(&version), CUDA_SUCCESS);
  EXPECT_EQ(version, 13000);
  EXPECT_EQ(cuda_api().cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 8);
  CUdevice device = -1;
  EXPECT_EQ(cuda_api().cuDeviceGet(&device, 3), CUDA_SUCCESS);
  EXPECT_NE(cuda_api().cuDeviceGet(&device, 8), CUDA_SUCCESS);
  std::array<char, 64> name{};
  EXPECT_EQ(cuda_api().cuDeviceGetName(name.data(), name.size(), device), CUDA_SUCCESS);
  EXPECT_STREQ(name.data(), "fake device 3");
  CUuuid third{};
  CUuuid fourth{};
  EXPECT_EQ(cuda_api().cuDeviceGetUuid(&third, 3), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuDeviceGetUuid(&fourth, 4), CUDA_SUCCESS);
  EXPECT_NE(std::memcmp(third.bytes, fourth.bytes, sizeof third.bytes), 0);
  int major = 0;
  EXPECT_EQ(cuda_api().cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 3), CUDA_SUCCESS);
  EXPECT_EQ(major, 9);
  const char* text = nullptr;
  EXPECT_EQ(cuda_api().cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EQ(cuda_api().cuGetErrorString(-7, &text), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Driver, EachThreadHasItsOwnContextAndCaptureMode) {
  const CUcontext second = use_device(1);
  std::thread([second] {
    CUcontext context = second;
    EXPECT_EQ(cuda_api().cuCtxGetCurrent(&context), CUDA_SUCCESS);
    EXPECT_EQ(context, nullptr);
  }).join();
  int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  EXPECT_EQ(cuda_api().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, 0);
  EXPECT_EQ(cuda_api().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
}

TEST_F(Streams, ItemsOfAStreamComeOneAfterAnother) {
  const CUstream stream = make_stream();
  const Vector<std::uint8_t> first(1000);
  const Vector<std::uint8_t> second(1000);
  for (unsigned char value = 0; value < 200; ++value) {  // several blocks of the queue
    set_bytes(first, value, stream);
    copy(second, first, stream);
  }
  EXPECT_THAT(second.values(stream), Each(199));
}

TEST_F(Streams, AWaitForAnEventOrdersTwoStreams) {
  const CUstream producer = make_stream();
  const CUstream consumer = make_stream();
  const CUevent event = make_event();
  const Vector<std::uint8_t> data(1 << 16);
  const Vector<std::uint8_t> copied(1 << 16);
  for (unsigned char value = 1; value < 100; ++value) {
    set_bytes(data, value, producer);
    EXPECT_EQ(cuda_api().cuEventRecord(event, producer), CUDA_SUCCESS);
    EXPECT_EQ(cuda_api().cuStreamWaitEvent(consumer, event, 0), CUDA_SUCCESS);
    copy(copied, data, consumer);
    EXPECT_THAT(copied.values(consumer), Each(value));
  }
}

TEST_F(Streams, WithoutAWaitOneStreamOvertakesAnother) {
  if (test::kThreadSanitizer) GTEST_SKIP() << "the sanitizer would report what this test is about";
  const CUstream producer = make_stream();
  const CUstream consumer = make_stream();
  const Vector<std::uint8_t> data(64);
  const Vector<std::uint8_t> copied(64);
  bool has_overtaken = false;
  for (int round = 1; round < 5000 && !has_overtaken; ++round) {
    const auto value = static_cast<unsigned char>(round);
    set_bytes(data, value, producer);
    copy(copied, data, consumer);
    has_overtaken = copied.values(consumer).front() != value;
    EXPECT_EQ(cuda_api().cuStreamSynchronize(producer), CUDA_SUCCESS);
  }
  EXPECT_TRUE(has_overtaken);
}

TEST_F(Streams, AnEventCompletesWhenItsStreamReachesIt) {
  const CUstream stream = make_stream();
  EXPECT_EQ(cuda_api().cuEventQuery(make_event()), CUDA_SUCCESS);  // never recorded
  fake_device_stick(stream, 1);
  const CUevent event = recorded_in(stream);
  EXPECT_TRUE(stays_incomplete(event));
  fake_device_restore();
  EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuEventQuery(event), CUDA_SUCCESS);
}

TEST_F(Streams, EventsHaveTheTimeBetweenTheirCompletions) {
  using std::chrono::milliseconds;
  const CUstream stream = make_stream();
  std::array<CUevent, 2> events{};
  for (CUevent& event : events) EXPECT_EQ(cuda_api().cuEventCreate(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuEventRecord(events[0], stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
  fake_device_stick(stream, 1);
  EXPECT_EQ(cuda_api().cuEventRecord(events[1], stream), CUDA_SUCCESS);
  std::this_thread::sleep_for(milliseconds(30));
  fake_device_restore();
  EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
  float elapsed = 0;
  EXPECT_EQ(cuda_api().cuEventElapsedTime(&elapsed, events[0], events[1]), CUDA_SUCCESS);
  EXPECT_GE(elapsed, 30.0F);
  EXPECT_EQ(cuda_api().cuEventElapsedTime(&elapsed, events[1], events[0]), CUDA_SUCCESS);
  EXPECT_LE(elapsed, -30.0F);
}

TEST_F(Streams, AWaitIsForTheRecordBeforeIt) {
  const CUstream stuck = make_stream();
  const CUstream free = make_stream();
  const CUstream waiting = make_stream();
  fake_device_stick(stuck, 1);
  const CUevent event = recorded_in(stuck);
  EXPECT_EQ(cuda_api().cuStreamWaitEvent(waiting, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuEventRecord(event, free), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuStreamSynchronize(free), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_TRUE(stays_incomplete(recorded_in(waiting)));
  fake_device_restore();
  EXPECT_EQ(cuda_api().cuStreamSynchronize(waiting), CUDA_SUCCESS);
}

TEST_F(Streams, AnEventMayBeDestroyedBeforeItIsComplete) {
  const CUstream stuck = make_stream();
  const CUstream waiting = make_stream();
  fake_device_stick(stuck, 1);
  const CUevent event = recorded_in(stuck);
  EXPECT_EQ(cuda_api().cuStreamWaitEvent(waiting, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuEventDestroy(event), CUDA_SUCCESS);
  EXPECT_TRUE(stays_incomplete(recorded_in(waiting)));
  fake_device_restore();
  EXPECT_EQ(cuda_api().cuStreamSynchronize(waiting), CUDA_SUCCESS);
}

TEST_F(Streams, TheDefaultStreamWaitsForBlockingStreamsOnly) {
  const CUstream blocking = make_stream(0);
  const CUstream non_blocking = make_stream();
  fake_device_stick(non_blocking, 1);
  const CUevent in_non_blocking = recorded_in(non_blocking);
  EXPECT_EQ(cuda_api().cuEventRecord(make_event(), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuStreamSynchronize(nullptr), CUDA_SUCCESS);  // though the other one sticks
  fake_device_stick(blocking, 1);
  const CUevent in_blocking = recorded_in(blocking);
  const CUevent in_default = recorded_in(nullptr);
  EXPECT_TRUE(stays_incomplete(in_default));
  EXPECT_EQ(cuda_api().cuEventQuery(in_blocking), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda_api().cuEventQuery(in_non_blocking), CUDA_ERROR_NOT_READY);
  fake_device_restore();
  EXPECT_EQ(cuda_api().cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuEventQuery(in_blocking), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuStreamSynchronize(non_blocking), CUDA_SUCCESS);
}

TEST_F(Streams, BlockingStreamsWaitForTheDefaultStream) {
  use_device(2);  // whose default stream no other test sticks
  const CUstream blocking = make_stream(0);
  const CUstream other = make_stream(0);
  const CUstream non_blocking = make_stream();
  EXPECT_EQ(cuda_api().cuStreamSynchronize(nullptr), CUDA_SUCCESS);  // makes it
  fake_device_stick(blocking, 1);
  recorded_in(blocking);
  recorded_in(nullptr);  // waits for the stuck one, and so it sticks, too
  const CUevent behind = recorded_in(other);
  EXPECT_TRUE(stays_incomplete(behind));
  recorded_in(non_blocking);
  EXPECT_EQ(cuda_api().cuStreamSynchronize(non_blocking), CUDA_SUCCESS);
  fake_device_restore();
  EXPECT_EQ(cuda_api().cuStreamSynchronize(other), CUDA_SUCCESS);
}

TEST_F(Memory, KnowsWhereAddressesLie) {
  use_device(5);
  const Vector<float> device(100);
  const Vector<float> pinned(100, Vector<float>::Kind::kPinned);
  unsigned type = 0;
  int ordinal = -1;
  for (const std::size_t first : {0, 99}) {
    EXPECT_EQ(cuda_api().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device.address(first)), 0);
    EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
    EXPECT_EQ(cuda_api().cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, device.address(first)),
              0);
    EXPECT_EQ(ordinal, 5);
    EXPECT_EQ(cuda_api().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pinned.address(first)), 0);
    EXPECT_EQ(type, CU_MEMORYTYPE_HOST);
  }
  const auto local = reinterpret_cast<CUdeviceptr>(&type);
  EXPECT_EQ(cuda_api().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, local), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda_api().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device.address(100)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device.address() % 256, 0U);
  EXPECT_EQ(pinned.address() % 256, 0U);
}

TEST_F(Memory, FreshMemoryHoldsNoNumbers) {
  const Vector<float> fresh(1000);
  for (const float value : fresh.values(make_stream())) EXPECT_TRUE(std::isnan(value));
}

TEST_F(Memory, HasACapacity) {
  use_device(6);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  EXPECT_EQ(cuda_api().cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
  EXPECT_EQ(total_bytes, std::size_t{1} << 30);
  EXPECT_EQ(free_bytes, total_bytes);
  CUdeviceptr memory = 0;
  {
    const Vector<std::uint8_t> some(1000);
    EXPECT_EQ(cuda_api().cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
    EXPECT_EQ(free_bytes, total_bytes - 1000);
    EXPECT_EQ(cuda_api().cuMemAlloc(&memory, free_bytes + 1), CUDA_ERROR_OUT_OF_MEMORY);
  }
  EXPECT_EQ(cuda_api().cuMemAlloc(&memory, total_bytes), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuMemFree(memory), CUDA_SUCCESS);
  unsigned type = 0;
  EXPECT_NE(cuda_api().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory), CUDA_SUCCESS);
}

TEST_F(Memory, CopiesBetweenHostMemoriesAreCompleteWhenTheyReturn) {
  const std::vector<int> source(1000, 7);
  std::vector<int> target(1000, 0);
  EXPECT_EQ(cuda_api().cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(target.data()),
                                     reinterpret_cast<CUdeviceptr>(source.data()), 1000 * sizeof(int), make_stream()),
            CUDA_SUCCESS);
  EXPECT_EQ(target, source);
}

TEST_F(Memory, CopiesToAndFromOrdinaryMemoryMayOrMayNotWait) {
  const Vector<std::uint8_t> device(64);
  int waited = 0;
  constexpr int kRounds = 64;
  for (int round = 0; round < kRounds; ++round) {
    const CUstream stream = make_stream();
    set_bytes(device, 3, stream);
    fake_device_stick(stream, 1);
    std::vector<std::uint8_t> host(64);
    // Another thread must take the stuck stream back, should the copy wait for it.
    std::atomic<bool> has_returned{false};
    std::thread helper([&has_returned, &waited] {
      for (int look = 0; look < 100 && !has_returned; ++look)
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (!has_returned) ++waited;
      fake_device_restore();
    });
    EXPECT_EQ(cuda_api().cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(host.data()), device.address(), 64, stream), 0);
    has_returned = true;
    helper.join();
    EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_THAT(host, Each(3));
  }
  EXPECT_GT(waited, 0);
  EXPECT_LT(waited, kRounds);
}

TEST_F(Kernels, AreFunctionsThatAreFoundByName) {
  const CUstream stream = make_stream();
  std::vector<float> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  const Vector<float> left(numbers);
  const Vector<float> right(numbers);
  const Vector<float> sum(numbers.size());
  const CUfunction reduce = find_kernel_by_name("farandole_reduce_f32_sum");
  EXPECT_EQ(launch(reduce,
                   arguments_of({{sum.data(), left.data(), right.data(), 500, 1.0},
                                 {sum.data() + 500, left.data() + 500, right.data() + 500, 500, 1.0}},
                                sizeof(float)),
                   stream),
            CUDA_SUCCESS);
  const std::vector<float> results = sum.values(stream);
  for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(results[i], 2 * numbers[i]);
  int threads = 0;
  EXPECT_EQ(cuda_api().cuFuncGetAttribute(&threads, 0, reduce), CUDA_SUCCESS);
  EXPECT_EQ(threads, 1024);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  EXPECT_EQ(cuda_api().cuModuleLoadData(&module, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuModuleGetFunction(&function, module, "farandole_no_such_kernel"), CUDA_ERROR_NOT_FOUND);
}

TEST_F(Kernels, TakeTheirArgumentsWhenTheyAreLaunched) {
  const CUstream stream = make_stream();
  const Vector<std::uint8_t> source(std::vector<std::uint8_t>(100, 9));
  const Vector<std::uint8_t> target(100);
  LargestArguments arguments = arguments_of({{target.data(), source.data(), nullptr, 100, 1.0}});
  std::array<void*, 1> parameters{&arguments};
  fake_device_stick(stream, 1);
  EXPECT_EQ(cuda_api().cuLaunchKernel(find_kernel_by_name("farandole_copy"), 1, 1, 1, kBlockThreads, 1, 1, 0, stream,
                                      parameters.data(), nullptr),
            CUDA_SUCCESS);
  arguments = {};
  fake_device_restore();
  EXPECT_THAT(target.values(stream), Each(9));
}

TEST_F(Kernels, ShapesOfLaunchesHaveLimits) {
  const CUfunction function = find_kernel_by_name("farandole_copy");
  const CUstream stream = make_stream();
  LargestArguments arguments{};
  std::array<void*, 1> parameters{&arguments};
  const auto launched = [&](unsigned grid_x, unsigned grid_y, unsigned block_x, unsigned block_z, unsigned shared) {
    return cuda_api().cuLaunchKernel(function, grid_x, grid_y, 1, block_x, 1, block_z, shared, stream,
                                     parameters.data(), nullptr);
  };
  EXPECT_EQ(launched(0x7fffffff, 65535, 1024, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(launched(0, 1, 32, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launched(0x80000000, 1, 32, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launched(1, 65536, 32, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launched(1, 1, 1025, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launched(1, 1, 512, 4, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launched(1, 1, 1, 65, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launched(1, 1, 32, 1, 50000), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

}  // namespace
}  // namespace farandole::fake
