// SPDX-License-Identifier: Apache-2.0
// Checks of an averager's arguments, on this rank and among the ranks.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "farandole/collectives/agreement.h"
#include "farandole/collectives/communicator.h"
#include "farandole/gradients/gradient_averager.h"

namespace farandole {

/// @throws InvalidArgument  options that do not fit each other or the gradients; gradients that are not all in host
/// memory, or all in the memory of this rank's device
void check_gradients(Communicator& communicator, const std::vector<GradientSpan>& gradients,
                     const GradientOptions& options);

/// Returns the properties on which all ranks must agree: sizes, types and kinds of memory, ties, options.
/// @param tied  result of `find_tied`   @param options  with bucket sizes other than 0
std::vector<SharedFact> shared_facts(const std::vector<GradientSpan>& gradients, const std::vector<std::size_t>& tied,
                                     const GradientOptions& options);

/// Throws on every rank if any rank refuses its arguments. Collective: a rank that refuses takes part, so that no peer
/// waits for that rank. Blocks.
/// @param refusal  why this rank refuses; empty if it does not
/// @throws InvalidArgument  this rank refuses   @throws Mismatch  another rank refuses; names the lowest such rank and
/// its reason
void throw_if_refused(Communicator& communicator, const std::string& refusal);

/// Text of the InvalidArgument about gradients that were not marked; names at most eight of them.
/// @param unmarked  their indices, at least one
std::string unmarked_error(const std::vector<GradientSpan>& gradients, const std::vector<std::size_t>& unmarked);

}  // namespace farandole
