// SPDX-License-Identifier: Apache-2.0
#include "negotiator_model.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "negotiator_probe.h"

namespace farandole::testing {
namespace {

constexpr int kMaxNegotiations = 400;

Event event_of(std::string word) {
  Event event;
  if (word == ".") return event;
  if (word == ":") event.kind = Event::Kind::kStep;
  if (word == "J") event.kind = Event::Kind::kJoin;
  if (word == "L" || word == "R") event.kind = Event::Kind::kLeave;
  if (event.kind != Event::Kind::kWait) {
    event.spec.name = word;
    return event;
  }
  event.kind = Event::Kind::kSubmit;
  if (word.back() == '!') event.waiting = Waiting::kCaller;
  if (word.back() == '?') event.waiting = Waiting::kProgram;
  if (event.waiting != Waiting::kNobody) word.pop_back();
  event.in_step = word.back() == '\'';
  if (event.in_step) word.pop_back();
  const std::int64_t length = word.size() > 1 ? word[1] - '0' : 1;
  RequestSpec& spec = event.spec;
  spec.name = word.substr(0, 1);
  const char first = word.front();
  spec.kind = RequestKind::kAllreduce;
  spec.tensors = {{DType::kF32, {first == 'x' || first == 'y' ? 1000 * length : length}}};
  if (first == 'g' || first == 'h') spec.kind = RequestKind::kAllgather;
  if (first == 'z') spec.kind = RequestKind::kBarrier;
  if (first == 's') {
    spec.kind = RequestKind::kAddSet;
    spec.tensors.clear();
    spec.arguments = {length};
  }
  return event;
}

/// One rank: its program, and what has become of it.
struct Rank {
  Rank(int rank, const Setting& setting)
      : program(program_of(setting.programs[static_cast<std::size_t>(rank)])),
        negotiator(rank, names(setting.programs.size()), setting.limits) {}

  static std::vector<std::string> names(std::size_t size) {
    std::vector<std::string> names;
    for (std::size_t rank = 0; rank < size; ++rank) names.push_back("rank " + std::to_string(rank));
    return names;
  }

  const std::vector<Event> program;
  Negotiator negotiator;
  std::size_t next = 0;
  Negotiator::Time now{std::chrono::hours(1)};
  std::map<Negotiator::Ticket, const Event*> pending;
  Negotiator::Generation generation = Negotiator::kFirstGeneration;  // of its step
  bool waits = false;                                                // its thread, for a request
  bool is_idle = false;                                              // since it last did something
  bool joined = false;                                               // and not all have yet
  bool left = false;
  bool all_left = false;
  std::vector<std::uint8_t> announced;

  bool is_pending(const std::string& name) const {
    return std::any_of(pending.begin(), pending.end(),
                       [&](const auto& each) { return each.second->spec.name == name; });
  }
  bool can_go_on() const {
    if (next == program.size()) return false;
    const Event& event = program[next];
    for (const auto& [ticket, each] : pending) {
      if (each->waiting == Waiting::kCaller) return false;
    }
    if (event.kind == Event::Kind::kWait) return pending.empty() && !joined;
    if (event.kind == Event::Kind::kStep) {
      return std::none_of(pending.begin(), pending.end(), [](const auto& each) { return each.second->in_step; });
    }
    return event.kind != Event::Kind::kSubmit || !is_pending(event.spec.name);
  }
  bool may_come_to_stand_still() const {
    return !is_idle && !can_go_on() && std::any_of(pending.begin(), pending.end(), [](const auto& each) {
      return each.second->waiting == Waiting::kProgram;
    });
  }
};

class Model {
 public:
  Model(const Setting& setting, Chooser& chooser) : setting_(setting), chooser_(chooser) {
    for (std::size_t rank = 0; rank < setting.programs.size(); ++rank) {
      ranks_.push_back(std::make_unique<Rank>(static_cast<int>(rank), setting));
    }
  }

  std::string run() {
    for (int negotiation = 0; error_.empty(); ++negotiation) {
      if (negotiation == kMaxNegotiations) return "the negotiations do not end: " + state();
      const std::string before = state();
      if (chooser_.is_known(before)) return {};
      if (!enter_all()) break;
      finish_round();
      if (error_.empty() && state() == before) error_ = "a negotiation has changed nothing: " + before;
    }
    return error_;
  }

