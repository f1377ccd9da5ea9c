// SPDX-License-Identifier: Apache-2.0
// Agreement on errors: if a rank fails, all ranks throw at the same point, so that no rank waits for a rank that has
// given up.
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
  /// The rank on which the error happened, and where the text is complete. On other ranks the text starts with "rank N
  /// reports: ".
  int origin() const { return origin_; }

 private:
  int origin_;
};

/// Runs `action` on each rank, then compares the results. Use `agree` around anything that may fail on a single rank,
/// for example reading files:
///
///     agree(communicator, [&] { data = load_fashion_mnist(); });
///
/// If `action` threw on any rank, every rank throws an error of the same kind: the lowest such rank with its own text,
/// the other ranks with that text and that rank's number. std::filesystem's exceptions and std::bad_alloc become
/// DataError, other foreign exceptions InternalError. An error of a kind that poisons the job passes through without
/// the comparison and poisons the job, so that every other rank raises the error, too. Collective; blocks. Cost: an
/// allreduce of 8 bytes, and after a failure a broadcast of the text.
void agree(Communicator& communicator, const std::function<void()>& action);

/// Returns the lowest rank on which `holds` is true; the communicator's size if there is none. Collective; blocks.
/// Cost: an allreduce of 8 bytes.
int lowest_rank_where(Communicator& communicator, bool holds);

/// A property that must be the same on all ranks, as text for people.
struct SharedFact {
  std::string what;         ///< the property: "--seed", "the number of samples of the training data"
  std::string value;        ///< this rank's value: "1"
  std::string advice = {};  ///< remedy for a difference; empty: "every rank must be given the same"
};

/// Compares properties across ranks, by exact text. The error names the first difference of the lowest rank that
/// differs from rank 0, with both values, and lists up to eight other differences without values.
/// Collective; blocks. Cost: a broadcast of all texts, and an allreduce of 8 bytes.
/// @throws Mismatch  on all ranks
void require_same(Communicator& communicator, const std::vector<SharedFact>& facts);

/// Throws an error that every rank finds by itself, without communication (rank 0 is the origin).
[[noreturn]] void raise_on_all(ErrorKind kind, const std::string& text);

}  // namespace FARANDOLE_API
