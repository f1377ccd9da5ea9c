// SPDX-License-Identifier: Apache-2.0
// Explores negotiations: small programs in all interleavings, long random programs in many.
//
// A negotiation is an allreduce, so it ends when all ranks have entered, and the other ranks see a rank's later actions
// only in a later negotiation. So the exploration chooses only, for each rank and negotiation, what the rank does
// before it enters, before it receives the bytes, and before it receives the announcements, and whether its timer has
// expired when it enters.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "negotiator_model.h"

namespace farandole::testing {
namespace {

std::string describe(const Setting& setting) {
  std::string text;
  for (const std::string& program : setting.programs) text += "{" + program + "} ";
  return text + (setting.succeeds ? "succeeds" : setting.ends ? "ends" : "");
}

/// @returns  the number of runs
std::size_t explore(const Setting& setting) {
  AllWays ways;
  std::size_t runs = 0;
  do {
    ++runs;
    const std::string error = run_model(setting, ways);
    if (!error.empty()) {
      ADD_FAILURE() << describe(setting) << "\n" << error;
      break;
    }
  } while (ways.next());
  return runs;
}

std::size_t explore_all(const std::vector<std::vector<std::string>>& programs, bool succeeds,
                        Negotiator::Limits limits = {{64, 64}, 1 << 16}) {
  std::size_t runs = 0;
  for (const auto& each : programs) runs += explore({each, succeeds, limits});
  return runs;
}

TEST(NegotiatorExplorer, AnyOrderIsDoneOnTwoRanks) {
  EXPECT_GT(explore_all({{"a", "a"},
                         {"a b", "b a"},
                         {"a! b!", "a! b!"},
                         {"a b x", "x b a"},
                         {"a a a", "a a a"},
                         {"g x z", "z g x"},
                         {"a b . a b", "b a . b a"},
                         {"a b . b! a!", "b a . a b"},
                         {"a b c . a . b c", "c b a . b a . c"},
                         {"s x s2", "s x s2"}},
                        true),
            1000U);
}

TEST(NegotiatorExplorer, AnyOrderIsDoneOnThreeRanks) {
  EXPECT_GT(explore_all({{"a b", "b a", "a b"},
                         {"a! b!", "a b", "b a"},
                         {"a a", "a a", "a a"},
                         {"a b . a b", "b a . b a", "a b . b a"},
                         {"a b c . a . b", "c b a . b a", "a c b . a b"}},
                        true),
            1000U);
}

/// Buckets of which only a part comes, in different parts and orders.
TEST(NegotiatorExplorer, BucketsAreBrokenAlike) {
  EXPECT_GT(explore_all({{"a b c . a . b", "a b c . b a"},
                         {"a b c . b a", "a b c . a . b"},
                         {"a b . a a! b", "b a . a! a b"},
                         {"a b c . c! a b", "a b c . a b c"}},
                        true),
            1000U);
  explore_all({{"a b c . a . b .", "a b c . b . a ."}, {"a b . a", "a b . b"}}, false);
}

TEST(NegotiatorExplorer, ChangedDescriptionsRetireTheNumberEverywhere) {
  explore_all({{"a a2 a", "a a2 a"}, {"a b . a2 b", "b a . b a2"}}, true);
  explore_all({{"a a2", "a a"},
               {"a2 a", "a a"},
               {"a a2 a", "a a a"},
               {"a b . a2 b .", "a b . a b ."},
               {"x x2", "x2 x"},
               {"a a2", "a a", "a a"},
               {"a2", "a", "a3"},
               {"s", "s2"}},
              false);
}

TEST(NegotiatorExplorer, SmallTablesForgetAlike) {
  for (const std::size_t slots : {1, 2}) {
    explore_all({{"x y x", "y x . x"}, {"a b x", "x a b"}, {"a b . x a b", "b a . a x b"}}, true, {{64, 64}, slots});
    explore_all({{"a x a2", "x a a"}}, false, {{64, 64}, slots});
  }
}

TEST(NegotiatorExplorer, FusionBytesBoundBuckets) {
  explore_all({{"a b c . a b c", "c b a . c b a"}, {"a2 b . a2 b", "b a2 . a2 b"}}, true, {8, 64, 1 << 16});
}

TEST(NegotiatorExplorer, JoinedRanksSupplyZeros) {
  explore_all({{"a J", "a J"},
               {"a a J", "a J"},
               {"a J", "J"},
               {"a J", "b J"},
               {"x! J", "J"},
               {"a b . J . a", "b a . a J . a"},
               {"a J . a", "J . a"},
               {"J . a", "J . a"},
               {"a J", "a J", "J"},
               {"a J", "J", "x J"}},
              true);
  explore_all({{"g J", "J"}, {"g J", "g J"}, {"g g J", "g J"}, {"a J", "a a"}, {"J J", "a J"}, {"a2 J", "a J"}}, false);
}

TEST(NegotiatorExplorer, LeavingEndsWhenAllHaveLeft) {
  explore_all({{"L", "L"},
               {"a L", "a L"},
               {"a L", "L"},
               {"a L", "a a"},
               {"L", "a"},
               {"a a L", "a L"},
               {"a R", "a b R"},
               {"J L", "a L"},
               {"J L", "J"},
               {"L J", "J a"},
               {"g L", "g L"},
               {"a L", "a L", "L"},
               {"a . J", "a . J L", "a . J L"},
               {"L", "a", "J"}},
              false);
}

TEST(NegotiatorExplorer, DeadlocksAreReported) {
  explore_all({{"a!", "b!"},
               {"a! a!", "b! a!"},
               {"a b . a!", "a b . b!"},
               {"x y . x!", "x y . y!"},
               {"c a!", "b!"},
               {"a!", "b!", "a!"},
               {"z a!", "z b!"},
               {"x z a!", "z x b!"},
               {"a!", "b!", "c"},
               {"a! b!", "b! a!"}},
              false);
}

void explore_to_the_end(const std::vector<std::vector<std::string>>& programs, Negotiator::Limits limits) {
  for (const auto& each : programs) explore({each, /*succeeds=*/false, limits, /*ends=*/true});
}

/// Ranks that stand still are announced too; but not as long as one of them can go on.
TEST(NegotiatorExplorer, IdleRanksAreReported) {
  explore_all({{"a?", "b?"},
               {"a?", "b!"},
               {"a? b?", "c? b?"},
               {"x? z", "y? z"},
               {"a b . a?", "a b . b?"},
               {"c a?", "b?"},
               {"g? a", "g b?"},
               {"a?", "b?", "a?"},
               {"a?", "b?", "c"},
               {"a?", "b?", "J"},
               {"a!", "b!", "J"},
               {"J a!", "b!", "c!"},
               {"a?", "b? J"},
               {"a?", "b? L"}},
              false);
  EXPECT_GT(explore_all({{"a? b?", "b? a?"}, {"a? b? . a?", "b? a? . a?"}, {"a! b?", "a? b!"}, {"a? J", "J"}}, true),
            100U);
  explore_to_the_end({{": a'? : x'", ": b'? : x'"}, {": a'? c' : x'", ": b'? : x'"}}, {{64, 64}, 1 << 16});
}

/// A rank does not reach the requests after the disagreement in its step; other ranks may have submitted these requests
/// before. The following steps are done together on all ranks.
TEST(NegotiatorExplorer, FailedStepsEndOnAllRanks) {
  EXPECT_GT(explore_all({{": a' b' : a' b'", ": b' a' : a' b'"}, {": a' x' . a : x' a'", ": x' a' . a : a' x'"}}, true),
            100U);
  for (const std::size_t slots : {1 << 16, 1}) {
    const Negotiator::Limits limits{{64, 64}, slots};
    explore_to_the_end({{": x' a' : x' a'", ": a2' : x' a'"},
                        {": x' a' : a' x' : x'", ": a2' : x' a' : x'"},
                        {": b' a' . : b' a'", ": a2' . : a' b'"},
                        {": a' b' : b' a' : a' b'", ": a' b' : a2' : b' a'"},
                        {": a' b' : b' a' : a' b2'", ": a' b' : a2' : b2' a'"},
                        {": x' a' : a2' : a' x'", ": a2' : x' a' : x' a'"},
                        {": x' a' : x' a'", ": a2' : x' a'", ": a' : x' a'"},
                        {": x' y' a' : y'", ": x' a2' : y'", ": y' a' : y'"}},
                       limits);
  }
}

/// Requests that belong to no step stay pending, even under a name and in a bucket that steps use.
TEST(NegotiatorExplorer, RequestsOfNoStepSurviveFailingSteps) {
  explore_to_the_end({{"b : x' a' . : x'", ": a2' . b : x'"},
                      {"b : x' a' . : x'", "b : a2' . : x'"},
                      {": a' b' . b : c' a'", ": a' b' . : a2' . b"},
                      {"x : a' . : x'", ": a2' . x : x'"},
                      {"a . : a' : b' a' . a", "a . : a' : a2' . a"}},
                     {{64, 64}, 1 << 16});
}

TEST(NegotiatorExplorer, StepsCombineWithJoinsAndDepartures) {
  explore_all({{": g' a' J", "J"},
               {": g' a' J : a'", ": g' J : a'"},
               {": x' g' J : x' J", ": x' J : x'"},
               {": x' a' L", ": a2' : x' L"},
               {": x' a' J", ": a2' : x' J", "J"}},
              false);
}

/// A random order of `tokens`, each once.
std::string shuffled(std::vector<std::string> tokens, std::mt19937& random) {
  std::shuffle(tokens.begin(), tokens.end(), random);
  std::string words;
  for (const std::string& token : tokens) words += token + " ";
  return words;
}

TEST(NegotiatorExplorer, RandomTrainingStepsSucceed) {
  const std::vector<std::string> all{"a", "b", "c", "d", "x", "g", "z", "y", "s"};
  for (unsigned seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    Setting setting;
    setting.succeeds = true;
    setting.programs.resize(2 + random() % 3);
    setting.limits = {random() % 2 == 0 ? 8U : 64U, 64, random() % 2 == 0 ? 3U : 1U << 16};
    for (int step = 0; step < 6; ++step) {
      // In some steps only a part is submitted.
      std::vector<std::string> tokens;
      for (const std::string& token : all) {
        if (random() % 4 != 0) tokens.push_back(token);
      }
      for (std::string& program : setting.programs) program += shuffled(tokens, random) + ". ";
    }
    if (random() % 2 == 0) {
      for (std::string& program : setting.programs) program += random() % 2 == 0 ? "J . a J" : "a J . J";
    }
    RandomWays ways(seed);
    ASSERT_EQ(run_model(setting, ways), "") << "seed " << seed << ": " << describe(setting);
  }
}

/// In some steps one rank disagrees, and ranks do not come to all that they would have submitted.
TEST(NegotiatorExplorer, RandomStepsThatFailAreFollowedByStepsThatSucceed) {
  const std::vector<std::string> all{"b'", "c'", "d'", "x'", "g'", "z'"};
  for (unsigned seed = 0; seed < 1000; ++seed) {
    std::mt19937 random(seed);
    Setting setting;
    setting.ends = true;
    setting.programs.resize(2 + random() % 3);
    setting.limits = {random() % 2 == 0 ? 8U : 64U, 64, random() % 2 == 0 ? 3U : 1U << 16};
    for (int step = 0; step < 6; ++step) {
      const bool fails = random() % 2 == 0;
      const std::size_t odd = random() % setting.programs.size();
      for (std::size_t rank = 0; rank < setting.programs.size(); ++rank) {
        std::vector<std::string> tokens{fails && rank == odd ? "a2'" : "a'"};
        for (const std::string& token : all) {
          if (!fails || random() % 2 == 0) tokens.push_back(token);
        }
        setting.programs[rank] += ": " + shuffled(tokens, random) + (random() % 2 == 0 ? ". " : "");
      }
    }
    RandomWays ways(seed);
    ASSERT_EQ(run_model(setting, ways), "") << "seed " << seed << ": " << describe(setting);
  }
}

/// Any events on any rank: no rank hangs without a reason, and all ranks agree on the failing requests.
TEST(NegotiatorExplorer, RandomProgramsNeverDisagree) {
  const std::vector<std::string> all{"a",  "b", "a2", "b!", "c",   "x",  "x2", "g!", "z",  "s",
                                     "s2", ".", ":",  "a'", "a2'", "x'", "g'", "c?", "x'?"};
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    Setting setting;
    setting.programs.resize(2 + random() % 3);
    setting.limits = {random() % 2 == 0 ? 8U : 64U, 64, random() % 2 == 0 ? 2U : 1U << 16};
    for (std::string& program : setting.programs) {
      for (std::size_t i = random() % 20; i > 0; --i) {
        program += random() % 10 == 0 ? "J " : all[random() % all.size()] + " ";
      }
      if (random() % 4 == 0) program += "L";
    }
    RandomWays ways(seed);
    ASSERT_EQ(run_model(setting, ways), "") << "seed " << seed << ": " << describe(setting);
  }
}

}  // namespace
}  // namespace farandole::testing
