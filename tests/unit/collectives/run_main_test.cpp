// SPDX-License-Identifier: Apache-2.0
#include "farandole/collectives/run_main.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "farandole/collectives/agreement.h"
#include "farandole/core/error.h"
#include "farandole/internal/error_report.h"
#include "variable.h"

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

/// How long a rank takes that cannot read its command line.
std::chrono::duration<double> time_of_wrong_usage(const char* rank) {
  const test::Variable launched("FARANDOLE_RANK", rank);
  ErrorReport errors("sum");
  testing::internal::CaptureStderr();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(errors.print_errors_of_command_line([]() -> int { throw InvalidArgument("no option"); }),
               InvalidArgument);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            std::string("sum: InvalidArgument: rank ") + rank + ": no option\n");
  return took;
}

/// So that a launcher that ends the job with rank 0 shows the text once.
TEST(ErrorReport, OtherRanksPrintWrongUsageAfterRank0) {
  EXPECT_GE(time_of_wrong_usage("1").count(), 3.0);
  EXPECT_LT(time_of_wrong_usage("0").count(), 3.0);
}

}  // namespace
}  // namespace farandole
