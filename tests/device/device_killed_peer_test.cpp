// SPDX-License-Identifier: Apache-2.0
// A process is killed in the middle of a collective on device memory. Both ranks may share one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "farandole/core/error.h"
#include "groups.h"
#include "on_device.h"

namespace farandole::test {
namespace {

/// The last rank of a job is killed when its own part of an allreduce is enqueued and not yet done: the others say in
/// time that it is lost. FARANDOLE_ALLREDUCE names the algorithm, the job's launcher sees the signal.
TEST(DeviceFaults, AKilledPeerIsAnErrorInTime) {
  if (!is_launched()) GTEST_SKIP() << "needs a job of processes";
  FARANDOLE_SKIP_WITHOUT_DEVICES();
  for_each_group({}, [](Communicator& ranks) {
    Device& device = device_of(ranks);
    CallOptions options;
    options.stream = device.make_stream();
    // Long enough that the peers are still in it, and brought up before.
    Buffer values = ranks.allocate(std::size_t{16} << 20, DType::kF32, ranks.device());
    device.fill_zero(values.view().data, values.view().size_in_bytes(), options.stream);
    ranks.allreduce(values.view(), ReduceOp::kSum, options);
    device.synchronize(options.stream);
    try {
      ranks.barrier();  // the last rank may have left it and died while others are still in it
      if (ranks.rank() + 1 == ranks.size()) {
        const Work work = ranks.allreduce_async(values.view(), ReduceOp::kSum, options);
        std::raise(SIGKILL);
      }
      for (int i = 0; i < 100; ++i) {
        ranks.allreduce(values.view(), ReduceOp::kSum, options);
        ranks.barrier();
      }
      FAIL() << "the other ranks noticed nothing";
    } catch (const PeerLost& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 1 "));
    } catch (const DeviceError&) {
      // NCCL may see it before the job does.
    }
  });
}

}  // namespace
}  // namespace farandole::test
