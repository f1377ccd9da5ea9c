// SPDX-License-Identifier: Apache-2.0
// The families of algorithms. A family is one file: its phases, its collectives, their costs, and their rows of the
// table that `algorithms()` returns.
#pragma once

#include <span>

#include "farandole/collectives/algorithms.h"

namespace farandole {

/// Returns the rows of one family. Called once, when the table is first used.
using Family = std::span<const Algorithm>();

Family ring_family;
Family binomial_family;
Family double_tree_family;
Family recursive_doubling_family;
Family halving_doubling_family;
Family circulant_family;
Family two_phase_family;
Family linear_family;
Family pairwise_family;
Family dissemination_family;

/// All families. The table is sorted by collective; within a collective it keeps this order. Users see the order in
/// lists and error messages. If the cost model predicts the same time for two algorithms, selection takes the first.
inline constexpr Family* kFamilies[] = {
    ring_family,      binomial_family,  double_tree_family, recursive_doubling_family, halving_doubling_family,
    circulant_family, two_phase_family, linear_family,      pairwise_family,           dissemination_family,
};

}  // namespace farandole
