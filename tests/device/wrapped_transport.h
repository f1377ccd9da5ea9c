// SPDX-License-Identifier: Apache-2.0
// A transport that forwards to another transport. It accepts device memory by copying through host memory, and on
// demand fails or kills its process.
#pragma once

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "driver_function.h"
#include "farandole/core/error.h"
#include "farandole/sdk/device.h"
#include "farandole/sdk/transport.h"
#include "on_device.h"

namespace farandole::test {

/// The wrapped transport of one rank. Long messages carry the data of collectives; all other messages are shorter.
class WrappedTransport final : public Transport {
 public:
  static constexpr std::size_t kLongBytes = 1000;
  struct Options {
    bool takes_device_memory = false;
    int fails_at = 0;    ///< the n-th long message that is sent is a TransportError; 0: none
    int dies_at = 0;     ///< at the n-th long message that is sent the process is killed; 0: at none
    int hangs_from = 0;  ///< the n-th long message that is received never comes; 0: none
  };
  WrappedTransport(Transport& inner, DeviceRuntime& runtime, Options options)
      : inner_(inner), runtime_(runtime), options_(options) {}

  std::string_view name() const override { return inner_.name(); }
  bool can_send(MemoryKind kind) const override { return kind == MemoryKind::kHost || options_.takes_device_memory; }
  std::unique_ptr<Transfer> send(const Channel& channel, const void* data, std::size_t bytes) override {
    const MemorySpace space = count(data, bytes);
    if (bytes >= kLongBytes) {
      const int sent = ++sent_;
      if (sent == options_.fails_at) throw TransportError("the network is down");
      if (sent == options_.dies_at) std::raise(SIGKILL);
    }
    if (space.is_host()) return inner_.send(channel, data, bytes);
    auto staged = std::make_unique<Staged>(runtime_.open(space.ordinal), nullptr, bytes);
    copy_now(staged->device, staged->host.data(), data, bytes);
    staged->inner = inner_.send(channel, staged->host.data(), bytes);
    return staged;
  }
  std::unique_ptr<Transfer> recv(const Channel& channel, void* data, std::size_t bytes) override {
    const MemorySpace space = count(data, bytes);
    if (bytes >= kLongBytes && ++received_ == options_.hangs_from) return std::make_unique<NeverComes>();
    if (space.is_host()) return inner_.recv(channel, data, bytes);
    auto staged = std::make_unique<Staged>(runtime_.open(space.ordinal), data, bytes);
    staged->inner = inner_.recv(channel, staged->host.data(), bytes);
    return staged;
  }
  std::unique_ptr<Transfer> recv_up_to(const Channel& channel, void* data, std::size_t most) override {
    return inner_.recv_up_to(channel, data, most);
  }
  bool has_arrived(std::uint16_t communicator, std::uint8_t lane, int target) override {
    return inner_.has_arrived(communicator, lane, target);
  }

  /// Messages of device memory, and those among them whose thread was not on a device.
  int of_device_memory() const { return of_device_memory_; }
  int without_device() const { return without_device_; }

 private:
  class NeverComes final : public Transfer {
   public:
    bool test() override { return false; }
  };
  /// A message of device memory, whose bytes lie in host memory on their way.
  struct Staged final : Transfer {
    Staged(Device& device_of_data, void* receives_to, std::size_t bytes)
        : device(device_of_data), output(receives_to), host(bytes) {}
    bool test() override {
      if (!inner->test()) return false;
      if (output != nullptr) copy_now(device, std::exchange(output, nullptr), host.data(), host.size());
      return true;
    }
    BufferHazard withdraw() override { return inner->withdraw(); }

    Device& device;
    void* output;  ///< null for a send, and once the bytes are there
    std::vector<std::byte> host;
    std::unique_ptr<Transfer> inner;  ///< goes before `host`
  };
  /// Returns the memory space of `data`, and counts device memory and calls without a current context.
  MemorySpace count(const void* data, std::size_t bytes) {
    const MemorySpace space = bytes == 0 ? MemorySpace{} : runtime_.space_of(data);
    if (space.is_host()) return space;
    ++of_device_memory_;
    void* context = nullptr;
    auto* const current = find_in_driver<int(void**)>("cuCtxGetCurrent");
    if (current == nullptr || current(&context) != 0 || context == nullptr) ++without_device_;
    return space;
  }

  Transport& inner_;
  DeviceRuntime& runtime_;
  const Options options_;
  std::atomic<int> sent_{0}, received_{0}, of_device_memory_{0}, without_device_{0};
};

}  // namespace farandole::test
