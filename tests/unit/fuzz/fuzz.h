// SPDX-License-Identifier: Apache-2.0
// Runs a parser on slightly damaged inputs: the parser must accept each input or throw an Error of this library.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "mutator.h"

namespace farandole::fuzz {

/// A parser under test.
struct Target {
  /// Share of a run's inputs, in percent.
  std::size_t share = 0;
  Corpus corpus;
  /// The next input.
  std::function<std::string(Mutator&, const Corpus&)> mutate;
  /// Parses it and looks at every part of what came of it.
  /// @throws Error  the input is refused. Nothing else may be thrown.
  std::function<void(const std::string& input)> parse;
  /// Memory for buffers of a fixed size, which the parser may hold in addition to its multiple of the input's size.
  std::size_t fixed_bytes = 2 << 20;
};

/// FARANDOLE_FUZZ_INPUTS (100,000) for the number of which each parser runs its share, FARANDOLE_SEED for the same
/// again. Fails with the seed and the input, unless every input of the corpus is understood, and of the changed ones
/// some are and some are not.
void run(const Target& target);

}  // namespace farandole::fuzz
