// SPDX-License-Identifier: Apache-2.0
// Allreduce on the memory of GPUs, with a CUDA stream and memory of the program's own: every rank contributes a vector
// and gets the sum over all ranks. The host waits for the device only when it reads the result.
//
//   device_allreduce                 one rank
//   mpirun -np 2 device_allreduce    one rank per process, each with a GPU of its own
//
// To build: a CUDA toolkit (its runtime: cuda_runtime.h and cudart) and an installed Farandole.
//
//   find_package(farandole REQUIRED)
//   find_package(CUDAToolkit REQUIRED)
//   target_link_libraries(device_allreduce PRIVATE farandole::farandole CUDA::cudart_static)
//
// To run: NVIDIA's driver, and NCCL for more than one rank (docs/gpu.md). A rank without a usable device prints the
// reason, and all ranks end with status 77.
#include <cstddef>
#include <cstdio>
#include <exception>
#include <optional>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "gpu_example.h"

using namespace farandole;

namespace {

constexpr std::size_t kCount = 1 << 20;

bool are_all(const std::vector<float>& values, float expected, int rank) {
  for (const float value : values) {
    if (value != expected) {
      std::fprintf(stderr, "device_allreduce: rank %d has %g instead of %g\n", rank, static_cast<double>(value),
                   static_cast<double>(expected));
      return false;
    }
  }
  return true;
}

int run() {
  World world;
  Communicator ranks = Communicator::of_world(world);
  const std::optional<MemorySpace> device = use_device(ranks);
  if (!device) return kNoDeviceStatus;

  // 1 on rank 0, 2 on rank 1, …: the sum over all ranks is size (size + 1) / 2.
  const std::vector<float> host(kCount, static_cast<float>(ranks.rank() + 1));
  const float expected = 0.5F * static_cast<float>(ranks.size() * (ranks.size() + 1));
  const CudaStream stream;
  CudaArray<float> values(kCount, stream);
  CallOptions options;
  options.stream = StreamView(stream.get(), *device);

  // The allreduce is ordered after earlier work of the stream and before later work, without a wait on the host.
  values.write(host);
  ranks.allreduce(values.view(*device), ReduceOp::kSum, options);
  const std::vector<float> sums = values.read();

  // The asynchronous form returns immediately. Until `wait_on` the stream can do other work during the allreduce.
  values.write(host);
  Work work = ranks.allreduce_async(values.view(*device), ReduceOp::kSum, options);
  work.wait_on(options.stream);
  const std::vector<float> sums_again = values.read();

  std::printf("%s of %d on %s: sum %g\n", ranks.describe(ranks.rank()).c_str(), ranks.size(), describe(*device).c_str(),
              static_cast<double>(sums.front()));
  return are_all(sums, expected, ranks.rank()) && are_all(sums_again, expected, ranks.rank()) ? 0 : 1;
}

}  // namespace

int main() try { return run(); } catch (const std::exception& error) {
  std::fprintf(stderr, "device_allreduce: %s\n", error.what());
  return 1;
}
