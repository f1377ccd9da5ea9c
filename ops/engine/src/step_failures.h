// SPDX-License-Identifier: Apache-2.0
// Failure of steps: groups of requests that fail together, on all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "request.h"

namespace farandole {

/// A request may belong to a *step* of the program, for example a tf.function. When ranks disagree about one request of
/// a step, the step fails on every rank: pending requests of the step fail in the same negotiation on all ranks, and
/// later requests of the step are refused. Otherwise a request could stay pending on one rank although its peers gave
/// up the step before they reached that request, and would be matched with a request of their next step.
///
/// The *generation* is the number of steps that have failed on all ranks, plus 1. The generation in which a step began
/// distinguishes its requests from the requests of later steps.
///
/// Invariants:
/// - All ranks have the same generation between negotiations. The generation grows by one at the end of a negotiation
///   in which a step fails, however many disagreements there are; the first disagreement gives the text.
/// - All pending requests in steps belong to the current generation, so generations need not be announced: requests of
///   older generations have failed with their step, or are refused by `refuse`.
/// - No rank learns of a failure before the negotiation ends; otherwise that rank could begin the next step in the old
///   generation.
class StepFailures {
 public:
  using Generation = std::uint64_t;
  static constexpr Generation kNoStep = 0, kFirstGeneration = 1;

  Generation generation() const { return generation_; }
  /// Returns the error of a new request whose step has failed already; nothing if the request is acceptable.
  /// @param generation  generation in which the request's step began, or kNoStep
  std::optional<RequestError> refusal_of(const std::string& name, Generation generation) const;
  /// Makes the error of a request that fails with its step.
  RequestError error(const std::string& name) const;

  /// Makes the current step fail at the end of this negotiation. All ranks call it in the same negotiation. The text of
  /// the first call counts.
  void fail(const std::string& text);
  /// Keeps the failures of phase 1 of a negotiation until phase 2 ends (see the third invariant), when `take_withheld`
  /// returns them.
  void withhold(std::vector<FailedRequest> failed) { withheld_ = std::move(failed); }
  std::vector<FailedRequest> take_withheld() { return std::exchange(withheld_, {}); }
  /// Ends the negotiation. Returns true if the step fails: the caller then fails all pending requests in steps.
  bool end_negotiation();
  /// Drops the failures of the current negotiation. Call it when all pending requests fail, so the negotiation does not
  /// end.
  void give_up();

 private:
  friend class NegotiatorProbe;  // tests check that all ranks have the same state

  Generation generation_ = kFirstGeneration;
  std::string text_;    // error text of the last step that failed, or of the step that fails now
  bool fails_ = false;  // the step fails in this negotiation
  std::vector<FailedRequest> withheld_;
};

}  // namespace farandole
