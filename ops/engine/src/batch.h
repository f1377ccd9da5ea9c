// SPDX-License-Identifier: Apache-2.0
// Batches: requests that all ranks have agreed to do now, while their data moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "local_request.h"
#include "timeline.h"

namespace farandole {

/// Fusion buffers that are used again. One thread at a time.
class FusionBuffers {
 public:
  explicit FusionBuffers(Communicator communicator) : communicator_(std::move(communicator)) {}
  /// At least `bytes` bytes in a window, with what was left in it.
  Buffer take(std::size_t bytes);
  void give_back(Buffer buffer);

 private:
  Communicator communicator_;
  std::vector<Buffer> free_;
};

struct BatchCounters {
  std::uint64_t collectives = 0, packed_tensors = 0, packed_bytes = 0, reduced_bytes = 0;
};

/// What batches of one process set share.
struct BatchContext {
  Communicator communicator;
  FusionBuffers buffers;
  std::size_t fusion_bytes = 0, min_unfused_bytes = 0;
  BatchCounters counters;
  std::vector<std::shared_ptr<OutputMemory>> asked_memory;  ///< since it was last taken
  Timeline& timeline;
};

/// One request of a batch: what all ranks agreed on, and this rank's part; null if it has joined.
struct BatchEntry {
  SharedSpec spec;
  std::unique_ptr<LocalRequest> local;
};

/// All ranks of a set start the collectives of their batches in the same order: a batch may start its own only when
/// those before it have started all of theirs.
class Batch {
 public:
  virtual ~Batch() = default;
  /// Starts the collectives that can be started now. True once all have been. @throws Error
  virtual bool start() = 0;
  /// Delivers what has arrived. True once that is everything. @throws Error
  virtual bool finish(std::vector<Completion>& completions) = 0;
  /// Delivers this error for what has not arrived.
  virtual void fail(const RequestError& error, std::vector<Completion>& completions) = 0;
};

/// The row of a request in the timeline says this while its data moves: "ALLREDUCE".
std::string activity_of(const RequestSpec& spec);
/// This, while the collective runs: "FARANDOLE_ALLREDUCE".
std::string collective_activity_of(const RequestSpec& spec);

/// Allreduces with one operation and scale, or broadcasts from one root: outputs have the shape of inputs. Small
/// tensors travel together in fusion buffers; large ones are not copied.
std::unique_ptr<Batch> make_same_shape_batch(BatchContext& context, std::vector<BatchEntry> entries);
/// Allgather, alltoall, reduce_scatter: ranks exchange the lengths first, then the outputs' memory is asked for.
std::unique_ptr<Batch> make_new_shape_batch(BatchContext& context, BatchEntry entry);
/// Adaptive summation: vectors that point the same way are averaged, orthogonal ones added, pairwise in a balanced
/// binary tree over the ranks, in double. Every rank gathers all vectors: P*N bytes of memory.
/// Source: Maleki et al., "Scaling Distributed Training with Adaptive Summation", MLSys 2021.
std::unique_ptr<Batch> make_adasum_batch(BatchContext& context, BatchEntry entry);

/// The rows of `rows` that rank `rank` of `size` gets in a reduce_scatter.
std::int64_t rows_of(std::int64_t rows, int rank, int size);

/// vectors[0] = adaptive sum of all of them; `count` elements each; the others are overwritten.
void adaptive_sum(const std::vector<void*>& vectors, std::size_t count, DType dtype);

}  // namespace farandole
