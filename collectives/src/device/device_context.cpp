// SPDX-License-Identifier: Apache-2.0
#include "device/device_context.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "device/device_scratch.h"
#include "device/vendor_calls.h"
#include "farandole/core/error.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/device_choice.h"
#include "farandole/internal/library_thread.h"
#include "farandole/internal/log.h"

namespace farandole {
namespace {

DeviceRuntime& runtime_of(const Settings& settings) {
  const DeviceAvailability& available = device_runtime(settings);
  if (available.runtime == nullptr) {
    throw InvalidArgument(
        fmt::format("there are no devices to work on: {}. To work on processors: --device cpu or auto of a program, no "
                    "WorldOptions::devices",
                    available.reason));
  }
  return *available.runtime;
}

Device& open_device(DeviceRuntime& runtime, const Endpoint& endpoint) {
  const RankInfo& self = endpoint.topology().rank(endpoint.rank());
  const auto devices = static_cast<int>(runtime.devices().size());
  try {
    const std::optional<int> chosen = endpoint.chosen_device();
    const std::string& setting = endpoint.settings().devices.ordinals;
    return runtime.open(chosen ? checked_device(*chosen, self.replica, devices)
                               : device_of_rank(setting, self.local_rank, self.local_size, devices));
  } catch (const DeviceError& error) {
    throw InvalidArgument(
        fmt::format("{} cannot open its device: {}", endpoint.topology().describe(endpoint.rank()), error.message()));
  }
}

std::atomic<const DeviceRuntime*> opened_runtime{nullptr};  // the runtime itself lives until the process ends

/// The contexts of this process.
struct Contexts {
  struct Entry {
    int refs = 0;                            // number of ContextRefs
    std::shared_ptr<DeviceContext> context;  // null until the device is opened
  };
  std::mutex mutex;
  std::map<const Endpoint*, Entry> by_endpoint;  // ranks that have communicators
  /// Groups of jobs that have failed. Never destroyed, because an abandoned thread may be in a call of such a group.
  std::deque<std::vector<DeviceContext::Group>> abandoned;
  static Contexts& of_process() {
    static auto* contexts = new Contexts;  // never destroyed: communicators may outlive static objects
    return *contexts;
  }
};

}  // namespace

DeviceContext::ContextRef::ContextRef(std::shared_ptr<Endpoint> endpoint) : endpoint_(std::move(endpoint)) {
  Contexts& contexts = Contexts::of_process();
  const std::lock_guard lock(contexts.mutex);
  ++contexts.by_endpoint[endpoint_.get()].refs;
}

DeviceContext::ContextRef::~ContextRef() {
  std::shared_ptr<DeviceContext> last;  // destroyed after the lock is released, because its destructor may block
  Contexts& contexts = Contexts::of_process();
  const std::lock_guard lock(contexts.mutex);
  Contexts::Entry& entry = contexts.by_endpoint.at(endpoint_.get());
  if (--entry.refs > 0) return;
  last = std::move(entry.context);
  contexts.by_endpoint.erase(endpoint_.get());
}

DeviceContext& DeviceContext::ContextRef::context() {
  Contexts& contexts = Contexts::of_process();
  const std::lock_guard lock(contexts.mutex);
  std::shared_ptr<DeviceContext>& context = contexts.by_endpoint.at(endpoint_.get()).context;
  if (context == nullptr) context = std::make_shared<DeviceContext>(endpoint_);
  return *context;
}

const DeviceRuntime* DeviceContext::opened() {
  return opened_runtime.load(std::memory_order_relaxed);
}

DeviceContext::DeviceContext(std::shared_ptr<Endpoint> endpoint)
    : endpoint_(std::move(endpoint)), thread_([this] { endpoint_->progress().ring(); }), opened_(open()) {
  // Waiting threads must poll: the device does not wake them when an operation completes.
  endpoint_->progress().set_polled();
  opened_runtime.store(opened_.runtime, std::memory_order_relaxed);
  log(LogLevel::kInfo, fmt::format("{} uses {} device {} ({})", endpoint_->topology().describe(endpoint_->rank()),
                                   opened_.runtime->name(), device().info().ordinal, device().info().name));
}

DeviceContext::Opened DeviceContext::open() {
  try {
    return make_now("to open its device", [endpoint = endpoint_] {
      DeviceRuntime& runtime = runtime_of(endpoint->settings());
      Device& device = open_device(runtime, *endpoint);
      device.bind_thread();
      return Opened{&runtime, &device, device.make_stream(), device.make_stream()};
    });
  } catch (...) {
    if (endpoint_->faults().exist()) thread_.abandon();  // the thread may never return from the driver
    throw;
  }
}

void DeviceContext::run_now(const std::string& what, std::function<void()> work) {
  const Seconds timeout = endpoint_->settings().faults.timeout;
  const Deadline deadline = timeout.count() > 0 ? Deadline::after(timeout) : Deadline::never();
  thread_.run_now(std::move(work), [&] {
    endpoint_->faults().check();
    if (!deadline.passed()) return;
    endpoint_->faults().poison(
        ErrorKind::kTimeout,
        fmt::format(
            "the deadline of {} s (FARANDOLE_TIMEOUT) has passed: {} waits for its device {}: what was enqueued "
            "there has not ended, or the driver does not answer",
            timeout.count(), endpoint_->topology().describe(endpoint_->rank()), what));
    endpoint_->faults().check();
  });
}

void DeviceContext::wait_until(const std::function<bool()>& is_over) {
  constexpr auto kPause = std::chrono::microseconds(100);
  while (!is_over()) {
    endpoint_->faults().check();
    endpoint_->progress().advance_all();
    std::this_thread::sleep_for(kPause);
  }
}

DeviceContext::~DeviceContext() {
  if (endpoint_->faults().exist()) abandon();
  const std::lock_guard lock(mutex_);
  if (is_abandoned_) return;
  thread_.run([groups = std::move(groups_)]() mutable {
    for (Group& group : groups) group.devices.reset();
  });
}

void DeviceContext::check(DeviceGroup& devices) const {
  const std::string error = devices.asynchronous_error();
  if (!error.empty()) throw DeviceError(fmt::format("device {}: {}", device().info().ordinal, error));
}

void DeviceContext::release_stream(StreamView stream) {
  if (endpoint_->faults().exist()) return;
  (void)thread_.run([stream, &device = device()] { device.release_stream(stream); });
}

DeviceContext::CopyStreams DeviceContext::copy_streams() {
  const std::lock_guard lock(mutex_);
  if (!copy_streams_.out.valid()) copy_streams_ = {device().make_stream(), device().make_stream()};
  return copy_streams_;
}

Buffer DeviceContext::allocate(std::size_t count, DType dtype) {
  if (count == 0)
    return Buffer(
        nullptr, 0, dtype, [](void*) {}, space());
  const std::size_t bytes = allocated_bytes(count, dtype);
  const std::string what = fmt::format("to allocate {} bytes", bytes);
  const auto make = [&] {
    return make_now(what, [bytes, &device = device(), zeroing_stream = opened_.zeroing_stream] {
      DeviceScratch zeroed = device_scratch(device, bytes);
      device.fill_zero(zeroed.get(), bytes, zeroing_stream);
      device.synchronize(zeroing_stream);
      return zeroed;
    });
  };
  DeviceScratch memory;
  while (memory == nullptr) {
    const std::uint64_t returned = blocks_->collect().returned;
    try {
      memory = make();
    } catch (const DeviceError&) {
      DeviceBlocks::Released released;
      wait_until([&] {
        released = blocks_->collect();
        return released.returned != returned || !released.are_running;
      });
      if (released.returned == returned) throw;
    }
  }
  // The buffer may outlive this context: the device, which its deleter uses, lives until the process ends.
  return Buffer(
      blocks_->add(std::move(memory), bytes), count, dtype, [blocks = blocks_](void* block) { blocks->release(block); },
      space());
}

std::size_t DeviceContext::trim() {
  wait_until([this] { return running_operations_.load() == 0 && !watch_thread_.has_running(); });
  blocks_->collect();
  return make_now("to return memory", [&device = device()] { return device.trim(); });
}

void DeviceContext::add(DeviceOrder::Ticket ticket) {
  const std::lock_guard lock(mutex_);
  order_.add(ticket);
}

std::optional<DeviceOrder::Time> DeviceContext::propose(DeviceOrder::Ticket ticket) {
  const std::lock_guard lock(mutex_);
  return order_.propose(ticket);
}

void DeviceContext::agree(DeviceOrder::Ticket ticket, DeviceOrder::Time agreed) {
  const std::lock_guard lock(mutex_);
  order_.agree(ticket, agreed);
}

bool DeviceContext::is_next(DeviceOrder::Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  return order_.is_next(ticket);
}

void DeviceContext::remove(DeviceOrder::Ticket ticket) {
  const std::lock_guard lock(mutex_);
  order_.remove(ticket);
}

void DeviceContext::add(Group group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(std::move(group));
}

DeviceContext::Group DeviceContext::group_of(const std::vector<int>& members) const {
  const std::lock_guard lock(mutex_);
  const auto last = std::find_if(groups_.rbegin(), groups_.rend(),
                                 [&](const Group& group) { return group.is_shared && group.members == members; });
  return last == groups_.rend() ? Group{} : *last;
}

void DeviceContext::abandon() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_abandoned_, true)) return;
  thread_.abandon();
  wait_for_vendor_threads_at_exit();
  Contexts& contexts = Contexts::of_process();
  const std::lock_guard contexts_lock(contexts.mutex);
  const std::vector<Group>& groups = contexts.abandoned.emplace_back(std::exchange(groups_, {}));
  try {
    // Open the scope before the thread runs, so that even an immediate exit waits for the thread.
    start_library_thread([&groups, inside = std::make_unique<VendorCallScope>()] {
      for (const Group& group : groups) group.devices->abort();
    }).detach();
  } catch (const std::system_error& error) {
    log(LogLevel::kWarning,
        fmt::format("device operations cannot be aborted: no thread can be started ({})", error.code().message()));
  }
}

}  // namespace farandole
