// SPDX-License-Identifier: Apache-2.0
// Mutates valid inputs into slightly damaged inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace farandole::fuzz {

using Corpus = std::vector<std::string>;

/// Changes valid inputs. The same seed gives the same inputs on every machine.
class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  /// A number below `limit`, which is not 0.
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(random_() % limit); }
  bool one_in(std::size_t times) { return below(times) == 0; }
  const std::string& any_of(const Corpus& corpus) { return corpus[below(corpus.size())]; }

  /// One of the corpus with up to four changes of its bytes: bits, lengths, numbers, order; now and then none.
  std::string bytes(const Corpus& corpus);
  /// One of a corpus of JSON texts with up to three changes of what it says: other values, members that come and go,
  /// numbers out of range, nesting, names that are long; or of its bytes.
  std::string json(const Corpus& corpus);

 private:
  void change_bytes(std::string& input, const Corpus& corpus);
  void change_json(std::string& text);

  std::mt19937_64 random_;
};

}  // namespace farandole::fuzz
