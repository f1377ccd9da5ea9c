// SPDX-License-Identifier: Apache-2.0
// The pending requests of one rank, checked against a model in random histories.
#include "pending_requests.h"

#include <gmock/gmock.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "negotiator_probe.h"
#include "negotiator_ranks.h"

namespace farandole::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr PendingRequests::Time kStart{std::chrono::hours(1)};

PendingRequest request(Ticket ticket, const RequestSpec& spec, int slot = -1) {
  PendingRequest request;
  request.ticket = ticket;
  request.spec = std::make_shared<const RequestSpec>(spec);
  request.since = kStart;
  request.slot = slot;
  return request;
}

TEST(PendingRequests, RequestWithoutASlotIsAnnouncedByNameOnce) {
  PendingRequests pending;
  pending.add(request(1, allreduce("a")));
  EXPECT_EQ(pending.next_wakeup(), kStart + milliseconds(1));
  EXPECT_EQ(pending.announced(), 0U);
  EXPECT_EQ(pending.announce().size(), 1U);
  EXPECT_EQ(pending.announced(), 1U);
  EXPECT_EQ(pending.next_wakeup(), PendingRequests::Time::max());
  EXPECT_THAT(pending.announce(), IsEmpty());
  EXPECT_EQ(pending.end("a").ticket, 1U);
  EXPECT_EQ(pending.end("a").ticket, 0U);
  EXPECT_TRUE(pending.empty());
}

TEST(PendingRequests, HeldRequestBeginsNoNegotiationBeforeItIsReady) {
  PendingRequests pending;
  pending.resize(2);
  pending.add(request(1, allreduce("a"), 1));
  EXPECT_THAT(pending.bytes(), ElementsAre(0, 0));
  EXPECT_EQ(pending.next_wakeup(), PendingRequests::Time::max());
  pending.mark_ready(std::vector<int>{1});
  EXPECT_THAT(pending.bytes(), ElementsAre(0, 1));
  EXPECT_EQ(pending.next_wakeup(), PendingRequests::Time::min());
  pending.announce();
  EXPECT_EQ(pending.next_wakeup(), PendingRequests::Time::max()) << "a negotiation has asked for it";
  pending.request_negotiation();
  EXPECT_EQ(pending.next_wakeup(), PendingRequests::Time::min());
  pending.cancel_if_nothing_announced();
  EXPECT_EQ(pending.next_wakeup(), PendingRequests::Time::min()) << "it is announced";
  EXPECT_EQ(pending.end_in(1).ticket, 1U);
  pending.cancel_if_nothing_announced();
  EXPECT_EQ(pending.next_wakeup(), PendingRequests::Time::max());
  EXPECT_THAT(pending.bytes(), ElementsAre(0, 0));
  EXPECT_EQ(pending.end_in(1).ticket, 0U);
}

TEST(PendingRequests, RefusalsWaitForNothing) {
  PendingRequests pending;
  RequestSpec refusal = allreduce("refused");
  refusal.kind = RequestKind::kRefused;
  pending.add(request(1, refusal));
  EXPECT_EQ(pending.oldest(), std::nullopt);
  pending.add(request(2, allreduce("a")));
  EXPECT_EQ(pending.oldest(), kStart);
  EXPECT_FALSE(pending.is_waited_for());
  pending.wait_for("b", Waiting::kProgram);
  EXPECT_FALSE(pending.is_waited_for());
  pending.wait_for("a", Waiting::kCaller);
  pending.wait_for("a", Waiting::kProgram);
  EXPECT_TRUE(pending.is_waited_for());
  EXPECT_EQ(pending.next_wakeup(), PendingRequests::Time::min()) << "a caller waits, which is more than a program";
}

/// Random histories of seven names and three slots.
class History {
 public:
  explicit History(unsigned seed) : random_(seed) { pending_.resize(3); }

