// SPDX-License-Identifier: Apache-2.0
// Steps that fail, in all possible courses of a few negotiations.
#include "step_failures.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace farandole::testing {
namespace {

using ::testing::HasSubstr;

constexpr StepFailures::Generation kFirstStep = StepFailures::kFirstGeneration;

TEST(StepFailures, RefusesStepsBegunBeforeTheLastFailure) {
  StepFailures steps;
  EXPECT_EQ(steps.refusal_of("a", kFirstStep), std::nullopt);
  steps.fail("ranks disagree");
  EXPECT_EQ(steps.generation(), kFirstStep) << "the negotiation has not ended";
  EXPECT_EQ(steps.refusal_of("a", kFirstStep), std::nullopt);
  EXPECT_TRUE(steps.end_negotiation());
  const auto refused = steps.refusal_of("a", kFirstStep);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->kind, ErrorKind::kMismatch);
  EXPECT_THAT(refused->text, HasSubstr("'a' is of a step that has failed: ranks disagree"));
  EXPECT_EQ(steps.refusal_of("a", kFirstStep + 1), std::nullopt);
  EXPECT_EQ(steps.refusal_of("a", StepFailures::kNoStep), std::nullopt);
}

TEST(StepFailures, WithheldFailuresAreTakenOnceOrDroppedOnGiveUp) {
  StepFailures steps;
  steps.withhold({{7, {ErrorKind::kMismatch, "a rank has joined"}}});
  const auto failed = steps.take_withheld();
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed.front().ticket, 7U);
  EXPECT_TRUE(steps.take_withheld().empty());
  steps.withhold({{8, {}}});
  steps.give_up();
  EXPECT_TRUE(steps.take_withheld().empty());
}

enum class StepWay { kFailsA, kFailsB, kEnds, kIsGivenUp };

/// @returns  false when all have been
bool next_of_all(std::vector<StepWay>& ways) {
  for (StepWay& way : ways) {
    if (way != StepWay::kIsGivenUp) {
      way = static_cast<StepWay>(static_cast<int>(way) + 1);
      return true;
    }
    way = StepWay::kFailsA;
  }
  return false;
}

TEST(StepFailures, EachNegotiationWithAFailureIsOneGeneration) {
  std::vector<StepWay> ways(7, StepWay::kFailsA);
  do {
    StepFailures steps;
    StepFailures::Generation generation = kFirstStep;
    bool fails = false;  // in this negotiation
    std::string text;    // of the last negotiation in which a step has failed, or fails
    for (const StepWay way : ways) {
      if (way == StepWay::kFailsA || way == StepWay::kFailsB) {
        const std::string own = way == StepWay::kFailsA ? "text A" : "text B";
        steps.fail(own);
        if (!fails) text = own;
        fails = true;
      } else if (way == StepWay::kIsGivenUp) {
        steps.give_up();
        fails = false;
      } else {
        ASSERT_EQ(steps.end_negotiation(), fails);
        generation += fails ? 1 : 0;
        fails = false;
      }
      ASSERT_THAT(steps.error("x").text, HasSubstr(text)) << "the first of them";
      ASSERT_EQ(steps.generation(), generation);
      for (StepFailures::Generation began = 0; began <= generation; ++began) {
        ASSERT_EQ(steps.refusal_of("x", began).has_value(), began != StepFailures::kNoStep && began < generation);
      }
    }
  } while (next_of_all(ways));
}

}  // namespace
}  // namespace farandole::testing
