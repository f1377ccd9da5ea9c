// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "broken_device.h"
#include "figures.h"
#include "vendor_calls.h"

namespace farandole::figures {
namespace {

using cuda::CUfunction;

/// Kernels that do nothing, with so many bytes of parameters.
constexpr const char* kIdleKernels = R"(.version 6.4
.target sm_70
.address_size 64
.visible .entry idle_48(.param .align 8 .b8 parameters[48]) { ret; }
.visible .entry idle_4096(.param .align 8 .b8 parameters[4096]) { ret; }
)";

double median_microseconds(int samples, const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < samples * 16; ++i) {
    const auto start = Clock::now();
    call();
    times.push_back(microseconds_since(start));
  }
  return median(times);
}

/// Launches of kernels that do nothing.
void measure_launches(nlohmann::json& figures, Device& device, StreamView stream, int samples) {
  cuda::CUmodule module = nullptr;
  const auto start = Clock::now();
  check_driver(driver().cuModuleLoadData(&module, kIdleKernels), "cuModuleLoadData");
  figures["module load, us"] = microseconds_since(start);
  std::array<std::uint8_t, 4096> bytes{};
  void* parameters[] = {bytes.data()};
  for (const char* const name : {"idle_48", "idle_4096"}) {
    CUfunction function = nullptr;
    // The double takes any image, and has no such function.
    if (driver().cuModuleGetFunction(&function, module, name) == cuda::CUDA_ERROR_NOT_FOUND) return;
    figures[std::string("launch, ") + (name + 5) + " bytes of parameters, us"] =
        host_microseconds(device, stream, samples, [&] {
          check_driver(driver().cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0,
                                               static_cast<cuda::CUstream>(stream.handle), parameters, nullptr),
                       "cuLaunchKernel");
        });
  }
}

double allocate_and_free(int samples) {
  return median_microseconds(samples, [] {
    cuda::CUdeviceptr memory = 0;
    check_driver(driver().cuMemAlloc(&memory, std::size_t{4} << 20), "cuMemAlloc");
    check_driver(driver().cuMemFree(memory), "cuMemFree");
  });
}

/// Milliseconds that a free takes while a stream is stuck, at most `limit`: a driver may wait for the device, though
/// the stream uses other memory.
double free_beside_stuck_stream(Device& device, BufferView in_stream, std::chrono::milliseconds limit) {
  cuda::CUdeviceptr memory = 0;
  check_driver(driver().cuMemAlloc(&memory, std::size_t{4} << 20), "cuMemAlloc");
  const StreamView stream = device.make_stream();
  std::mutex mutex;
  std::condition_variable ended;
  bool is_free = false;
  double milliseconds = 0;
  std::thread free_it;
  {
    const test::StuckStream stuck(device, stream);
    device.fill_zero(in_stream.data, in_stream.size_in_bytes(), stream);
    const auto start = Clock::now();
    free_it = std::thread([&] {
      device.bind_thread();
      driver().cuMemFree(memory);
      const std::lock_guard guard(mutex);
      is_free = true;
      ended.notify_one();
    });
    std::unique_lock lock(mutex);
    ended.wait_for(lock, limit, [&] { return is_free; });
    milliseconds = microseconds_since(start) * 1e-3;
  }
  free_it.join();
  return milliseconds;
}

/// From one thread to another that sleeps, and back.
double hand_off(int samples) {
  std::mutex mutex;
  std::condition_variable changed;
  int turn = 0;  // odd: the other thread's; negative: the end
  std::thread other([&] {
    std::unique_lock lock(mutex);
    while (turn >= 0) {
      changed.wait(lock, [&] { return turn % 2 != 0; });
      if (turn < 0) return;
      ++turn;
      changed.notify_one();
    }
  });
  const double microseconds = median_microseconds(samples, [&] {
    std::unique_lock lock(mutex);
    ++turn;
    changed.notify_one();
    changed.wait(lock, [&] { return turn % 2 == 0; });
  });
  {
    const std::lock_guard guard(mutex);
    turn = -1;
    changed.notify_one();
  }
  other.join();
  return microseconds;
}

std::unique_ptr<std::uint32_t, std::function<void(std::uint32_t*)>> pinned_word(Device& device) {
  return {static_cast<std::uint32_t*>(device.allocate_pinned(sizeof(std::uint32_t))),
          [&device](std::uint32_t* word) { device.release_pinned(word); }};
}

}  // namespace

nlohmann::json measure_driver(Communicator& ranks, int samples) {
  Device& device = device_of(ranks);
  device.bind_thread();
  const StreamView stream = device.make_stream();
  auto* const handle = static_cast<cuda::CUstream>(stream.handle);
  Buffer values = ranks.allocate(1024, DType::kU8, ranks.device());
  const auto address = reinterpret_cast<cuda::CUdeviceptr>(values.view().data);
  nlohmann::json figures;

  cuda::CUevent event = nullptr;
  figures["event create and destroy, us"] = median_microseconds(samples, [&] {
    check_driver(driver().cuEventCreate(&event, cuda::CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    check_driver(driver().cuEventDestroy(event), "cuEventDestroy");
  });
  check_driver(driver().cuEventCreate(&event, cuda::CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  figures["event record, us"] = host_microseconds(
      device, stream, samples, [&] { check_driver(driver().cuEventRecord(event, handle), "cuEventRecord"); });
  const auto word = pinned_word(device);
  figures["write of a word by the stream, us"] =
      host_microseconds(device, stream, samples, [&] { device.write_word(word.get(), 1, stream); });
  figures["event query, us"] = median_microseconds(samples, [&] { driver().cuEventQuery(event); });
  check_driver(driver().cuEventDestroy(event), "cuEventDestroy");

  cuda::CUcontext context = nullptr;
  check_driver(driver().cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  figures["context set, us"] =
      median_microseconds(samples, [&] { check_driver(driver().cuCtxSetCurrent(context), "cuCtxSetCurrent"); });
  unsigned type = 0;
  figures["pointer attribute of device memory, us"] = median_microseconds(samples, [&] {
    check_driver(driver().cuPointerGetAttribute(&type, cuda::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
                 "cuPointerGetAttribute");
  });
  figures["pointer attribute of host memory, us"] = median_microseconds(samples, [&] {
    driver().cuPointerGetAttribute(&type, cuda::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   reinterpret_cast<cuda::CUdeviceptr>(&type));
  });
  measure_launches(figures, device, stream, samples);
  figures["allocate and free 4 MiB, us"] = allocate_and_free(samples);
  figures["free beside a stuck stream, ms, at most 2000"] =
      free_beside_stuck_stream(device, values.view(), std::chrono::milliseconds(2000));
  figures["thread hand-off and back, us"] = hand_off(samples);
  return figures;
}

}  // namespace farandole::figures
