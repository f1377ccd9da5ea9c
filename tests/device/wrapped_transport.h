// SPDX-License-Identifier: Apache-2.0
// A transport that hands on to another one, says that it takes device memory, and fails or kills its process when it is
// told to.
#pragma once

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "driver_function.h"
#include "farandole/core/error.h"
#include "farandole/sdk/device.h"
#include "farandole/sdk/transport.h"

namespace farandole::test {

/// Of one rank. Long messages are those of a collective's data; what ranks tell each other beside is shorter.
class WrappedTransport final : public Transport {
 public:
  static constexpr std::size_t kLongBytes = 1000;
  struct Options {
    bool takes_device_memory = false;
    int fails_at = 0;    ///< the n-th long message that is sent is a TransportError; 0: none
    int dies_at = 0;     ///< at the n-th long message that is sent the process is killed; 0: at none
    int hangs_from = 0;  ///< the n-th long message that is received never comes; 0: none
  };
  WrappedTransport(Transport& inner, const DeviceRuntime& runtime, Options options)
      : inner_(inner), runtime_(runtime), options_(options) {}

  std::string_view name() const override { return inner_.name(); }
  bool can_send(MemoryKind kind) const override { return kind == MemoryKind::kHost || options_.takes_device_memory; }
  std::unique_ptr<Transfer> send(const Channel& channel, const void* data, std::size_t bytes) override {
    count(data, bytes);
    if (bytes >= kLongBytes) {
      const int sent = ++sent_;
      if (sent == options_.fails_at) throw TransportError("the network is down");
      if (sent == options_.dies_at) std::raise(SIGKILL);
    }
    return inner_.send(channel, data, bytes);
  }
  std::unique_ptr<Transfer> recv(const Channel& channel, void* data, std::size_t bytes) override {
    count(data, bytes);
    if (bytes >= kLongBytes && ++received_ == options_.hangs_from) return std::make_unique<NeverComes>();
    return inner_.recv(channel, data, bytes);
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
  void count(const void* data, std::size_t bytes) {
    if (bytes == 0 || runtime_.space_of(data).is_host()) return;
    ++of_device_memory_;
    void* context = nullptr;
    auto* const current = find_in_driver<int(void**)>("cuCtxGetCurrent");
    if (current == nullptr || current(&context) != 0 || context == nullptr) ++without_device_;
  }

  Transport& inner_;
  const DeviceRuntime& runtime_;
  const Options options_;
  std::atomic<int> sent_{0}, received_{0}, of_device_memory_{0}, without_device_{0};
};

}  // namespace farandole::test
