// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_execution.h"

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/plugin.h"
#include "farandole/sdk/device.h"
#include "kernels/device_plugin.h"
#include "kernels/memory_log.h"

namespace farandole::trainer {
namespace {

constexpr std::string_view kPluginName = "trainer_cuda";
constexpr PluginKind kPlugin{"farandole_trainer_kernels_v1", "farandole_trainer_kernels_build_id",
                             "install it, or build Farandole with FARANDOLE_WITH_CUDA=ON"};

const DeviceKernelsMaker& load_maker(const Settings& settings) {
  const PluginLibrary plugin = load_plugin(kPluginName, kPlugin, settings);
  const DeviceKernelsHostApi host{.cuda_library = settings.devices.cuda_library.c_str(),
                                  .cublas_library = settings.devices.cublas_library.c_str(),
                                  .cudnn_library = settings.devices.cudnn_library.c_str()};
  std::string reason;
  const DeviceKernelsMaker* const maker = reinterpret_cast<DeviceKernelsEntry>(plugin.entry)(&host, &reason);
  if (maker != nullptr) return *maker;
  throw Unsupported("the trainer cannot compute on devices: " +
                    (reason.empty() ? plugin_refusal(kPluginName, plugin) : reason));
}

/// The maker of this process, which is loaded once. A failure is not kept: the next call tries again.
const DeviceKernelsMaker& maker_of(const Settings& settings) {
  static std::mutex mutex;
  static const DeviceKernelsMaker* loaded = nullptr;
  const std::lock_guard lock(mutex);
  if (loaded == nullptr) loaded = &load_maker(settings);
  return *loaded;
}

/// Streams that no execution uses: devices keep theirs until the process ends. Thread-safe.
class UnusedStreams {
 public:
  StreamView take(Device& device) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<StreamView>& streams = streams_[device.info().ordinal];
      if (!streams.empty()) {
        const StreamView stream = streams.back();
        streams.pop_back();
        return stream;
      }
    }
    return device.make_stream();
  }
  /// @param stream  its work is done
  void give(Device& device, StreamView stream) {
    const std::lock_guard lock(mutex_);
    streams_[device.info().ordinal].push_back(stream);
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<StreamView>> streams_;  // by the device's number
};

UnusedStreams& unused_streams() {
  static auto* const streams = new UnusedStreams;  // never destroyed: executions may end after static objects
  return *streams;
}

/// The same memory, which is released when the stream's work is done: a tensor that grows gives its memory back while
/// kernels that use it may be in the stream.
Buffer released_after(Buffer buffer, Device& device, StreamView stream, const std::shared_ptr<MemoryLog>& log) {
  const BufferView view = buffer.view();
  auto owner = std::make_shared<Buffer>(std::move(buffer));
  const auto release = [owner, &device, stream, log, number = log->add()](void*) mutable {
    log->release(number);
    try {
      device.synchronize(stream);
    } catch (const std::exception&) {
      // The device has failed, and whoever waits for results reports it.
    }
    owner.reset();
  };
  return {view.data, view.count, view.dtype, release, view.space};
}

}  // namespace

Execution device_execution(Communicator& communicator, const DeviceComputation& computation) {
  const MemorySpace space = communicator.device();
  const Settings& settings = internals(communicator).settings();
  Device& device = device_runtime(settings).runtime->open(space.ordinal);
  const DeviceKernelsMaker& maker = maker_of(settings);
  const StreamView stream = unused_streams().take(device);
  const auto log = std::make_shared<MemoryLog>();
  TensorMemory memory{space, [&communicator, &device, stream, log](std::size_t count, DType dtype) {
                        return released_after(communicator.allocate(count, dtype, stream.space), device, stream, log);
                      }};
  const auto workspace = std::make_shared<Workspace>(memory);
  std::unique_ptr<DeviceKernels> kernels = maker.make(device, stream, *workspace, computation);
  const auto give_back = [&device, stream](const DeviceKernels* made) {
    delete made;  // waits for the stream
    unused_streams().give(device, stream);
  };
  return {std::move(memory),
          stream,
          {computation.compute, DType::kF32},
          workspace,
          std::shared_ptr<const DeviceKernels>(kernels.release(), give_back),
          log};
}

BorrowedStream::BorrowedStream(Device& device) : device_(device), stream_(unused_streams().take(device)) {}

BorrowedStream::~BorrowedStream() {
  try {
    device_.synchronize(stream_);
  } catch (const std::exception&) {
    return;  // the device has failed, and whoever waits for results reports it
  }
  unused_streams().give(device_, stream_);
}

}  // namespace farandole::trainer
