// SPDX-License-Identifier: Apache-2.0
// CudaDevice over a fake driver: calls, results and errors.
#include "cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/cuda_devices.h"
#include "fake_api.h"
#include "farandole/core/error.h"
#include "message_of.h"
#include "resnet50.h"

namespace farandole::cuda {
namespace {

using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// A driver that is there, with two devices.
CudaLibrary library() {
  CudaLibrary cuda;
  cuda.api = fake_cuda();
  cuda.version = 13000;
  cuda.path = "/fake/libcuda.so.1";
  return cuda;
}

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    reset_vendor();
    vendor().device_bytes = 16 * kMiB;
  }
  CudaDevice& device() {
    if (device_ == nullptr) device_ = std::make_unique<CudaDevice>(api_, nccl_, info(), kFakeImage);
    return *device_;
  }
  static DeviceInfo info() {
    DeviceInfo info;
    info.name = "Fake A";
    return info;
  }
  static std::string why_none(CudaLibrary cuda, KernelImage image = kFakeImage) {
    std::string reason;
    const auto devices = CudaDevices::find(std::move(cuda), std::span(&image, 1), "/nowhere/libnccl.so", reason);
    EXPECT_EQ(devices, nullptr);
    return reason;
  }

  const CudaApi api_ = fake_cuda();
  Nccl nccl_{fake_nccl()};
  std::unique_ptr<CudaDevice> device_;
};

TEST_F(CudaDeviceTest, LoadsAllKernelsWhenItIsOpened) {
  device();
  EXPECT_EQ(vendor().loaded_kernels.size(), 112U + 17) << "17 kernels have another variant";
  EXPECT_EQ(vendor().loaded_kernels.count("farandole_reduce_bf16_max"), 1U);
  EXPECT_EQ(vendor().loaded_kernels.count("farandole_cast_f16_f64_x682"), 1U);
  EXPECT_EQ(current_context(), nullptr) << "the thread's own context is back";
}

TEST_F(CudaDeviceTest, NamesTheKernelThatIsMissing) {
  vendor().cuda_results["cuModuleGetFunction"] = CUDA_ERROR_NOT_FOUND;
  EXPECT_THAT(
      message_of<DeviceError>([&] { device(); }),
      AllOf(HasSubstr("cuModuleGetFunction of farandole_copy failed on CUDA device 0 (Fake A)"), HasSubstr("(500)")));
}

TEST_F(CudaDeviceTest, LeavesTheContextOfAThreadAsItWas) {
  CudaDevice& opened = device();
  auto* const programs = pointer_of<CUcontext>(0x77);
  current_context() = programs;
  const StreamView stream = opened.make_stream();
  EXPECT_EQ(stream.space, opened.space());
  opened.release(opened.allocate(100));
  opened.make_event(DeviceEvent::Use::kHost)->is_complete();
  opened.synchronize(stream);
  EXPECT_EQ(current_context(), programs);
  opened.bind_thread();
  EXPECT_EQ(current_context(), opened.context().context);
}

