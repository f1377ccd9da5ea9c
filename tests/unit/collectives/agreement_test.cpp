// SPDX-License-Identifier: Apache-2.0
// Errors that all ranks raise together: agree, require_same, and calls that a rank refuses.
#include "farandole/collectives/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "message_of.h"

namespace farandole {
namespace {

using test::message_of;
using testing::AllOf;
using testing::HasSubstr;

TEST(Agree, RaisesExceptionsOfUnknownTypesOnAllRanks) {
  run_replicas(3, [](Communicator& ranks) {
    const std::string text = message_of<InternalError>([&] {
      agree(ranks, [&] {
        if (ranks.rank() == 1) throw 42;  // NOLINT(hicpp-exception-baseclass): not derived from std::exception
      });
    });
    EXPECT_THAT(text, HasSubstr("an exception of an unknown type"));
    if (ranks.rank() != 1) {
      EXPECT_THAT(text, HasSubstr("rank 1 reports: "));
    }
    ranks.barrier();
  });
}

TEST(Agree, AnErrorThatPoisonsTheJobReachesAllRanks) {
  // For example a device without memory left, of which the job knows nothing yet.
  EXPECT_THROW(run_replicas(3,
                            [](Communicator& ranks) {
                              const auto fail_on_rank_1 = [&] {
                                if (ranks.rank() == 1) throw DeviceError("out of memory");
                              };
                              EXPECT_THAT(message_of<DeviceError>([&] { agree(ranks, fail_on_rank_1); }),
                                          HasSubstr("out of memory"));
                              ranks.barrier();
                            }),
               DeviceError);
}

TEST(Agree, KeepsTheKindOfEveryErrorThatPoisonsNothing) {
  run_replicas(2, [](Communicator& ranks) {
    for (const ErrorKind kind : {ErrorKind::kInvalidArgument, ErrorKind::kUnsupported, ErrorKind::kMismatch,
                                 ErrorKind::kDuplicateName, ErrorKind::kDataError, ErrorKind::kInternal}) {
      try {
        agree(ranks, [&] {
          if (ranks.rank() == 1) throw_error(kind, "text");
        });
        ADD_FAILURE() << name(kind);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), kind) << error.what();
      }
    }
  });
}

TEST(RequireSame, NamesAnotherOrderOfTheSameProperties) {
  run_replicas(2, [](Communicator& ranks) {
    std::vector<SharedFact> facts{{"a", "1"}, {"b", "2"}};
    if (ranks.rank() == 1) std::swap(facts[0], facts[1]);
    const std::string text = message_of<Mismatch>([&] { require_same(ranks, facts); });
    EXPECT_THAT(text, AllOf(HasSubstr("the order or the number of the properties"), HasSubstr("rank 1 ")));
  });
}

TEST(RequireSame, IgnoresDifferentAdvice) {
  run_replicas(2, [](Communicator& ranks) {
    require_same(ranks, {{"a", "1", ranks.rank() == 1 ? "ask rank 1" : "ask rank 0"}});
  });
}

TEST(RefusedAllreduce, FailsOnAllRanksAndLeavesTheJobUsable) {
  run_replicas(3, [](Communicator& ranks) {
    std::vector<float> values(100, 1.0F);
    if (ranks.rank() == 1) {
      Work refused = internals(ranks).refuse_allreduce(values, ReduceOp::kSum, "no gradient here");
      EXPECT_EQ(message_of<InvalidArgument>([&] { refused.wait(); }), "no gradient here");
    } else {
      const std::string text = message_of<Mismatch>([&] { ranks.allreduce(values, ReduceOp::kSum); });
      EXPECT_THAT(text, HasSubstr("with arguments that it refuses"));
    }
    EXPECT_EQ(values, std::vector<float>(100, 1.0F));
    ranks.allreduce(values, ReduceOp::kSum);
    EXPECT_EQ(values, std::vector<float>(100, 3.0F));
  });
}

TEST(RefusedAllreduce, OfASingleRankIsInvalid) {
  run_replicas(1, [](Communicator& ranks) {
    std::vector<float> values(1);
    EXPECT_THROW(internals(ranks).refuse_allreduce(values, ReduceOp::kSum, "why"), InvalidArgument);
  });
}

}  // namespace
}  // namespace farandole
