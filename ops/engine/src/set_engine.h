// SPDX-License-Identifier: Apache-2.0
// One process set of one rank: rounds of agreement, and the flights that come out of them.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "flight.h"
#include "local_request.h"
#include "negotiator.h"

namespace farandole {

/// Called by one thread at a time. Nothing blocks but the constructor, which is collective over the set.
class SetEngine {
 public:
  using JoinCallback = void (*)(void*, const farandole_error*, std::int32_t);
  struct Joined {
    void* context = nullptr;
    JoinCallback done = nullptr;
    std::optional<RequestError> error;
    int last_rank = -1;  ///< of the job
  };

  /// Of the two communicators of a set. The engine's thread moves both on. A rank answers a round because it hears that
  /// another rank has begun it, and the engine knows what it waits for there.
  static constexpr CommunicatorOptions kControl{
      .progress = CommunicatorOptions::Progress::kInCalls, .compare = true, .watch = false};
  static constexpr CommunicatorOptions kData{.progress = CommunicatorOptions::Progress::kInCalls};

  /// @param ranks  of the job, ascending   @param control, data  communicators of them with `kControl` and `kData`
  /// @param timeline  outlives this
  SetEngine(std::vector<int> ranks, Communicator control, const Communicator& data, Timeline& timeline);

  void submit(std::unique_ptr<LocalRequest> request, Clock::time_point now);
  /// Ends a request of any set that was not submitted.
  void refuse(LocalRequest& request, const RequestError& error) { finish(request, error); }
  void join(void* context, JoinCallback done);
  void leave(Departure departure);
  /// Somebody waits for a request of this name, be it for another one that comes after it.
  void wait_for(const std::string& name, Waiting waiting) { negotiator_.wait_for(name, waiting); }
  /// This rank stands still: says so to the others.
  void say_standstill() { negotiator_.say_standstill(); }
  /// All ranks have left, and what they had agreed on before is done.
  bool has_left() const { return all_left_ && flights_.empty(); }
  /// The job is at fault: what is pending here gets this error; rounds and flights are given up.
  void fail(const RequestError& error);

  /// Moves on without blocking; true if something happened. @throws Error  the job is at fault
  bool advance(bool blocked, Clock::time_point now);
  /// True if there is something to wait for: other ranks, or data.
  bool is_active() const;
  /// When it wants to be advanced even if nothing happens.
  Clock::time_point wish() const;

  const std::vector<int>& ranks() const { return ranks_; }
  Communicator& control() { return control_; }
  /// True if data is on its way.
  bool is_flying() const { return !flights_.empty(); }
  const Negotiator& negotiator() const { return negotiator_; }
  /// When the oldest that waits for other ranks began: a request of this rank, or a round.
  std::optional<Clock::time_point> waits_since() const;
  /// What is pending here, and which ranks it waits for, as far as is known.
  std::string describe_waiting();
  void add_counters(farandole_counters& sum) const;

  // What has come out since they were last taken.
  std::vector<Completion> completions;
  std::vector<Joined> joined;
  std::vector<std::shared_ptr<OutputMemory>> take_asked_memory() { return std::exchange(context_.asked_memory, {}); }
  std::vector<FlightEntry> set_changes;  ///< requests to add or remove process sets, agreed on by all ranks

 private:
  enum class Phase { kIdle, kBits, kLengths, kNews };
  bool advance_round(bool blocked, Clock::time_point now);
  bool advance_flights();
  void begin_news();
  void begin_news_exchange();
  std::vector<std::string> gathered_news() const;
  void apply(const Negotiator::Outcome& outcome);
  void run(const std::vector<Negotiator::Agreed>& bucket);
  void finish_joins(const std::optional<RequestError>& error, int last_rank);
  std::unique_ptr<LocalRequest> take(Negotiator::Ticket ticket);
  void finish(LocalRequest& request, const std::optional<RequestError>& error);

  const std::vector<int> ranks_;
  Communicator control_;
  const std::string algorithm_;  // of rounds
  FlightContext context_;
  Negotiator negotiator_;
  std::unordered_map<Negotiator::Ticket, std::unique_ptr<LocalRequest>> local_;
  std::vector<Joined> waiting_joins_;
  std::deque<std::unique_ptr<Flight>> flights_;
  std::size_t started_ = 0;  // flights whose collectives have all been started
  bool all_left_ = false;
  Phase phase_ = Phase::kIdle;
  Clock::time_point round_since_{};
  std::vector<std::uint8_t> bits_;
  std::string news_;
  std::vector<std::int64_t> news_bytes_{0}, all_news_bytes_;
  std::vector<std::size_t> news_counts_;
  std::string all_news_;
  Work round_;
};

}  // namespace farandole