TEST_F(CudaDeviceTest, QueriesOfEventsDoNotDisturbGraphs) {
  const std::unique_ptr<DeviceEvent> event = device().make_event(DeviceEvent::Use::kStreams);
  EXPECT_TRUE(event->is_complete()) << "never recorded";
  device().record(*event, {});
  EXPECT_TRUE(event->is_complete());
  EXPECT_EQ(vendor().mode_of_query, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(capture_mode(), 0) << "as it was";
  vendor().cuda_results["cuEventQuery"] = CUDA_ERROR_NOT_READY;
  EXPECT_FALSE(event->is_complete());
  vendor().cuda_results["cuEventQuery"] = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_THAT(message_of<DeviceError>([&] { event->is_complete(); }),
              AllOf(HasSubstr("cuEventQuery failed on CUDA device 0 (Fake A)"), HasSubstr("start it again")));
  EXPECT_EQ(capture_mode(), 0);
}

TEST_F(CudaDeviceTest, EventsOfTheHostAreReadWithoutTheDriver) {
  const std::unique_ptr<DeviceEvent> event = device().make_event(DeviceEvent::Use::kHost);
  vendor().cuda_results["cuEventQuery"] = CUDA_ERROR_NOT_READY;
  for (int repetition = 0; repetition < 3; ++repetition) {
    device().record(*event, {});
    EXPECT_TRUE(event->is_complete());
  }
  EXPECT_EQ(vendor().event_queries, 0);
}

/// A stream of a device that has failed writes nothing.
TEST_F(CudaDeviceTest, TheDriverIsAskedOnceAMillisecond) {
  vendor().writes_values = false;
  vendor().cuda_results["cuEventQuery"] = CUDA_ERROR_NOT_READY;
  const std::unique_ptr<DeviceEvent> event = device().make_event(DeviceEvent::Use::kHost);
  device().record(*event, {});
  const auto start = std::chrono::steady_clock::now();
  while (vendor().event_queries < 3) EXPECT_FALSE(event->is_complete());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(2));
  vendor().cuda_results["cuEventQuery"] = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_THAT(message_of<DeviceError>([&] {
                while (!event->is_complete()) {
                }
              }),
              HasSubstr("cuEventQuery failed"));
}

TEST_F(CudaDeviceTest, AsksTheDriverWhereNoStreamCanWriteValues) {
  vendor().cuda_results["cuStreamWriteValue32"] = CUDA_ERROR_NOT_SUPPORTED;
  vendor().writes_values = false;
  const std::unique_ptr<DeviceEvent> event = device().make_event(DeviceEvent::Use::kHost);
  device().record(*event, {});
  EXPECT_TRUE(event->is_complete());
  EXPECT_EQ(vendor().event_queries, 1);
}

TEST_F(CudaDeviceTest, SaysWhetherAStreamCanWriteWords) {
  std::uint32_t word = 0;
  EXPECT_TRUE(device().write_word(&word, 7, {}));
  EXPECT_EQ(word, 7U);
  vendor().writes_values = false;
  for (const CUresult refusal : {CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED}) {
    vendor().cuda_results["cuStreamWriteValue32"] = refusal;
    EXPECT_FALSE(device().write_word(&word, 8, {}));
  }
  vendor().cuda_results["cuStreamWriteValue32"] = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_THROW(device().write_word(&word, 8, {}), DeviceError);
}

TEST_F(CudaDeviceTest, EventsAreMadeOnce) {
  for (int repetition = 0; repetition < 5; ++repetition) {
    const std::unique_ptr<DeviceEvent> one = device().make_event(DeviceEvent::Use::kHost);
    const std::unique_ptr<DeviceEvent> other = device().make_event(DeviceEvent::Use::kStreams);
    EXPECT_TRUE(one->is_complete()) << "of an earlier event nothing is left";
    device().record(*one, {});
  }
  EXPECT_EQ(vendor().events_made, 2);
}

TEST_F(CudaDeviceTest, OnlyTimingEventsHaveATime) {
  for (const auto use : {DeviceEvent::Use::kStreams, DeviceEvent::Use::kHost}) {
    device().make_event(use);
    EXPECT_EQ(vendor().event_flags, CU_EVENT_DISABLE_TIMING);
  }
  const std::unique_ptr<DeviceEvent> begin = device().make_event(DeviceEvent::Use::kTiming);
  EXPECT_EQ(vendor().event_flags, CU_EVENT_DEFAULT);
  const std::unique_ptr<DeviceEvent> end = device().make_event(DeviceEvent::Use::kTiming);
  vendor().elapsed_milliseconds = 250;
  EXPECT_EQ(device().elapsed(*begin, *end), Seconds(0.25));
  EXPECT_EQ(vendor().mode_of_elapsed, CU_STREAM_CAPTURE_MODE_RELAXED) << "other threads may capture";
  vendor().cuda_results["cuEventElapsedTime"] = CUDA_ERROR_NOT_READY;
  EXPECT_THAT(message_of<DeviceError>([&] { device().elapsed(*begin, *end); }), HasSubstr("cuEventElapsedTime failed"));
}