 private:
  std::string state() const {
    std::string text;
    for (const auto& rank : ranks_) {
      text += fmt::format("{} {}{}{}{}{}{} {}|{}|\n", rank->next, rank->waits, rank->is_idle, rank->joined, rank->left,
                          rank->all_left, rank->pending.size(), rank->generation,
                          NegotiatorProbe::own(rank->negotiator, rank->now));
    }
    return text + NegotiatorProbe::table(ranks_.front()->negotiator);
  }

  void fail(const std::string& text) {
    if (error_.empty()) error_ = text;
  }

  /// Runs as many events of the rank's program as the chooser chooses.
  void go_on(Rank& rank) {
    while (rank.can_go_on() && chooser_.choose(2) == 1) {
      const Event& event = rank.program[rank.next++];
      rank.is_idle = false;
      if (event.kind == Event::Kind::kJoin) {
        rank.joined = !rank.negotiator.join().has_value();
      } else if (event.kind == Event::Kind::kLeave) {
        rank.negotiator.leave(event.spec.name == "L" ? Departure::kLeavesJob : Departure::kSetRemoved);
        rank.left = true;
      } else if (event.kind == Event::Kind::kStep) {
        rank.generation = rank.negotiator.generation();
      } else if (event.kind == Event::Kind::kSubmit) {
        submit(rank, event);
      }
      check(rank);
    }
  }

  void submit(Rank& rank, const Event& event) {
    const auto ticket = next_ticket_++;
    const auto generation = event.in_step ? rank.generation : Negotiator::kNoStep;
    if (!rank.negotiator.submit({ticket, event.spec, event.waiting, generation}, rank.now)) {
      rank.pending[ticket] = &event;
      rank.waits = rank.waits || event.waiting == Waiting::kCaller;
      return;
    }
    const bool has_failed = event.in_step && generation < rank.negotiator.generation();
    if (!has_failed && !someone_left()) fail("a request was refused, and nobody has left");
    if (setting_.succeeds) fail("a step has failed");
  }

