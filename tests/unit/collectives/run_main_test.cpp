// SPDX-License-Identifier: Apache-2.0
#include "farandole/collectives/run_main.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "farandole/collectives/agreement.h"
#include "farandole/core/error.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

struct Ended {
  int status = -1;
  std::string printed;  // on standard error
};

Ended end_of(const std::function<int(Communicator&)>& body, int ranks = 2) {
  WorldOptions options;
  options.replicas = ranks;
  testing::internal::CaptureStderr();
  Ended ended;
  ended.status = run_main("sum", body, options);
  ended.printed = testing::internal::GetCapturedStderr();
  return ended;
}

TEST(RunMain, ReturnsTheStatusOfTheBody) {
  EXPECT_EQ(end_of([](Communicator&) { return 0; }).status, 0);
  const Ended odd = end_of([](Communicator& ranks) { return ranks.rank() == 1 ? 7 : 0; });
  EXPECT_EQ(odd.status, 7);
  EXPECT_EQ(odd.printed, "");
}

TEST(RunMain, MismatchIsPrintedOnce) {
  const Ended ended = end_of([](Communicator& ranks) {
    std::vector<float> values(4);
    if (ranks.rank() == 0) {
      ranks.allreduce(values, ReduceOp::kSum);
    } else {
      ranks.broadcast(values, 0);
    }
    return 0;
  });
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.printed,
              AllOf(HasSubstr("sum: Mismatch: rank 0: "), HasSubstr("allreduce"), HasSubstr("broadcast")));
  EXPECT_EQ(ended.printed.find("sum: "), ended.printed.rfind("sum: ")) << ended.printed;
}

TEST(RunMain, ErrorOfAllRanksHasTheStatusOfItsKind) {
  const Ended ended = end_of([](Communicator& ranks) {
    agree(ranks, [&] {
      if (ranks.rank() == 1) throw InvalidArgument("--size is 0");
    });
    return 0;
  });
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.printed, "sum: InvalidArgument: rank 1: --size is 0\n");
}

TEST(RunMain, ForeignExceptionIsInternal) {
  const Ended ended = end_of([](Communicator&) -> int { throw std::runtime_error("no more data"); }, 1);
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.printed, StartsWith("sum: Internal: no more data\n"));
}

}  // namespace
}  // namespace farandole