TEST_F(CudaDeviceTest, SaysHowMuchMemoryIsLeft) {
  void* const kept = device().allocate(4 * kMiB);
  device().release(device().allocate(8 * kMiB));
  EXPECT_THAT(message_of<DeviceError>([&] { device().allocate(14 * kMiB); }),
              AllOf(HasSubstr("CUDA device 0 (Fake A) has no memory for 14680064 bytes"),
                    HasSubstr("12582912 of its 16777216 bytes are free"), HasSubstr("uses 4194304")))
      << "what the pool kept has gone back first";
  void* const rest = device().allocate(12 * kMiB);
  device().release(rest);
  device().release(kept);
  vendor().cuda_results["cuMemHostAlloc"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_THAT(message_of<DeviceError>([&] { device().allocate_pinned(77); }),
              AllOf(HasSubstr("pinned"), HasSubstr("77 bytes"), HasSubstr("Fake A")));
  vendor().cuda_results["cuMemAlloc"] = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_THAT(message_of<DeviceError>([&] { device().allocate(2 * kMiB); }), HasSubstr("cuMemAlloc failed on"))
      << "another error than a lack of memory";
}

TEST_F(CudaDeviceTest, PinnedMemoryIsKept) {
  void* const memory = device().allocate_pinned(5000);
  device().release_pinned(memory);
  EXPECT_EQ(device().allocate_pinned(4900), memory);
  device().release_pinned(memory);
}

TEST_F(CudaDeviceTest, OneLaunchForAllTasksOfAKernel) {
  std::vector<DeviceTask> tasks(70);
  for (DeviceTask& task : tasks) task.count = 3;
  tasks[1].count = 0;
  tasks[2].kind = DeviceTask::Kind::kReduce;
  tasks[2].dtype = DType::kF32;
  device().launch(tasks, {});
  ASSERT_EQ(vendor().launches.size(), 2U);
  EXPECT_EQ(vendor().launches[0].kernel, "farandole_copy_x682");
  EXPECT_EQ(vendor().launches[0].counts.size(), 68U);
  EXPECT_EQ(vendor().launches[0].blocks, 68U);
  EXPECT_EQ(vendor().launches[1].kernel, "farandole_reduce_f32_sum");
  EXPECT_EQ(vendor().launches[1].blocks, 1U);
  EXPECT_THAT(vendor().launches[1].counts, ElementsAre(3U));
  vendor().cuda_results["cuLaunchKernel"] = 719;
  EXPECT_THAT(message_of<DeviceError>([&] { device().launch(tasks, {}); }),
              HasSubstr("cuLaunchKernel of farandole_copy_x682 failed on CUDA device 0 (Fake A)"));
}

std::vector<DeviceTask> packing_of_resnet50() {
  std::vector<DeviceTask> tasks;
  for (const std::size_t count : test::resnet50_gradients()) {
    DeviceTask task;
    task.dtype = task.output_dtype = DType::kF32;
    task.count = count;
    tasks.push_back(task);
  }
  return tasks;
}

TEST_F(CudaDeviceTest, PackingOfResNet50IsOneLaunchOfAllResidentBlocks) {
  device().launch(packing_of_resnet50(), {});
  ASSERT_EQ(vendor().launches.size(), 1U);
  EXPECT_EQ(vendor().launches[0].counts.size(), 161U);
  EXPECT_EQ(vendor().launches[0].blocks, 6U * 132);
}

TEST_F(CudaDeviceTest, KernelsOfCuda12TakeSeveralLaunches) {
  CudaDevice device(api_, nccl_, info(), kernel_image("kernels", 7, 12090));
  EXPECT_EQ(vendor().loaded_kernels.size(), 112U);
  device.launch(packing_of_resnet50(), {});
  ASSERT_EQ(vendor().launches.size(), 3U);
  EXPECT_EQ(vendor().launches[2].kernel, "farandole_copy");
  EXPECT_EQ(vendor().launches[2].counts.size(), 161U - 128);
}

TEST_F(CudaDeviceTest, SaysWhyThereAreNoCollectives) {
  NcclLibrary none;
  none.problem = "no NCCL in this test";
  Nccl nccl(none);
  CudaDevice device(api_, nccl, info(), kFakeImage);
  EXPECT_THAT(message_of<Unsupported>([&] { device.make_group_id(); }), HasSubstr("no NCCL in this test"));
  EXPECT_THAT(message_of<Unsupported>([&] { device.join_group({}, 0, 2); }), HasSubstr("no NCCL in this test"));
}

TEST_F(CudaDeviceTest, FindsDevicesAndOpensEachOnce) {
  std::string reason;
  const auto devices = CudaDevices::find(library(), std::span(&kFakeImage, 1), "/nowhere/libnccl.so", reason);
  ASSERT_NE(devices, nullptr) << reason;
  const std::vector<DeviceInfo> infos = devices->devices();
  ASSERT_EQ(infos.size(), 2U);
  EXPECT_EQ(infos[1].ordinal, 1);
  EXPECT_EQ(infos[1].name, "Fake B");
  EXPECT_EQ(infos[1].identity, "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
  EXPECT_EQ(infos[1].memory_bytes, 16 * kMiB);
  EXPECT_EQ(infos[1].compute_capability, 90);
  EXPECT_EQ(&devices->open(1), &devices->open(1));
  EXPECT_EQ(devices->open(1).space(), (MemorySpace{MemoryKind::kCuda, 1}));
  EXPECT_THAT(message_of<InvalidArgument>([&] { devices->open(2); }),
              AllOf(HasSubstr("no CUDA device 2"), HasSubstr("0 (Fake A), 1 (Fake B)"), HasSubstr("FARANDOLE_DEVICE")));
  EXPECT_THROW(devices->open(-1), InvalidArgument);
  EXPECT_EQ(devices->name(), "CUDA");
  EXPECT_EQ(devices->version(), "driver (CUDA 13.0), no NCCL");
  EXPECT_THAT(devices->collectives_missing(),
              AllOf(HasSubstr("/nowhere/libnccl.so"), HasSubstr("FARANDOLE_NCCL_LIBRARY")));
  EXPECT_TRUE(devices->warnings().empty());
}

TEST_F(CudaDeviceTest, AddressesThatCudaDoesNotKnowAreOfTheHost) {
  std::string reason;
  const auto devices = CudaDevices::find(library(), std::span(&kFakeImage, 1), "", reason);
  ASSERT_NE(devices, nullptr) << reason;
  int here = 0;
  int there = 0;
  vendor().device_memory = &there;
  EXPECT_TRUE(devices->space_of(&here).is_host());
  EXPECT_EQ(devices->space_of(&there), (MemorySpace{MemoryKind::kCuda, 1}));
}

TEST_F(CudaDeviceTest, SaysWhyThereAreNoDevices) {
  CudaLibrary none;
  none.problem = "no NVIDIA driver: of this test";
  EXPECT_EQ(why_none(none), none.problem);
  CudaLibrary old = library();
  old.version = 12080;
  EXPECT_THAT(why_none(old), HasSubstr("CUDA 12.8"));
  KernelImage not_built = kFakeImage;
  not_built.bytes = 0;
  EXPECT_THAT(why_none(library(), not_built), HasSubstr("no kernels"));
  CudaLibrary lacking = library();
  lacking.missing = "cuEventQuery";
  EXPECT_THAT(why_none(lacking), AllOf(HasSubstr("/fake/libcuda.so.1"), HasSubstr("has no cuEventQuery")));
  vendor().cuda_results["cuInit"] = CUDA_ERROR_NO_DEVICE;
  EXPECT_THAT(why_none(library()), AllOf(HasSubstr("cuInit failed"), HasSubstr("(100)"), HasSubstr("CUDA_VISIBLE")));
  vendor().cuda_results["cuInit"] = CUDA_ERROR_SYSTEM_NOT_READY;
  EXPECT_THAT(why_none(library()), HasSubstr("nvidia-fabricmanager"));
  vendor().cuda_results.clear();
  vendor().device_count = 0;
  EXPECT_THAT(why_none(library()), HasSubstr("no device"));
}

}  // namespace
}  // namespace farandole::cuda
