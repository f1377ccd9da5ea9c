// SPDX-License-Identifier: Apache-2.0
#include "on_device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "groups.h"

namespace farandole::test {

std::string why_no_device_collectives() {
  const DeviceAvailability& available = device_runtime(Settings::from_environment());
  if (available.runtime == nullptr) return "no devices: " + available.reason;
  const std::string missing = available.runtime->collectives_missing();
  return missing.empty() ? "" : "no collectives on devices: " + missing;
}

int device_count() {
  const DeviceAvailability& available = device_runtime(Settings::from_environment());
  return available.runtime == nullptr ? 0 : static_cast<int>(available.runtime->devices().size());
}

void on_each_device(const std::function<void(Communicator&)>& body) {
  const DeviceAvailability& available = device_runtime(Settings::from_environment());
  if (device_count() == 0) GTEST_SKIP() << "no devices: " << available.reason;
  for_each_group({1}, body);
}

void for_each_device_group(const std::vector<int>& sizes, const std::function<void(Communicator&)>& body) {
  if (const std::string reason = why_no_device_collectives(); !reason.empty()) GTEST_SKIP() << reason;
  const int most = device_count();
  std::vector<int> fitting, left_out;
  for (const int size : sizes) (is_launched() || size <= most ? fitting : left_out).push_back(size);
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  const std::string reason =
      fmt::format("{}.{}: not run with {} ranks: threads need a device each, and there {} {}", test.test_suite_name(),
                  test.name(), fmt::join(left_out, ", "), most == 1 ? "is" : "are", most);
  if (fitting.empty()) GTEST_SKIP() << reason;
  if (!left_out.empty()) fmt::print("{}\n", reason);
  for_each_group(fitting, body);
}

void call_collective(Communicator& ranks, Collective collective, BufferView input, BufferView output, ReduceOp op,
                     int root, const std::vector<std::size_t>& counts, const CallOptions& options) {
  const CallOptions plain{.algorithm = options.algorithm};  // collectives that do not reduce refuse factors
  switch (collective) {
    case Collective::kAllreduce:
      return ranks.allreduce(input, output, op, options);
    case Collective::kReduce:
      return ranks.reduce(input, output, op, root, options);
    case Collective::kReduceScatter:
      return ranks.reduce_scatter(input, output, op, counts, options);
    case Collective::kBroadcast:
      return ranks.broadcast(output, root, plain);
    case Collective::kAllgather:
      return ranks.allgather(input, output, counts, plain);
    case Collective::kGather:
      return ranks.gather(input, output, root, counts, plain);
    case Collective::kScatter:
      return ranks.scatter(input, output, root, counts, plain);
    case Collective::kAlltoall:
      return ranks.alltoall(input, output, {}, {}, plain);
    case Collective::kBarrier:
      return ranks.barrier();
  }
}

}  // namespace farandole::test
