// SPDX-License-Identifier: Apache-2.0
// A model of negotiating ranks, driven by choices: which rank submits, enters a negotiation or receives first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "negotiator.h"

namespace farandole::testing {

/// One event of a rank's program; a program is a list of events in order.
struct Event {
  enum class Kind { kSubmit, kJoin, kLeave, kWait, kStep };
  Kind kind = Kind::kWait;
  RequestSpec spec;
  Waiting waiting = Waiting::kNobody;
  bool in_step = false;
};

/// Words: a name with a length ("a", "a2"), "'" if it belongs to a step, and "!" if the thread waits for it, or "?" if
/// the program does, which may go on meanwhile and else comes to stand still; ":" begins a step when the one before has
/// ended, "J" joins, "L" leaves, "R" removes the set, "." waits for all that is pending.
/// Names from a to f are small allreduces, x and y large ones, g and h allgathers, z a barrier, s a change of process
/// sets.
std::vector<Event> program_of(const std::string& words);

/// Makes the choices of a run.
class Chooser {
 public:
  virtual ~Chooser() = default;
  /// A number below `ways`.
  virtual int choose(int ways) = 0;
  /// True if all that can follow this state has been seen already.
  virtual bool is_known(const std::string& state) = 0;
  /// False: where ranks wait for one that has more to do, the run ends, because another does it earlier.
  virtual bool goes_on() const = 0;
};

/// One after the other, all ways: a run replays the choices of the one before, but for the last that has another way.
class AllWays final : public Chooser {
 public:
  int choose(int ways) override;
  bool is_known(const std::string& state) override;
  bool goes_on() const override { return false; }
  /// Prepares the next run; false after the last.
  bool next();

 private:
  struct Choice {
    int taken = 0, ways = 1;
  };
  std::vector<Choice> choices_;
  std::size_t position_ = 0;
  std::unordered_set<std::size_t> seen_;  // digests of 64 bits
};

class RandomWays final : public Chooser {
 public:
  explicit RandomWays(unsigned seed) : random_(seed) {}
  int choose(int ways) override { return static_cast<int>(random_() % static_cast<unsigned>(ways)); }
  bool is_known(const std::string&) override { return false; }
  bool goes_on() const override { return true; }

 private:
  std::mt19937 random_;
};

struct Setting {
  std::vector<std::string> programs;  ///< one per rank
  /// True: every rank's program must come to its end, and every request succeed.
  bool succeeds = false;
  Negotiator::Limits limits{{64, 64}, 1 << 16};
  /// True: every rank's program must come to its end, though requests fail.
  bool ends = false;
};

/// One run: negotiations until no rank has anything to announce. @returns  the first thing that is wrong, or nothing
std::string run_model(const Setting& setting, Chooser& chooser);

}  // namespace farandole::testing