  bool someone_left() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->left; });
  }

  void check(const Rank& rank) {
    const std::string problem = NegotiatorProbe::contradiction(rank.negotiator);
    if (!problem.empty()) fail(problem + ": " + state());
  }

  /// All ranks enter the next negotiation, each by its own next_wakeup or because it has to answer. False: the end, or
  /// a way that leads nowhere because somebody did not do what others wait for.
  bool enter_all() {
    for (;;) {
      bool somebody = false, everybody = true, all_exhausted = true;
      for (const auto& rank : ranks_) {
        go_on(*rank);
        if (rank->may_come_to_stand_still() && chooser_.choose(2) == 1) {
          rank->is_idle = true;
          rank->negotiator.announce_idle();
        }
        const auto next_wakeup = rank->negotiator.next_wakeup();
        const bool has_timer = next_wakeup > rank->now && next_wakeup != Negotiator::Time::max();
        const bool fires = has_timer && chooser_.choose(2) == 1;
        if (fires) rank->now = next_wakeup;
        const bool wants = rank->negotiator.next_wakeup() <= rank->now;
        somebody = somebody || wants;
        everybody = everybody && (wants || rank->negotiator.must_answer());
        all_exhausted =
            all_exhausted && !rank->can_go_on() && (!has_timer || fires) && !rank->may_come_to_stand_still();
      }
      if (!error_.empty()) return false;
      if (somebody && everybody) break;
      if (all_exhausted) check_end();
      if (all_exhausted || !chooser_.goes_on()) return false;
    }
    for (const auto& rank : ranks_) {
      const auto announced = rank->negotiator.open(rank->waits || rank->is_idle, rank->now);
      rank->announced.assign(announced.begin(), announced.end());
      check(*rank);
    }
    return true;
  }

  void finish_round() {
    std::vector<std::uint8_t> minimum = ranks_.front()->announced;
    for (const auto& rank : ranks_) {
      if (rank->announced.size() != minimum.size()) return fail("tables of different sizes: " + state());
      for (std::size_t i = 0; i < minimum.size(); ++i) minimum[i] = std::min(minimum[i], rank->announced[i]);
    }
    std::vector<Negotiator::Outcome> outcomes;
    for (const auto& rank : ranks_) {
      go_on(*rank);
      outcomes.push_back(rank->negotiator.receive(minimum, rank->now));
      check(*rank);
    }
    const bool needs_announcements = outcomes.front().needs_announcements;
    take(outcomes);
    if (needs_announcements) receive_announcements();
    const std::string table = NegotiatorProbe::table(ranks_.front()->negotiator);
    for (const auto& rank : ranks_) {
      const std::string other = NegotiatorProbe::table(rank->negotiator);
      if (other != table) fail(std::string("the ranks' tables differ: ").append(table).append(" and ").append(other));
      if (rank->negotiator.counters().broken_buckets != ranks_.front()->negotiator.counters().broken_buckets) {
        fail("the ranks count broken buckets differently");
      }
    }
  }

  void receive_announcements() {
    std::vector<std::string> announcements;
    for (const auto& rank : ranks_) announcements.push_back(rank->negotiator.announcements());
    std::vector<Negotiator::Outcome> outcomes;
    for (const auto& rank : ranks_) {
      go_on(*rank);
      outcomes.push_back(rank->negotiator.receive_announcements(announcements, rank->now));
      check(*rank);
    }
    take(outcomes);
  }

  /// The outcome of a negotiation on all ranks.
  void take(const std::vector<Negotiator::Outcome>& outcomes) {
    check_buckets(outcomes);
    check_steps(outcomes);
    check_failures(outcomes);
    for (std::size_t i = 0; i < ranks_.size() && error_.empty(); ++i) {
      Rank& rank = *ranks_[i];
      for (const auto& bucket : outcomes[i].buckets) {
        for (const auto& [spec, ticket] : bucket) end(rank, ticket, spec.get());
      }
      for (const auto& failed : outcomes[i].failed) end(rank, failed.ticket, nullptr);
      if (outcomes[i].all_joined || outcomes[i].departed) rank.joined = false;
      rank.all_left = rank.all_left || outcomes[i].all_left;
      rank.waits = std::any_of(rank.pending.begin(), rank.pending.end(),
                               [](const auto& each) { return each.second->waiting == Waiting::kCaller; });
    }
  }

  void end(Rank& rank, Negotiator::Ticket ticket, const RequestSpec* agreed) {
    if (ticket == 0) {
      if (!rank.joined) fail("others do what a rank that has not joined did not submit: " + state());
      if (agreed != nullptr && agreed->kind != RequestKind::kAllreduce && agreed->kind != RequestKind::kBarrier) {
        fail("a collective that a joined rank cannot take part in");
      }
      return;
    }
    const auto found = rank.pending.find(ticket);
    if (found == rank.pending.end()) return fail("a request ends that is not pending");
    if (agreed != nullptr && *agreed != found->second->spec) fail("a request is done that is another");
    rank.pending.erase(found);
    rank.is_idle = false;
  }

  void check_buckets(const std::vector<Negotiator::Outcome>& outcomes) {
    const auto text_of = [](const Negotiator::Outcome& outcome) {
      std::string text;
      for (const auto& bucket : outcome.buckets) {
        for (const auto& [spec, ticket] : bucket) text += describe(*spec) + ";";
        text += "\n";
      }
      return text +
             fmt::format("{} {} {}", outcome.all_joined.value_or(-1), outcome.departed.has_value(), outcome.all_left);
    };
    const std::string first = text_of(outcomes.front());
    for (const auto& outcome : outcomes) {
      if (text_of(outcome) != first) fail("ranks do different things: " + first + " and " + text_of(outcome));
      for (const auto& bucket : outcome.buckets) {
        std::size_t bytes = 0;
        for (const auto& [spec, ticket] : bucket) bytes += spec->size_in_bytes();
        if (bucket.size() > 1 && bytes > setting_.limits.fusion.fusion_bytes) fail("a bucket is too large");
      }
    }
  }

  /// Checks that requests of steps are matched only with requests of steps of the same generation. A rank's step can
  /// not have changed since the rank submitted its pending requests.
  void check_steps(const std::vector<Negotiator::Outcome>& outcomes) {
    std::map<std::string, std::set<Negotiator::Generation>> generations;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      for (const auto& bucket : outcomes[i].buckets) {
        for (const auto& [spec, ticket] : bucket) {
          const auto found = ranks_[i]->pending.find(ticket);
          if (found != ranks_[i]->pending.end() && found->second->in_step) {
            generations[spec->name].insert(ranks_[i]->generation);
          }
        }
      }
    }
    for (const auto& [name, of_ranks] : generations) {
      if (of_ranks.size() > 1) fail("'" + name + "' of different steps is done together: " + state());
    }
  }

  /// Checks that a failing request fails with the same text on every rank where it is pending. Requests of a rank that
  /// has joined count for the time after the join, and may fail differently.
  void check_failures(const std::vector<Negotiator::Outcome>& outcomes) {
    bool departed = false, waits_for_each_other = false;
    for (const auto& outcome : outcomes) {
      departed = departed || outcome.departed;
      for (const auto& [ticket, error] : outcome.failed) {
        if (setting_.succeeds) fail("a request fails: " + error.text);
        waits_for_each_other = waits_for_each_other || error.text.find("every rank waits") == 0;
      }
    }
    if (departed || waits_for_each_other) return;
    std::map<std::string, std::string> texts;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      for (const auto& [ticket, error] : outcomes[i].failed) {
        const auto found = ranks_[i]->pending.find(ticket);
        if (found == ranks_[i]->pending.end() || ranks_[i]->joined) continue;
        const std::string& text = texts.emplace(found->second->spec.name, error.text).first->second;
        if (text != error.text) fail("different words for one failure: " + text + " and " + error.text);
      }
    }
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      for (const auto& [name, text] : texts) check_failed_too(*ranks_[i], outcomes[i], name, text);
    }
  }

  static bool is_of_step(const std::string& text) {
    return text.find("is of a step that has failed") != std::string::npos;
  }

  void check_failed_too(const Rank& rank, const Negotiator::Outcome& outcome, const std::string& name,
                        const std::string& text) {
    const bool with_step = is_of_step(text);
    for (const auto& [ticket, event] : rank.pending) {
      if (event->spec.name != name || (with_step && !event->in_step)) continue;
      const bool ends = std::any_of(outcome.failed.begin(), outcome.failed.end(),
                                    [&, id = ticket](const auto& each) { return each.ticket == id; });
      // Submitted while the negotiation was under way, by a rank that has joined: of the next time.
      if (!ends && !rank.joined) fail("what failed on one rank is pending on another: " + state());
    }
  }

  /// Nobody can go on: is there a reason?
  void check_end() {
    bool all_wait = true, all_joined = true, all_left = true, all_engaged = true;
    for (const auto& rank : ranks_) {
      all_wait = all_wait && (rank->waits || rank->is_idle || rank->joined);
      all_joined = all_joined && rank->joined;
      all_left = all_left && rank->left;
      all_engaged = all_engaged && (!rank->pending.empty() || rank->left || rank->joined);
    }
    if (all_joined) fail("all have joined: " + state());
    if (all_wait) fail("all ranks wait: " + state());
    for (const auto& rank : ranks_) {
      if (all_left && (!rank->all_left || !rank->pending.empty())) fail("all have left: " + state());
      if (someone_left() && all_engaged && !rank->pending.empty()) fail("pending, though one has left: " + state());
      if ((setting_.succeeds || setting_.ends) &&
          (rank->next < rank->program.size() || !rank->pending.empty() || rank->joined)) {
        fail("a rank does not come to its end: " + state());
      }
      for (const auto& [ticket, event] : rank->pending) {
        const std::string& name = event->spec.name;
        const bool ready = std::all_of(ranks_.begin(), ranks_.end(),
                                       [&](const auto& other) { return other->joined || other->is_pending(name); });
        if (ready) fail("ready everywhere, and not done: " + name + ": " + state());
      }
    }
  }

  const Setting& setting_;
  Chooser& chooser_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  Negotiator::Ticket next_ticket_ = 1;
  std::string error_;
};

}  // namespace

std::vector<Event> program_of(const std::string& words) {
  std::vector<Event> events;
  std::istringstream stream(words);
  for (std::string word; stream >> word;) events.push_back(event_of(word));
  return events;
}

int AllWays::choose(int ways) {
  if (position_ == choices_.size()) choices_.push_back({0, ways});
  return choices_[position_++].taken;
}

bool AllWays::is_known(const std::string& state) {
  // The way to the last choice has been seen by the run before.
  if (position_ < choices_.size()) return false;
  return !seen_.insert(std::hash<std::string>()(state)).second;
}

bool AllWays::next() {
  while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().ways) choices_.pop_back();
  if (choices_.empty()) return false;
  ++choices_.back().taken;
  position_ = 0;
  return true;
}

std::string run_model(const Setting& setting, Chooser& chooser) {
  return Model(setting, chooser).run();
}

}  // namespace farandole::testing
