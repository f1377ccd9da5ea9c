// SPDX-License-Identifier: Apache-2.0
// A state of the model consists of the contents of shared memory and the position of each rank. An action is one access
// to shared memory that other ranks can observe. One action tests conditions that stay true once they hold (progress,
// completed) for all ranks; this is equivalent to one action per rank.
#include "shm_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include "shared_memory/shm_plan.h"

namespace farandole::shm_model {
namespace {

constexpr int kMaxRanks = 3, kMaxCalls = 3, kMaxLanes = 2, kSlots = 2, kExchangeSlots = 4;

enum class Phase : std::uint8_t {
  kBegin,
  kFree,
  kData,
  kNumber,
  kNudge,
  kHear,
  kRead,
  kReady,
  kAccess,
  kTake,
  kTakeNumber,
  kStepNudge,
  kLeave,
  kEnd,
  kDone
};
struct Op {
  Phase phase;
  std::uint8_t cursor, taken;  // a peer; steps of the plan
};
enum class Mode : std::uint8_t { kAwake, kSee, kLook, kAsleep };

/// Bytes only, so that states can be compared as memory.
struct State {
  struct Rank {
    // Shared.
    std::array<std::uint8_t, kMaxLanes> number, progress_number, progress;
    std::array<std::array<std::uint8_t, kSlots>, kMaxLanes> in, result;
    std::array<std::array<std::uint8_t, kExchangeSlots>, kMaxLanes> exchanged;
    std::uint8_t completed, armed, rung;  // rung: since the rank has looked at the ring count
    // Its own.
    std::array<std::uint8_t, kMaxLanes> in_flight, last;
    std::uint8_t newest;
    Mode mode;
    std::uint8_t looking_at;
    std::array<Op, kMaxCalls> ops;
  };
  std::array<Rank, kMaxRanks> ranks;
};
static_assert(std::has_unique_object_representations_v<State>);

class Explorer {
 public:
  explicit Explorer(const Variant& variant) : v_(variant), calls_(static_cast<int>(variant.calls.size())) {
    staged_ = ShmPlan({Collective::kAllreduce, v_.ranks, -1, false, false, false});
    staged_.set_slices(3);
    exchanged_ = staged_;
    exchanged_.set_slices(kExchangeSlots + 1);
    windows_ = ShmPlan({Collective::kAllreduce, v_.ranks, -1, false, true, true});
    windows_.set_slices(2);
  }

  Exploration run() {
    State start;
    std::memset(&start, 0, sizeof start);
    std::vector<State> open{start};
    seen_.insert(key(start));
    while (!open.empty() && error_.empty()) {
      const State state = open.back();
      open.pop_back();
      moved_ = false;
      for (int rank = 0; rank < v_.ranks && error_.empty(); ++rank) {
        expand(state, rank, [&](const State& next) {
          moved_ = true;
          // States are remembered by a 64-bit digest: with millions of them two share one with a chance below 1e-5.
          if (seen_.insert(key(next)).second) open.push_back(next);
        });
      }
      if (!moved_ && error_.empty() && !is_finished(state)) error_ = "all ranks wait: " + where(state);
    }
    return {error_, seen_.size()};
  }

 private:
  using Visitor = std::function<void(const State&)>;

  template <class Array>
  static auto& at(Array& array, int index) {
    return array[static_cast<std::size_t>(index)];
  }

  static std::size_t key(const State& state) {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(&state), sizeof state});
  }
  bool is_done(const State& state, int rank) const {
    for (int call = 0; call < calls_; ++call) {
      if (op(state, rank, call).phase != Phase::kDone) return false;
    }
    return true;
  }
  bool is_finished(const State& state) const {
    for (int rank = 0; rank < v_.ranks; ++rank) {
      if (!is_done(state, rank)) return false;
    }
    return true;
  }
  static const Op& op(const State& state, int rank, int call) { return at(at(state.ranks, rank).ops, call); }
  std::string where(const State& state) const {
    std::string text;
    for (int rank = 0; rank < v_.ranks; ++rank) {
      for (int call = 0; call < calls_; ++call) {
        text += fmt::format(" {}.{}", static_cast<int>(op(state, rank, call).phase), op(state, rank, call).cursor);
      }
      text += fmt::format(" mode {};", static_cast<int>(at(state.ranks, rank).mode));
    }
    return text;
  }

