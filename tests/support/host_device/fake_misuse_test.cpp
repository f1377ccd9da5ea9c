// SPDX-License-Identifier: Apache-2.0
// Tests of the misuse of CUDA that the double reports.
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "fake_tables.h"
#include "sanitizers.h"

namespace farandole::fake {
namespace {

using testing::HasSubstr;

using CudaMisuse = FakeDeviceTest;
using CudaMisuseDeathTest = FakeDeviceTest;

constexpr CUresult kInvalidContext = 201;
constexpr CUresult kInvalidHandle = 400;

TEST_F(CudaMisuse, ACallNeedsAContext) {
  const CUstream stream = make_stream();
  std::thread([stream] {
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuda_api().cuMemAlloc(&memory, 8), kInvalidContext);
    EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), kInvalidContext);
    unsigned type = 0;
    EXPECT_EQ(cuda_api().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 8), CUDA_ERROR_INVALID_VALUE);
  }).join();
  EXPECT_THAT(reports(), AllOf(HasSubstr("cuMemAlloc_v2 on a thread that has no current context"),
                               HasSubstr("cuStreamSynchronize on a thread that has no current context")));
}

TEST_F(CudaMisuse, AWaitForAnEventThatWasNeverRecorded) {
  EXPECT_EQ(cuda_api().cuStreamWaitEvent(make_stream(), make_event(), 0), CUDA_SUCCESS);
  EXPECT_THAT(reports(), HasSubstr("an event that was never recorded"));
}

TEST_F(CudaMisuse, AnEventThatWasDestroyed) {
  const CUevent event = make_event();
  EXPECT_EQ(cuda_api().cuEventDestroy(event), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuEventQuery(event), kInvalidHandle);
  EXPECT_EQ(cuda_api().cuEventRecord(event, make_stream()), kInvalidHandle);
  EXPECT_EQ(cuda_api().cuEventDestroy(event), kInvalidHandle);
  EXPECT_THAT(reports(), AllOf(HasSubstr("cuEventQuery of"), HasSubstr("cuEventRecord of"),
                               HasSubstr("which is no event, or was destroyed")));
}

