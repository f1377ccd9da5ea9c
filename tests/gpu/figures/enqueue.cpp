// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <optional>
#include <vector>

#include "farandole/internal/communicator_access.h"
#include "figures.h"
#include "vendor_calls.h"

namespace farandole::figures {
namespace {

/// An id that rank 0 makes, on all ranks. Collective.
cuda::ncclUniqueId shared_id(Communicator& ranks) {
  std::vector<std::uint8_t> bytes(sizeof(cuda::ncclUniqueId));
  if (ranks.rank() == 0) {
    const cuda::ncclUniqueId made = NcclAlone::make_id(internals(ranks).settings());
    std::memcpy(bytes.data(), &made, sizeof made);
  }
  ranks.broadcast(bytes, 0);
  cuda::ncclUniqueId id;
  std::memcpy(&id, bytes.data(), sizeof id);
  return id;
}

std::size_t free_device_bytes(Device& device) {
  device.bind_thread();
  std::size_t free_bytes = 0, total_bytes = 0;
  check_driver(driver().cuMemGetInfo(&free_bytes, &total_bytes), "cuMemGetInfo");
  return free_bytes;
}

/// Device memory that `make` takes, MiB. Collective.
double mebibytes_of(Communicator& ranks, Device& device, const std::function<void()>& make) {
  ranks.barrier();
  const std::size_t before = free_device_bytes(device);
  ranks.barrier();
  make();
  ranks.barrier();
  const std::size_t after = free_device_bytes(device);
  return (static_cast<double>(before) - static_cast<double>(after)) / (1 << 20);
}

}  // namespace

double host_microseconds(Device& device, StreamView stream, int samples, const std::function<void()>& enqueue) {
  constexpr int kInStream = 16;
  std::vector<double> times;
  for (int i = 0; i < samples * kInStream; ++i) {
    if (i % kInStream == 0) device.synchronize(stream);
    const auto start = Clock::now();
    enqueue();
    times.push_back(microseconds_since(start));
  }
  device.synchronize(stream);
  return median(times);
}

nlohmann::json measure_enqueue(Communicator& ranks, int samples) {
  Device& device = device_of(ranks);
  device.bind_thread();
  CallOptions options;
  options.stream = device.make_stream();
  options.algorithm = "vendor";
  Buffer values = ranks.allocate(1024, DType::kF32, ranks.device());
  Buffer received = ranks.allocate(1024, DType::kF32, ranks.device());
  device.fill_zero(values.view().data, values.view().size_in_bytes(), options.stream);
  std::optional<NcclAlone> nccl;
  nlohmann::json figures;
  // If ranks share a device, the figures are sums over several communicators.
  figures["device memory of NCCL's communicator, MiB"] = mebibytes_of(ranks, device, [&] {
    nccl.emplace(internals(ranks).settings(), shared_id(ranks), ranks.rank(), ranks.size());
    nccl->allreduce(values.view().data, values.count(), options.stream);
    device.synchronize(options.stream);
  });
  Communicator caller = ranks.duplicate({.device_order = CommunicatorOptions::DeviceOrder::kCaller});
  const auto call = [&](Communicator& by) { by.allreduce(values.view(), ReduceOp::kSum, options); };
  figures["device memory of Farandole's communicator, MiB"] = mebibytes_of(ranks, device, [&] {
    call(ranks);
    device.synchronize(options.stream);
  });
  call(caller);
  call(caller);

  std::vector<double> ours, agreed, theirs, group;
  const int peer = (ranks.rank() + 1) % ranks.size();
  for (int round = 0; round < 5; ++round) {
    agreed.push_back(host_microseconds(device, options.stream, samples, [&] { call(ranks); }));
    ours.push_back(host_microseconds(device, options.stream, samples, [&] { call(caller); }));
    theirs.push_back(host_microseconds(device, options.stream, samples,
                                       [&] { nccl->allreduce(values.view().data, values.count(), options.stream); }));
    if (ranks.size() == 2) {
      group.push_back(host_microseconds(device, options.stream, samples, [&] {
        nccl->exchange(received.view().data, values.view().data, 4096, peer, options.stream);
      }));
    }
  }
  figures["Farandole's allreduce in the agreed order, us"] = median(agreed);
  figures["Farandole's allreduce in the caller's order, us"] = median(ours);
  figures["ncclAllReduce, us"] = median(theirs);
  if (!group.empty()) figures["NCCL group of a send and a receive, us"] = median(group);
  ranks.barrier();
  return figures;
}

double bring_up_nccl(Communicator& ranks) {
  Device& device = device_of(ranks);
  device.bind_thread();
  const StreamView stream(nullptr, device.space());
  Buffer values = ranks.allocate(256, DType::kF32, ranks.device());
  ranks.barrier();
  const auto start = Clock::now();
  NcclAlone nccl(internals(ranks).settings(), shared_id(ranks), ranks.rank(), ranks.size());
  nccl.allreduce(values.view().data, values.count(), stream);
  device.synchronize(stream);
  return microseconds_since(start) * 1e-6;
}

double bring_up_farandole(Communicator& ranks) {
  Buffer values = ranks.allocate(256, DType::kF32, ranks.device());
  ranks.barrier();
  const auto start = Clock::now();
  CallOptions options;
  options.algorithm = "vendor";
  ranks.allreduce(values.view(), ReduceOp::kSum, options);
  return microseconds_since(start) * 1e-6;
}

}  // namespace farandole::figures