  /// Calls that a rank may work on: as many as there are lanes.
  template <class Body>
  void for_each_open(const State& state, int rank, const Body& body) const {
    int first = 0;
    while (first < calls_ && op(state, rank, first).phase == Phase::kDone) ++first;
    for (int call = first; call < calls_ && call < first + v_.lanes; ++call) {
      if (op(state, rank, call).phase != Phase::kDone) body(call);
    }
  }

  /// All that `rank` may do next.
  void expand(const State& state, int rank, const Visitor& visit) {
    if (is_done(state, rank)) return;
    const auto& here = at(state.ranks, rank);
    State next = state;
    auto& there = at(next.ranks, rank);
    switch (here.mode) {
      case Mode::kAwake: {
        bool any = false;
        for_each_open(state, rank, [&](int call) {
          State moved = state;
          if (!advance(moved, rank, call)) return;
          any = true;
          visit(moved);
        });
        if (any || !v_.sleeps || !error_.empty()) return;
        there.mode = v_.mistake == Mistake::kLooksBeforeArming ? Mode::kLook : Mode::kSee;
        there.armed = v_.mistake == Mistake::kLooksBeforeArming ? 0 : 1;
        there.looking_at = 0;
        break;
      }
      case Mode::kSee:
        there.rung = 0;
        there.mode = there.looking_at == 0 ? Mode::kLook : Mode::kAsleep;
        if (there.looking_at == 0 && v_.mistake == Mistake::kSeesAfterLooking) there.rung = here.rung;
        break;
      case Mode::kLook:
        look(next, rank);
        break;
      case Mode::kAsleep:
        if (here.rung == 0) return;
        there.looking_at = 0;
        there.mode = Mode::kSee;
        break;
    }
    visit(next);
  }

  /// The last look before sleeping: at one operation after the other.
  void look(State& next, int rank) {
    auto& here = at(next.ranks, rank);
    for (; here.looking_at < calls_; ++here.looking_at) {
      bool is_open = false;
      for_each_open(next, rank, [&](int call) { is_open = is_open || call == here.looking_at; });
      if (!is_open) continue;
      if (advance(next, rank, here.looking_at)) {
        here.mode = Mode::kAwake;
        here.armed = here.looking_at = 0;
      } else {
        ++here.looking_at;
      }
      return;
    }
    here.armed = 1;
    const bool sees_now = v_.mistake == Mistake::kSeesAfterLooking || v_.mistake == Mistake::kLooksBeforeArming;
    here.mode = sees_now ? Mode::kSee : Mode::kAsleep;
  }

  /// Contents of a slot: all data of a one-shot collective, else one slice of the data.
  static std::uint8_t tag_of(int number, int part) { return static_cast<std::uint8_t>(number * 8 + part); }
  static std::uint8_t result_tag(std::uint8_t tag) { return static_cast<std::uint8_t>(tag + 128); }

  bool fail(std::string text) {
    error_ = std::move(text);
    return true;
  }

