// SPDX-License-Identifier: Apache-2.0
// Errors that all ranks raise together, so that none of them waits for another that has given up.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Base of errors that every rank of a communicator has raised at the same point; the communicator stays usable.
/// Caught beside the error's own class: `catch (const RaisedByAll& error)`.
class RaisedByAll {
 public:
  explicit RaisedByAll(int origin) : origin_(origin) {}
  virtual ~RaisedByAll() = default;
  /// The rank where it happened, which has the full text. The others' text starts with "rank N reports: ".
  int origin() const { return origin_; }

 private:
  int origin_;
};

/// Runs `action`, then asks all ranks how it went. If it threw on any of them, every rank throws an error of that kind:
/// the first such rank its own text, the others the same text with that rank's number. Other exceptions become
/// DataError (std::filesystem's and std::bad_alloc) or Internal. Errors that poison the job pass through at once.
/// Collective; blocks.
void agree(Communicator& communicator, const std::function<void()>& action);

/// Something that must be the same on all ranks, as text for people.
struct SharedFact {
  std::string what;         ///< "--seed", "the number of samples of the training data"
  std::string value;        ///< "1"
  std::string advice = {};  ///< what to do if it differs; empty: "every rank must be given the same"
};

/// Compares what the ranks have, by exact text. Of several that differ, the first one of the lowest rank that differs
/// from rank 0 is named with both values, the others without.
/// Collective; blocks. Cost: a broadcast of all texts, and an allreduce of 8 bytes.
/// @throws Mismatch  on all ranks
void require_same(Communicator& communicator, const std::vector<SharedFact>& facts);

/// Throws an error that all ranks raise by themselves, since all of them see what is wrong (rank 0 is the origin).
[[noreturn]] void raise_on_all(ErrorKind kind, const std::string& text);

}  // namespace trainer
}  // namespace FARANDOLE_API