  void go_on() {
    const std::string name(1, static_cast<char>('a' + random_() % 7));
    const int slot = static_cast<int>(random_() % 3);
    switch (random_() % 8) {
      case 0:
        return add(name, -1);
      case 1:
        return is_taken(slot) ? void() : add(name, slot);
      case 2:
        return mark_ready(slot);
      case 3:
        return leave(slot);
      case 4:
        return enter(name, slot);
      case 5:
        return announce();
      case 6:
        return end(name, slot);
      default:
        return random_() % 10 == 0 ? fail_all() : void();
    }
  }
  void check() const {
    EXPECT_EQ(NegotiatorProbe::contradiction(pending_), "");
    std::vector<std::uint8_t> bytes(3, 0);
    std::map<Ticket, std::string> by_ticket;
    std::size_t announced = 0;
    for (const auto& [name, state] : expected_) {
      by_ticket[state.ticket] = name;
      announced += state.announced ? 1 : 0;
      if (state.slot >= 0 && state.announced) bytes[static_cast<std::size_t>(state.slot)] = 1;
    }
    EXPECT_EQ(pending_.bytes(), bytes);
    EXPECT_EQ(pending_.announced(), announced);
    for (int slot = 0; slot < 3; ++slot) EXPECT_EQ(pending_.has(slot), is_taken(slot));
    auto expected = by_ticket.begin();
    for (const PendingRequest* each : pending_.oldest_first()) {
      ASSERT_TRUE(expected != by_ticket.end());
      EXPECT_EQ(each->ticket, expected->first);
      EXPECT_EQ(each->spec->name, (expected++)->second);
    }
    EXPECT_TRUE(expected == by_ticket.end());
  }

 private:
  struct State {
    Ticket ticket = 0;
    int slot = -1;
    bool announced = false;
  };
  State* in(int slot) {
    for (auto& [name, state] : expected_) {
      if (state.slot == slot) return &state;
    }
    return nullptr;
  }
  bool is_taken(int slot) const {
    return std::any_of(expected_.begin(), expected_.end(), [&](const auto& each) { return each.second.slot == slot; });
  }

  void add(const std::string& name, int slot) {
    if (expected_.count(name) > 0) return;
    expected_[name] = {next_, slot, false};
    pending_.add(request(next_++, allreduce(name), slot));
  }
  void mark_ready(int slot) {
    State* state = in(slot);
    if (state == nullptr || state->announced) return;
    state->announced = true;
    pending_.mark_ready(std::vector<int>{slot});
    EXPECT_EQ(pending_.next_wakeup(), PendingRequests::Time::min());
  }
  void leave(int slot) {
    if (State* state = in(slot)) *state = {state->ticket, -1, false};
    pending_.leave_slot(slot);
  }
  void enter(const std::string& name, int slot) {
    const auto found = expected_.find(name);
    if (is_taken(slot) || found == expected_.end() || found->second.slot >= 0 || !found->second.announced) return;
    found->second.slot = slot;
    pending_.enter_slot(name, slot);
  }
  void announce() {
    std::size_t by_name = 0;
    for (auto& [name, state] : expected_) {
      if (state.slot >= 0 || state.announced) continue;
      state.announced = true;
      ++by_name;
    }
    EXPECT_EQ(pending_.announce().size(), by_name);
    EXPECT_EQ(pending_.next_wakeup(), PendingRequests::Time::max());
  }
  void end(const std::string& name, int slot) {
    const bool by_slot = random_() % 2 == 0;
    const auto found = std::find_if(expected_.begin(), expected_.end(), [&](const auto& each) {
      return by_slot ? each.second.slot == slot : each.first == name;
    });
    const Ticket ticket = found == expected_.end() ? 0 : found->second.ticket;
    EXPECT_EQ((by_slot ? pending_.end_in(slot) : pending_.end(name)).ticket, ticket);
    if (found != expected_.end()) expected_.erase(found);
  }
  void fail_all() {
    EXPECT_EQ(pending_.fail_all({ErrorKind::kTimeout, "too late"}).size(), expected_.size());
    EXPECT_EQ(pending_.next_wakeup(), PendingRequests::Time::max());
    expected_.clear();
  }

  std::mt19937 random_;
  PendingRequests pending_;
  std::map<std::string, State> expected_;
  Ticket next_ = 1;
};

TEST(PendingRequests, MatchTheModelAfterRandomHistories) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    History history(seed);
    for (int i = 0; i < 200; ++i) {
      history.go_on();
      history.check();
      ASSERT_FALSE(HasFailure()) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace farandole::testing