  /// One action of an operation. False if it has to wait.
  bool advance(State& s, int rank, int call) {
    auto& mine = at(s.ranks, rank);
    Op& op = at(mine.ops, call);
    const auto number = static_cast<std::uint8_t>(call + 1);
    const int lane = number % v_.lanes;
    const Kind kind = at(v_.calls, call);
    const auto go = [&](Phase phase) {
      op.phase = phase;
      op.cursor = 0;
      return true;
    };
    switch (op.phase) {
      case Phase::kBegin:
        if (call > 0 && v_.mistake != Mistake::kBeginsOutOfOrder && at(mine.ops, call - 1).phase == Phase::kBegin) {
          return false;
        }
        at(mine.in_flight, lane) = number;
        mine.newest = std::max(mine.newest, number);
        return go(Phase::kFree);
      case Phase::kFree:
        for (int peer = 0; peer < v_.ranks && v_.mistake != Mistake::kTakesOccupiedLane; ++peer) {
          if (peer != rank && at(s.ranks, peer).completed < at(mine.last, lane)) return false;
        }
        if (v_.mistake == Mistake::kNudgesFirst) return go(Phase::kNudge);
        return go(v_.mistake == Mistake::kNumberFirst ? Phase::kNumber : Phase::kData);
      case Phase::kData:
        // The whole, or the first part, which is the first step of a staged plan.
        if (kind == Kind::kOneShot) at(at(mine.result, lane), 0) = tag_of(number, 0);
        if (kind == Kind::kStaged) at(at(mine.in, lane), 0) = tag_of(number, 0);
        if (kind == Kind::kExchanged) at(at(mine.exchanged, lane), 0) = tag_of(number, 0);
        if (kind == Kind::kStaged || kind == Kind::kExchanged) {
          // No peer looks for them before this rank has arrived.
          at(mine.progress, lane) = ++op.taken;
          at(mine.progress_number, lane) = number;
        }
        return go(v_.mistake == Mistake::kNumberFirst ? Phase::kNudge : Phase::kNumber);
      case Phase::kNumber:
        at(mine.number, lane) = number;
        if (v_.mistake == Mistake::kNudgesFirst) return go(Phase::kHear);
        return go(v_.mistake == Mistake::kNumberFirst ? Phase::kData : Phase::kNudge);
      case Phase::kNudge:
        if (nudge(s, rank, op)) go(v_.mistake == Mistake::kNudgesFirst ? Phase::kData : Phase::kHear);
        return true;
      case Phase::kHear:
        if (op.cursor != rank && at(at(s.ranks, op.cursor).number, lane) != number) return false;
        if (++op.cursor == v_.ranks) go(kind == Kind::kOneShot ? Phase::kRead : Phase::kReady);
        return true;
      case Phase::kRead:
        if (at(at(at(s.ranks, op.cursor).result, lane), 0) != tag_of(number, 0)) {
          return fail(fmt::format("rank {} reads data of another call of rank {}", rank, op.cursor));
        }
        if (++op.cursor == v_.ranks) go(Phase::kEnd);
        return true;
      case Phase::kEnd:
        end(mine, lane);
        return go(Phase::kDone);
      default:
        return advance_step(s, rank, op, number);
    }
  }

  const ShmPlan& plan_of(Kind kind) const {
    if (kind == Kind::kExchanged) return exchanged_;
    return kind == Kind::kStaged ? staged_ : windows_;
  }

  /// A step of two ranks that exchange parts: in one action, because a slot belongs to one rank at a time.
  bool exchange(State& s, int rank, int lane, const ShmPlan::Step& step, std::uint8_t tag) {
    auto& mine = at(at(at(s.ranks, rank).exchanged, lane), static_cast<int>(step.slice) % kExchangeSlots);
    auto& theirs = at(at(at(s.ranks, 1 - rank).exchanged, lane), static_cast<int>(step.slice) % kExchangeSlots);
    switch (step.stage) {
      case ShmStage::kCopyIn:
        mine = tag;
        return true;
      case ShmStage::kReduce:
        if (theirs != tag) return fail(fmt::format("rank {} finds another part than the other rank's input", rank));
        theirs = result_tag(tag);
        return true;
      case ShmStage::kCopyOut:
        if (mine != result_tag(tag)) return fail(fmt::format("rank {} finds another part than its result", rank));
        return true;
    }
    return true;
  }

  /// One action of the steps of a plan.
  bool advance_step(State& s, int rank, Op& op, std::uint8_t number) {
    auto& mine = at(s.ranks, rank);
    const int lane = number % v_.lanes;
    const ShmPlan& plan = plan_of(at(v_.calls, number - 1));
    ShmPlan::Step step = plan.first();
    for (int i = 0; i < op.taken && op.taken < static_cast<int>(plan.steps()); ++i) step = plan.after(step);
    const int part = static_cast<int>(step.slice);
    const int slot = part % kSlots;
    const std::uint8_t tag = tag_of(number, part);
    switch (op.phase) {
      case Phase::kReady:
        if (!is_ready(s, rank, number, plan, step)) return false;
        op.phase = Phase::kAccess;
        return true;
      case Phase::kAccess: {
        if (&plan == &exchanged_) {
          op.phase = Phase::kTake;
          return exchange(s, rank, lane, step, tag);
        }
        // Reads one peer's slot, and with the last one writes its own.
        const auto& peer = at(s.ranks, op.cursor);
        if (&plan == &windows_) {
          if (at(peer.ops, number - 1).phase == Phase::kDone) {
            return fail(fmt::format("rank {} uses buffers that rank {} has given back", rank, op.cursor));
          }
        } else if (step.stage != ShmStage::kCopyIn) {
          const auto& slots = step.stage == ShmStage::kReduce ? peer.in : peer.result;
          if (at(at(slots, lane), slot) != tag) {
            return fail(fmt::format("rank {} finds another part in a slot of rank {}", rank, op.cursor));
          }
        }
        if (++op.cursor < v_.ranks && (step.stage != ShmStage::kCopyIn || &plan == &windows_)) return true;
        if (step.stage == ShmStage::kCopyIn) at(at(mine.in, lane), slot) = tag;
        if (step.stage == ShmStage::kReduce) at(at(mine.result, lane), slot) = tag;
        op.phase = Phase::kTake;
        return true;
      }
      case Phase::kTake:
      case Phase::kTakeNumber: {
        // Progress::publish: with the first step the number comes last.
        const bool is_first = op.taken == 0 || op.phase == Phase::kTakeNumber;
        const bool number_now = (op.phase == Phase::kTakeNumber) != (v_.mistake == Mistake::kStepsLast);
        if (op.phase == Phase::kTake) ++op.taken;
        if (is_first && number_now) {
          at(mine.progress_number, lane) = number;
        } else {
          at(mine.progress, lane) = op.taken;
        }
        op.phase = is_first && op.phase == Phase::kTake ? Phase::kTakeNumber : Phase::kStepNudge;
        op.cursor = 0;
        return true;
      }
      case Phase::kStepNudge:
        if (nudge(s, rank, op)) {
          op.phase = op.taken < static_cast<int>(plan.steps()) ? Phase::kReady : Phase::kLeave;
          op.cursor = 0;
        }
        return true;
      default:  // kLeave
        if (plan.touches_buffers() && v_.mistake != Mistake::kLeavesTooEarly &&
            !all_reached(s, rank, number, plan.steps())) {
          return false;
        }
        op.phase = Phase::kEnd;
        return true;
    }
  }

