// SPDX-License-Identifier: Apache-2.0
// How the bytes and the announcements of a negotiation travel between the ranks of a process set.
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

/// One negotiation at a time: an allreduce (minimum) of the ranks' bytes; where some rank has announcements, then an
/// allgather of how long they are, and one of themselves. Every rank takes part in as many of each, in the same order,
/// because what comes next follows from what all ranks have received.
///
/// Used by one thread at a time. Nothing blocks but the constructor. All members belong to the negotiation that is
/// under way; the buffers of `running_` stay untouched until it is done.
class NegotiationExchange {
 public:
  /// Collective over the set. The ranks meet on `data`, and then begin to use `control`: from then on each sees that a
  /// peer has begun a negotiation.
  /// @param control  with SetEngine::kControl, of the ranks of `data`
  NegotiationExchange(Communicator control, Communicator& data);

  bool is_idle() const { return phase_ == Phase::kIdle; }
  /// True if another rank has begun a negotiation that this one has not.
  bool peer_has_begun() { return internals(control_).peer_has_started_next(); }
  /// @param bytes  what the negotiator has opened the negotiation with; only while `is_idle`
  void begin(std::span<const std::uint8_t> bytes, Clock::time_point now);
  /// Gives the negotiator what has come from all ranks. @returns  what that has brought; nothing if nothing has come
  /// @throws Error  the job is at fault
  std::optional<Negotiator::Outcome> advance(Negotiator& negotiator, Clock::time_point now);
  /// The job is at fault. Blocks until no peer uses the buffers any more, which is soon.
  void give_up();

  /// When the negotiation that is under way began.
  std::optional<Clock::time_point> since() const { return is_idle() ? std::nullopt : std::optional(since_); }
  /// The ranks that it waits for, as far as is known; empty if there are none.
  std::string describe_missing() { return is_idle() ? std::string() : internals(control_).describe_missing(); }

 private:
  enum class Phase { kIdle, kBytes, kLengths, kAnnouncements };
  void gather_lengths(const std::string& announcements);
  void gather_announcements();
  std::vector<std::string> gathered() const;

  Communicator control_;
  const std::string algorithm_;  // of the allreduce
  Phase phase_ = Phase::kIdle;
  Clock::time_point since_{};
  std::vector<std::uint8_t> bytes_;
  std::string own_, all_;                              // announcements
  std::vector<std::int64_t> own_length_{0}, lengths_;  // in bytes; of each rank's
  std::vector<std::size_t> counts_;                    // the same, once they have been found possible
  Work running_;                                       // after its buffers
};

}  // namespace farandole
