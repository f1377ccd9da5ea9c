// SPDX-License-Identifier: Apache-2.0
// Negotiating ranks, driven by hand: tests pass all times as arguments, and a negotiation is a loop over the ranks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "negotiator.h"

namespace farandole::testing {

using std::chrono::milliseconds;

inline RequestSpec allreduce(const std::string& name, std::int64_t count = 1) {
  RequestSpec spec;
  spec.name = name;
  spec.kind = RequestKind::kAllreduce;
  spec.tensors = {{DType::kF32, {count}}};
  return spec;
}
inline RequestSpec allgather(const std::string& name) {
  RequestSpec spec = allreduce(name);
  spec.kind = RequestKind::kAllgather;
  return spec;
}

inline constexpr Negotiator::Limits kLimits{{1024, 512}, 1 << 16};

/// Negotiators that a test drives by hand.
class Ranks {
 public:
  explicit Ranks(int size, Negotiator::Limits limits = kLimits) {
    std::vector<std::string> names;
    for (int rank = 0; rank < size; ++rank) names.push_back("rank " + std::to_string(rank));
    for (int rank = 0; rank < size; ++rank) ranks_.push_back(std::make_unique<Negotiator>(rank, names, limits));
  }

  Negotiator& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  void submit(int rank, RequestSpec spec, Waiting waiting = Waiting::kNobody) {
    EXPECT_EQ((*this)[rank].submit({next_ticket_++, std::move(spec), waiting}, now), std::nullopt);
  }
  /// @returns  why it is refused, if it is
  std::optional<RequestError> submit_in_step(int rank, RequestSpec spec, Negotiator::Generation generation) {
    return (*this)[rank].submit({next_ticket_++, std::move(spec), Waiting::kNobody, generation}, now);
  }
  /// From now on, until `go_on`.
  void stand_still(int rank) {
    standing_.push_back(&(*this)[rank]);
    (*this)[rank].announce_idle();
  }
  void go_on(int rank) { std::erase(standing_, &(*this)[rank]); }
  void submit_all(const RequestSpec& spec, Waiting waiting = Waiting::kNobody) {
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) submit(rank, spec, waiting);
  }

  /// Outcome of a negotiation on one rank.
  struct Result {
    std::vector<std::vector<std::string>> buckets;  // names
    std::vector<std::string> zeros;                 // of them, what the others submitted and this rank did not
    std::vector<std::string> failed;                // kind and text
    int all_joined = -1;
    bool all_left = false, had_announcements = false;
    std::string departed;
  };
  /// One negotiation of all ranks. @returns  what rank 0 has got of it; all get the same buckets
  Result negotiation(bool blocked = false) {
    std::vector<std::uint8_t> minimum;
    for (const auto& rank : ranks_) {
      const bool is_idle = std::find(standing_.begin(), standing_.end(), rank.get()) != standing_.end();
      const auto announced = rank->open(blocked || is_idle, now);
      slots = announced.size() - 2;
      if (minimum.empty()) minimum.assign(announced.begin(), announced.end());
      EXPECT_EQ(minimum.size(), announced.size());
      for (std::size_t i = 0; i < announced.size(); ++i) minimum[i] = std::min(minimum[i], announced[i]);
    }
    if (meanwhile) std::exchange(meanwhile, nullptr)();
    results = std::vector<Result>(ranks_.size());
    std::vector<std::string> announcements;
    bool needs_announcements = false;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const auto outcome = ranks_[i]->receive(minimum, now);
      needs_announcements = outcome.needs_announcements;
      add(results[i], outcome);
      announcements.push_back(ranks_[i]->announcements());
    }
    for (std::size_t i = 0; needs_announcements && i < ranks_.size(); ++i) {
      add(results[i], ranks_[i]->receive_announcements(announcements, now));
      results[i].had_announcements = true;
    }
    for (const Result& result : results) EXPECT_EQ(result.buckets, results.front().buckets);
    return results.front();
  }
  void pass(milliseconds time) { now += time; }

  Negotiator::Time now{std::chrono::hours(1)};
  std::vector<Result> results;      // of the last negotiation
  std::function<void()> meanwhile;  // done once all have entered the next negotiation
  std::size_t slots = 0;            // that it had bytes for

 private:
  static void add(Result& result, const Negotiator::Outcome& outcome) {
    for (const auto& bucket : outcome.buckets) {
      auto& names = result.buckets.emplace_back();
      for (const auto& agreed : bucket) {
        names.push_back(agreed.spec->name);
        if (agreed.ticket == 0) result.zeros.push_back(agreed.spec->name);
      }
    }
    for (const auto& failed : outcome.failed) {
      result.failed.push_back(std::string(name(failed.error.kind)) + " " + failed.error.text);
    }
    if (outcome.all_joined) result.all_joined = *outcome.all_joined;
    if (outcome.departed) result.departed = outcome.departed->text;
    result.all_left = result.all_left || outcome.all_left;
  }

  std::vector<std::unique_ptr<Negotiator>> ranks_;
  std::vector<const Negotiator*> standing_;
  Negotiator::Ticket next_ticket_ = 1;
};

}  // namespace farandole::testing
