// SPDX-License-Identifier: Apache-2.0
// Errors that all ranks raise together: agree and require_same.
#include "farandole/collectives/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
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

}  // namespace
}  // namespace farandole
