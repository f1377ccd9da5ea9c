// SPDX-License-Identifier: Apache-2.0
// Steps of the program that fail as a whole, on all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "request.h"

namespace farandole {

/// A request may belong to a *step* of the program, which fails as a whole on every rank when ranks disagree about one
/// of its requests. What else of the step is pending fails in the same negotiation on all ranks, and what is submitted
/// of it later is refused: the rank that submits it could wait for ranks whose step has ended before they came to it,
/// and would take what they submit in a later step for it. The *generation* in which a step began tells it from other
/// steps: the number of such failures that all ranks have received.
///
/// Invariants:
/// - All ranks have the same generation between negotiations. It grows by one at the end of a negotiation in which a
///   step fails, whatever the number of disagreements in it; the first of them gives the text.
/// - All that is pending in steps is of the current generation, which therefore need not be announced: what is older
///   was ended with its step, or is refused here.
/// - No rank learns of a failure before the negotiation ends: it could begin the next step in the old generation.
class StepFailures {
 public:
  using Generation = std::uint64_t;
  static constexpr Generation kNoStep = 0, kFirstGeneration = 1;

  Generation generation() const { return generation_; }
  /// @param generation  in which the step of a new request began, or kNoStep   @returns  why it is refused, if it is
  std::optional<RequestError> refuse(const std::string& name, Generation generation) const;
  /// Of what fails because its step does.
  RequestError error(const std::string& name) const;

  /// The step that is under way on all ranks fails at the end of this negotiation.
  void fail(const std::string& text);
  /// What has failed by the bytes of a negotiation that goes on with announcements waits for its end.
  void withhold(std::vector<FailedRequest> failed) { withheld_ = std::move(failed); }
  std::vector<FailedRequest> take_withheld() { return std::exchange(withheld_, {}); }
  /// The negotiation ends. @returns  true if a step fails in it: all that is pending in steps is of that one
  bool end_negotiation();
  /// The negotiation is given up.
  void give_up();

 private:
  friend class NegotiatorProbe;  // tests compare all ranks

  Generation generation_ = kFirstGeneration;
  std::string text_;    // of the last step that failed, or of the one that fails
  bool fails_ = false;  // in this negotiation
  std::vector<FailedRequest> withheld_;
};

}  // namespace farandole
