// SPDX-License-Identifier: Apache-2.0
// Slots of known requests: all operation sequences up to a fixed length on a small table, and equal tables on several
// ranks.
#include "slot_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "negotiator_probe.h"
#include "negotiator_ranks.h"

namespace farandole::testing {
namespace {

constexpr int kNone = SlotTable::kNone;

SharedSpec shared(const RequestSpec& spec) {
  return std::make_shared<const RequestSpec>(spec);
}

TEST(SlotTable, FindsAnnouncedRequests) {
  SlotTable slots(8);
  EXPECT_EQ(slots.find("a"), kNone);
  const int a = slots.add(shared(allreduce("a")), /*in_step=*/false, 1);
  const int b = slots.add(shared(allreduce("b")), /*in_step=*/true, 1);
  EXPECT_EQ(slots.find("a"), a);
  EXPECT_EQ(slots.find(allreduce("a"), /*in_step=*/false), a);
  EXPECT_EQ(slots.find(allreduce("a", 2), /*in_step=*/false), kNone) << "it has another shape";
  EXPECT_EQ(slots.find(allreduce("a"), /*in_step=*/true), kNone) << "no rank has announced it in a step";
  EXPECT_EQ(slots.find(allreduce("b"), /*in_step=*/true), b);
  EXPECT_EQ(slots.find(allreduce("b"), /*in_step=*/false), b);
  slots.retire(a);
  EXPECT_EQ(slots.find("a"), kNone);
  EXPECT_EQ(slots.find(allreduce("a"), /*in_step=*/false), kNone);
}

TEST(SlotTable, FullTableEvictsTheLeastRecentlyUsed) {
  SlotTable slots(2);
  EXPECT_EQ(slots.eviction_candidate(1), kNone);
  const int a = slots.add(shared(allreduce("a")), false, 1);
  const int b = slots.add(shared(allreduce("b")), false, 2);
  EXPECT_EQ(slots.eviction_candidate(3), a);
  slots.use(a, 3);
  EXPECT_EQ(slots.eviction_candidate(3), b);
  slots.use(b, 3);
  EXPECT_EQ(slots.eviction_candidate(3), kNone) << "both are in use";
  EXPECT_EQ(slots.add(shared(allreduce("c")), false, 3), 2) << "the table grows all the same";
  EXPECT_EQ(slots.eviction_candidate(4), a);
  slots.retire(b);
  EXPECT_EQ(slots.eviction_candidate(4), kNone) << "one is free";
  EXPECT_EQ(slots.add(shared(allreduce("d")), false, 4), b);
}

constexpr std::size_t kMax = 2;

/// A table, and what it has to hold: of each name the description and the negotiation that used it last.
struct Explored {
  struct Known {
    std::int64_t count = 0;
    bool in_step = false;
    std::uint64_t used = 0;
  };
  SlotTable slots{kMax};
  std::map<std::string, Known> known;
  std::uint64_t negotiation = 1;
  std::size_t most_needed = kMax;

  /// Updates the table as a Negotiator does when all ranks have announced a request.
  void announce(const std::string& name, std::int64_t count, bool in_step) {
    if (const int slot = slots.find(name); slot != kNone) retire(name);
    if (const int slot = slots.eviction_candidate(negotiation); slot != kNone) {
      const std::string eviction_candidate = slots[slot].spec->name;
      for (const auto& [other, state] : known) EXPECT_LE(known[eviction_candidate].used, state.used);
      EXPECT_LT(known[eviction_candidate].used, negotiation);
      EXPECT_GE(known.size(), kMax);
      retire(eviction_candidate);
    }
    slots.add(shared(allreduce(name, count)), in_step, negotiation);
    known[name] = {count, in_step, negotiation};
    std::size_t in_use = 0;
    for (const auto& [each, state] : known) in_use += state.used == negotiation ? 1 : 0;
    most_needed = std::max(most_needed, in_use);
  }
  void retire(const std::string& name) {
    slots.retire(slots.find(name));
    known.erase(name);
  }
  void use(const std::string& name) {
    if (known.count(name) == 0) return;
    slots.use(slots.find(name), negotiation);
    known[name].used = negotiation;
  }
  void check() const {
    EXPECT_LE(slots.size(), most_needed) << "it has grown though a slot was free or unused";
    std::size_t taken = 0;
    for (int slot = 0; slot < static_cast<int>(slots.size()); ++slot) taken += slots[slot].spec ? 1 : 0;
    EXPECT_EQ(taken, known.size());
    for (const char* name : {"a", "b", "c"}) {
      const auto found = known.find(name);
      const int slot = slots.find(name);
      ASSERT_EQ(slot != kNone, found != known.end()) << name;
      if (slot == kNone) continue;
      const Explored::Known& state = found->second;
      EXPECT_EQ(*slots[slot].spec, allreduce(name, state.count));
      EXPECT_EQ(slots[slot].last_negotiation, state.used);
      for (const std::int64_t count : {1, 2}) {
        EXPECT_EQ(slots.find(allreduce(name, count), false) != kNone, count == state.count);
        EXPECT_EQ(slots.find(allreduce(name, count), true) != kNone, count == state.count && state.in_step);
      }
    }
  }
};

void explore_tables(const Explored& before, int depth) {
  if (depth == 0) return before.check();
  const std::vector<std::function<void(Explored&)>> ways{
      [](Explored& t) { t.announce("a", 1, false); },
      [](Explored& t) { t.announce("a", 2, true); },
      [](Explored& t) { t.announce("b", 1, true); },
      [](Explored& t) { t.announce("c", 1, false); },
      [](Explored& t) { t.use("a"); },
      [](Explored& t) { t.use("b"); },
      [](Explored& t) { ++t.negotiation; },
  };
  for (const auto& way : ways) {
    Explored after = before;
    way(after);
    explore_tables(after, depth - 1);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(SlotTable, KeepsAnnouncedSlotsInAllShortHistories) {
  explore_tables({}, 5);
}

/// Each rank looks up what it likes in between.
TEST(SlotTable, IsTheSameOnAllRanks) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const std::size_t most = 1 + random() % 4;
    std::vector<SlotTable> ranks(3, SlotTable(most));
    for (std::uint64_t negotiation = 1; negotiation < 40; ++negotiation) {
      const std::string name(1, static_cast<char>('a' + random() % 7));
      const bool in_step = random() % 2 == 0, uses = random() % 2 == 0;
      const RequestSpec spec = allreduce(name, 1 + random() % 2);
      std::set<std::string> tables;
      for (SlotTable& slots : ranks) {
        for (unsigned i = random() % 3; i > 0; --i) slots.find(allreduce(std::string(1, 'a' + random() % 9)), true);
        const int known = slots.find(name);
        if (known != kNone && uses) {
          slots.use(known, negotiation);
        } else {
          if (known != kNone) slots.retire(known);
          if (const int eviction_candidate = slots.eviction_candidate(negotiation); eviction_candidate != kNone)
            slots.retire(eviction_candidate);
          slots.add(shared(spec), in_step, negotiation);
        }
        tables.insert(NegotiatorProbe::table(slots));
      }
      ASSERT_EQ(tables.size(), 1U) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace farandole::testing