  /// The rules of Pipeline::is_ready.
  bool is_ready(const State& s, int rank, int number, const ShmPlan& plan, const ShmPlan::Step& step) const {
    const auto reader = static_cast<ShmStage>(static_cast<int>(step.stage) + 1);
    const std::size_t slots = &plan == &exchanged_ ? kExchangeSlots : kSlots;
    const bool reused = step.stage != ShmStage::kCopyOut && plan.uses(reader) && step.slice >= slots;
    if (reused && v_.mistake != Mistake::kReusesSlots &&
        !all_reached(s, rank, number, plan.done_after(reader, step.slice - slots))) {
      return false;
    }
    if (step.stage == ShmStage::kCopyIn || v_.mistake == Mistake::kReadsTooEarly) return true;
    const auto writer = static_cast<ShmStage>(static_cast<int>(step.stage) - 1);
    return !plan.uses(writer) || all_reached(s, rank, number, plan.done_after(writer, step.slice));
  }
  bool all_reached(const State& s, int rank, int number, std::uint64_t steps) const {
    for (int peer = 0; peer < v_.ranks; ++peer) {
      const auto& other = at(s.ranks, peer);
      const int lane = number % v_.lanes;
      if (peer == rank) continue;
      if (at(other.progress_number, lane) != number || at(other.progress, lane) < steps) return false;
    }
    return true;
  }

  /// One peer per action; true after the last one.
  bool nudge(State& s, int rank, Op& op) const {
    if (!v_.sleeps) return true;
    auto& peer = at(s.ranks, op.cursor);
    if (op.cursor != rank && peer.armed != 0 && v_.mistake != Mistake::kNeverNudges) peer.rung = 1;
    return ++op.cursor == v_.ranks;
  }

  /// LaneLedger::end
  void end(State::Rank& mine, int lane) const {
    at(mine.last, lane) = at(mine.in_flight, lane);
    at(mine.in_flight, lane) = 0;
    std::uint8_t completed = mine.newest;
    for (const std::uint8_t other : mine.in_flight) {
      if (other != 0 && v_.mistake != Mistake::kCountsOnlyNewest) {
        completed = std::min(completed, static_cast<std::uint8_t>(other - 1));
      }
    }
    mine.completed = completed;
  }

  const Variant v_;
  const int calls_;
  ShmPlan staged_, exchanged_, windows_;
  std::unordered_set<std::size_t> seen_;
  std::string error_;
  bool moved_ = false;
};

}  // namespace

std::string describe(const Variant& v) {
  std::string calls;
  for (const Kind kind : v.calls) calls += fmt::format(" {}", static_cast<int>(kind));
  return fmt::format("{} ranks, {} lanes, calls{}, sleeps {}, mistake {}", v.ranks, v.lanes, calls, v.sleeps,
                     static_cast<int>(v.mistake));
}

Exploration explore(const Variant& variant) {
  return Explorer(variant).run();
}

}  // namespace farandole::shm_model
