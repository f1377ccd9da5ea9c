// SPDX-License-Identifier: Apache-2.0
// Carries the bytes and announcements of negotiations between the ranks of a process set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/deadline.h"
#include "negotiator.h"

namespace farandole {

/// Runs one negotiation at a time, by collectives on the control communicator. First comes an allreduce (minimum) of
/// the ranks' bytes. If some rank has announcements, an allgather of the announcements' lengths and an allgather of the
/// announcements follow. All ranks start the same collectives in the same order, because only data that all ranks have
/// received determines the next collective.
///
/// Non-blocking, except the constructor and `give_up`. Not thread-safe. All members belong to the negotiation in
/// flight; the buffers of the collective `running_` must not change until the collective is done.
class NegotiationExchange {
 public:
  /// Collective over the set; blocks. The ranks synchronise on `data`, and then run the first collective on `control`,
  /// which `peer_has_begun` needs.
  /// @param control  communicator of the ranks of `data`, with the options SetEngine::kControl
  NegotiationExchange(Communicator control, Communicator& data);

  bool is_idle() const { return phase_ == Phase::kIdle; }
  /// True if a peer has begun a negotiation that this rank has not.
  bool peer_has_begun() { return internals(control_).peer_has_started_next(); }
  /// Begins or answers a negotiation. Call it only while `is_idle`. @param bytes  result of Negotiator::open
  void begin(std::span<const std::uint8_t> bytes, Clock::time_point now);
  /// Advances the negotiation, and passes the data of a phase that has ended to `negotiator`. @returns  the outcome;
  /// nothing if no phase has ended
  /// @throws Error  the job is at fault
  std::optional<Negotiator::Outcome> advance(Negotiator& negotiator, Clock::time_point now);
  /// Drops the negotiation after a fault of the job. Blocks, for a short time, until no peer uses the buffers.
  void give_up();

  /// Time at which this rank began the negotiation in flight.
  std::optional<Clock::time_point> since() const { return is_idle() ? std::nullopt : std::optional(since_); }
  /// Describes the ranks for which the negotiation waits, as far as known; empty if there are none.
  std::string describe_missing() { return is_idle() ? std::string() : internals(control_).describe_missing(); }

 private:
  enum class Phase { kIdle, kBytes, kLengths, kAnnouncements };
  // Start the second and the third collective.
  void gather_lengths(const std::string& announcements);
  void gather_announcements();
  /// Cuts `all_` into each rank's announcements.
  std::vector<std::string> gathered() const;

  Communicator control_;
  const std::string algorithm_;  // algorithm of the allreduce
  Phase phase_ = Phase::kIdle;
  Clock::time_point since_{};
  std::vector<std::uint8_t> bytes_;
  // Encoded announcements: of this rank, and of all ranks in order of rank.
  std::string own_, all_;
  // Lengths of the announcements in bytes: of this rank, and of each rank as received.
  std::vector<std::int64_t> own_length_{0}, lengths_;
  std::vector<std::size_t> counts_;  // checked copy of lengths_
  Work running_;                     // declared after the buffers, so that it is destroyed first
};

}  // namespace farandole
