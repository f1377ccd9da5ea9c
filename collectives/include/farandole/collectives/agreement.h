// SPDX-License-Identifier: Apache-2.0
// Agreement on errors: if one rank fails, all ranks throw at the same point, so no rank waits for the failed rank.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// Second base class of errors that every rank of a communicator throws at the same point; the communicator stays
/// usable. Catch it beside the error's own class: `catch (const RaisedByAll& error)`.
class RaisedByAll {
 public:
  explicit RaisedByAll(int origin) : origin_(origin) {}
  virtual ~RaisedByAll() = default;
  /// Rank on which the error happened. That rank's text is the original; on the other ranks the text starts with "rank
  /// N reports: ".
  int origin() const { return origin_; }

 private:
  int origin_;
};

/// Runs `action` on each rank, then compares the results. Use `agree` around work that may fail on a single rank, for
/// example reading files:
///
///     agree(communicator, [&] { data = load_fashion_mnist(); });
///
/// If `action` threw on any rank, every rank throws an error of the same kind. The text is from the lowest rank whose
/// `action` threw; the other ranks throw it with "rank N reports: " in front. std::filesystem::filesystem_error and
/// std::bad_alloc become DataError, all other foreign exceptions InternalError. An error of a kind that poisons the job
/// is rethrown without the comparison, and poisons the job, so every other rank raises it, too. Collective; blocks.
/// Cost: an allreduce of 8 bytes, and after a failure a broadcast of the text.
void agree(Communicator& communicator, const std::function<void()>& action);

/// Returns the lowest rank that passes `holds` = true; the communicator's size if no rank does. Collective; blocks.
/// Cost: an allreduce of 8 bytes.
int lowest_rank_where(Communicator& communicator, bool holds);

/// A property that must be the same on all ranks, as text for people.
struct SharedFact {
  std::string what;         ///< the property: "--seed", "the number of samples of the training data"
  std::string value;        ///< this rank's value: "1"
  std::string advice = {};  ///< remedy for a difference; empty: "every rank must be given the same"
};

/// Compares properties of all ranks with rank 0's, by exact text. The error describes the lowest rank that differs from
/// rank 0: the first property that differs with both values, then up to eight more properties by name only. Collective;
/// blocks. Cost: a broadcast of all texts, and an allreduce of 8 bytes.
/// @throws Mismatch  on all ranks
void require_same(Communicator& communicator, const std::vector<SharedFact>& facts);

/// Throws an error that every rank has detected by itself. No communication: call this function on every rank. The
/// error's origin is rank 0.
[[noreturn]] void raise_on_all(ErrorKind kind, const std::string& text);

}  // namespace FARANDOLE_API