TEST_F(CudaMisuse, TimeBetweenEventsThatHaveNone) {
  const auto timing_event = [] {
    CUevent event = nullptr;
    EXPECT_EQ(cuda_api().cuEventCreate(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
    return event;
  };
  const auto elapsed = [](CUevent begin, CUevent end) {
    float milliseconds = 0;
    return cuda_api().cuEventElapsedTime(&milliseconds, begin, end);
  };
  const CUstream stream = make_stream();
  const CUevent begin = timing_event(), end = timing_event(), without_time = make_event();
  EXPECT_EQ(elapsed(begin, end), kInvalidHandle);
  EXPECT_THAT(reports(), HasSubstr("cuEventElapsedTime of an event that was never recorded"));
  EXPECT_EQ(cuda_api().cuEventRecord(without_time, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuEventRecord(begin, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(elapsed(begin, without_time), kInvalidHandle);
  EXPECT_THAT(reports(), HasSubstr("was made with CU_EVENT_DISABLE_TIMING"));
  fake_device_stick(stream, 1);
  EXPECT_EQ(cuda_api().cuEventRecord(end, stream), CUDA_SUCCESS);
  EXPECT_EQ(elapsed(begin, end), CUDA_ERROR_NOT_READY);
  EXPECT_THAT(reports(), HasSubstr("is not complete"));
  fake_device_restore();
  EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuEventRecord(end, stream), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuda_api().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(elapsed(begin, end), kInvalidHandle);
  EXPECT_THAT(reports(), HasSubstr("was last recorded in a capture"));
}

TEST_F(CudaMisuse, AStreamOfAnotherDevice) {
  const CUstream stream = make_stream();
  const Vector<std::uint8_t> memory(8);
  use_device(1);
  const CUevent event = make_event();
  EXPECT_EQ(cuda_api().cuMemsetD8Async(memory.address(), 0, 8, stream), kInvalidHandle);
  EXPECT_THAT(reports(), HasSubstr("on a stream of device 0 while the context of device 1 is current"));
  use_device(0);
  EXPECT_EQ(cuda_api().cuEventRecord(event, stream), kInvalidHandle);
  EXPECT_THAT(reports(), HasSubstr("an event of device 1 on a stream of device 0"));
  EXPECT_EQ(cuda_api().cuMemsetD8Async(memory.address(), 0, 8, reinterpret_cast<CUstream>(event)), kInvalidHandle);
  EXPECT_THAT(reports(), HasSubstr("which is no stream"));
}

TEST_F(CudaMisuse, AKernelOfAnotherDevice) {
  const CUfunction function = find_kernel_by_name("farandole_copy");
  use_device(1);
  EXPECT_EQ(launch(function, arguments_of({{nullptr, nullptr, nullptr, 1, 1.0}}), make_stream()), kInvalidHandle);
  EXPECT_THAT(reports(), HasSubstr("which was loaded for device 0, on device 1"));
}

TEST_F(CudaMisuse, MemoryOfAnotherDeviceOrOfTheHost) {
  const Vector<std::uint8_t> own(8);
  use_device(1);
  const Vector<std::uint8_t> foreign(8);
  use_device(0);
  const CUstream stream = make_stream();
  const CUfunction function = find_kernel_by_name("farandole_copy");
  EXPECT_EQ(launch(function, arguments_of({{own.data(), foreign.data(), nullptr, 8, 1.0}}), stream),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(reports(), HasSubstr("farandole_copy on device 0: the left input is in memory of device 1 (8 bytes"));
  std::uint8_t local = 0;
  EXPECT_EQ(launch(function, arguments_of({{&local, own.data(), nullptr, 1, 1.0}}), stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(reports(), HasSubstr("is no memory of a device"));
  EXPECT_EQ(cuda_api().cuMemsetD8Async(0, 0, 8, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(reports(), HasSubstr("is no memory of a device"));
  // A copy may come from anywhere.
  EXPECT_EQ(cuda_api().cuMemcpyAsync(own.address(), foreign.address(), 8, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(CudaMisuse, AccessBeyondAnAllocation) {
  const Vector<float> memory(8);
  const Vector<float> enough(16);
  const CUstream stream = make_stream();
  EXPECT_EQ(cuda_api().cuMemsetD8Async(memory.address(4), 0, 17, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(reports(), HasSubstr("the target goes from byte 16 to 33 of memory of device 0 (32 bytes"));
  // Elements are counted, as the name of the kernel has them.
  const CUfunction function = find_kernel_by_name("farandole_reduce_f32_sum");
  EXPECT_EQ(
      launch(function, arguments_of({{enough.data(), enough.data(), memory.data(), 9, 1.0}}, sizeof(float)), stream),
      CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(reports(), HasSubstr("the right input goes from byte 0 to 36"));
}

TEST_F(CudaMisuse, TasksOfALaunchThatTouchEachOther) {
  const Vector<float> memory(100);
  const CUstream stream = make_stream();
  const CUfunction function = find_kernel_by_name("farandole_copy");
  float* const data = memory.data();
  EXPECT_EQ(
      launch(function, arguments_of({{data, data + 50, nullptr, 40, 1.0}, {data + 20, data + 5, nullptr, 40, 1.0}}),
             stream),
      CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(reports(), HasSubstr("the output of part 0 overlaps the left input of part 1"));
  EXPECT_EQ(launch(function, arguments_of({{data, data + 1, nullptr, 40, 1.0}}), stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(reports(), HasSubstr("the output of part 0 overlaps the left input of part 0"));
  // In place is allowed, and so are common inputs.
  EXPECT_EQ(launch(function,
                   arguments_of({{data, data, nullptr, 40, 1.0},
                                 {data + 20, data + 10, nullptr, 40, 1.0},
                                 {data + 60, data + 10, nullptr, 40, 1.0}}),
                   stream),
            CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(CudaMisuse, LaunchesThatKernelsAreNotCompiledFor) {
  const Vector<std::uint8_t> memory(100);
  const CUstream stream = make_stream();
  const CUfunction function = find_kernel_by_name("farandole_copy");
  LargestArguments arguments = arguments_of({{memory.data(), memory.data(), nullptr, 40, 1.0}});
  std::array<void*, 1> parameters{&arguments};
  const auto launched = [&](unsigned grid_y, unsigned block_x) {
    return cuda_api().cuLaunchKernel(function, 1, grid_y, 1, block_x, 1, 1, 0, stream, parameters.data(), nullptr);
  };
  EXPECT_EQ(launched(1, 64), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(reports(), HasSubstr("1x1x1 blocks of 64x1x1 threads"));
  EXPECT_EQ(launched(2, kBlockThreads), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(reports(), HasSubstr("1x2x1 blocks of 128x1x1 threads"));
  arguments.task_count = 65;
  EXPECT_EQ(launched(1, kBlockThreads), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(reports(), HasSubstr("65 tasks; a launch has up to 64"));
}

TEST_F(CudaMisuse, MemoryThatWasFreed) {
  const CUstream stream = make_stream();
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuda_api().cuMemAlloc(&memory, 100), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuMemFree(memory + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(reports(), HasSubstr("which no call of this kind has allocated"));
  EXPECT_EQ(cuda_api().cuMemFree(memory), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(reports(), HasSubstr("which was freed before"));
  EXPECT_EQ(cuda_api().cuMemsetD8Async(memory + 50, 0, 10, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(reports(), HasSubstr("cuMemsetD8Async on device 0: the target is in memory of device 0 (100 bytes at"));
}

TEST_F(CudaMisuse, MemoryIsFreedWhileAStreamUsesIt) {
  const CUstream stream = make_stream();
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuda_api().cuMemAlloc(&memory, 100), CUDA_SUCCESS);
  fake_device_stick(stream, 1);
  EXPECT_EQ(cuda_api().cuMemsetD8Async(memory, 0, 100, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuMemFree(memory), CUDA_SUCCESS);
  EXPECT_THAT(reports(), HasSubstr("which 1 items of streams still use; wait for them first"));
  fake_device_restore();
  EXPECT_EQ(cuda_api().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_THAT(reports(), AllOf(HasSubstr("cuMemsetD8Async, uses memory of device 0"), HasSubstr("freed meanwhile")));
}

TEST_F(CudaMisuse, ACallThatBreaksACapture) {
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  EXPECT_EQ(cuda_api().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_THAT(reports(), HasSubstr("cuEventQuery breaks the capture"));
  int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  EXPECT_EQ(cuda_api().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuda_api().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuda_api().cuEventQuery(event), CUDA_SUCCESS);
}

/// Runs with the default option of other programs: freeing memory waits for the device.
TEST_F(CudaMisuse, FreeingWaitsForTheDeviceAndKeepsTheDriver) {
  use_device(4);  // whose streams no other test uses
  set("FAKE_DEVICE_FREE_SYNCS", "1");
  const CUstream stream = make_stream();
  const CUevent event = make_event();
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuda_api().cuMemAlloc(&memory, 100), CUDA_SUCCESS);
  fake_device_stick(stream, 1);
  EXPECT_EQ(cuda_api().cuMemsetD8Async(memory, 0, 100, stream), CUDA_SUCCESS);
  std::atomic<bool> is_asked{false};
  std::thread freeing([&] {
    use_device(4);
    EXPECT_EQ(cuda_api().cuMemFree(memory), CUDA_SUCCESS);
  });
  while (fake_device_waits_in_driver() == 0) std::this_thread::yield();
  std::thread asking([&] {
    EXPECT_EQ(cuda_api().cuEventQuery(event), CUDA_SUCCESS);
    is_asked = true;
  });
  while (fake_device_waits_in_driver() < 2) std::this_thread::yield();
  EXPECT_FALSE(is_asked) << "the thread that frees has the driver's lock";
  fake_device_restore();
  freeing.join();
  asking.join();
}

TEST_F(CudaMisuse, FreeingMayWaitInstead) {
  use_device(3);  // whose streams no other test sticks
  set("FAKE_DEVICE_FREE_SYNCS", "1");
  const CUstream stream = make_stream();
  void* pinned = nullptr;
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(cuda_api().cuMemHostAlloc(&pinned, 100, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
    const auto memory = reinterpret_cast<CUdeviceptr>(pinned);
    for (int item = 0; item < 10; ++item) {
      EXPECT_EQ(cuda_api().cuMemsetD8Async(memory, 0, 100, stream), CUDA_SUCCESS);
    }
    EXPECT_EQ(cuda_api().cuMemFreeHost(pinned), CUDA_SUCCESS);
  }
}

TEST_F(CudaMisuse, IsCounted) {
  const unsigned long before = fake_device_misuse_count();
  EXPECT_EQ(cuda_api().cuEventDestroy(nullptr), kInvalidHandle);
  EXPECT_EQ(fake_device_misuse_count(), before + 1);
  EXPECT_THAT(reports(), HasSubstr("cuEventDestroy of"));
}

TEST_F(CudaMisuseDeathTest, EndsTheProcessUnlessATestSaysOtherwise) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        set("FAKE_DEVICE_FATAL", "1");
        cuda_api().cuEventDestroy(nullptr);
      },
      "fake device misuse: cuEventDestroy of");
}

TEST_F(CudaMisuseDeathTest, TouchingFreedMemoryEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        CUdeviceptr memory = 0;
        cuda_api().cuMemAlloc(&memory, 100);
        cuda_api().cuMemFree(memory);
        *reinterpret_cast<volatile char*>(memory) = 1;  // NOLINT(performance-no-int-to-ptr): that is what is tested
      },
      "");
}

/// Sanitizers explain faults in their own way.
const char* host_fault() {
  return test::kAddressSanitizer || test::kThreadSanitizer
             ? ""
             : "fake device misuse: the host reads or writes memory of device 2 \\(5000 bytes at 0x";
}

TEST_F(CudaMisuseDeathTest, HostCodeThatWritesDeviceMemoryEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  use_device(2);
  const Vector<std::uint8_t> memory(5000);
  EXPECT_DEATH(memory.data()[4999] = 1, host_fault());
}

TEST_F(CudaMisuseDeathTest, HostCodeThatReadsDeviceMemoryEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  use_device(2);
  const Vector<std::uint8_t> memory(std::vector<std::uint8_t>(5000, 9));  // which streams have written
  EXPECT_DEATH(std::printf("%d\n", int{*static_cast<volatile std::uint8_t*>(memory.data())}), host_fault());
}

/// System calls such as read() and write() may get device pointers, for example from a library.
TEST_F(CudaMisuse, CallsOfTheSystemDoNotReadDeviceMemory) {
  const Vector<std::uint8_t> memory(std::vector<std::uint8_t>(10, 9));
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  EXPECT_EQ(write(ends[1], memory.data(), memory.bytes()), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(close(ends[0]), 0);
  EXPECT_EQ(close(ends[1]), 0);
}

}  // namespace
}  // namespace farandole::fake
