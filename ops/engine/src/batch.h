// SPDX-License-Identifier: Apache-2.0
// Batches: requests that all ranks have agreed to run now, and the collectives that move their data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bucket_planner.h"
#include "engine_device.h"
#include "farandole/collectives/communicator.h"
#include "fusion_buffers.h"
#include "local_request.h"
#include "timeline.h"

namespace farandole {

/// Counts of a set's batches; see farandole_counters.
struct BatchCounters {
  std::uint64_t collectives = 0, packed_tensors = 0, packed_bytes = 0, reduced_bytes = 0;
};

/// State shared by the batches of a process set.
struct BatchContext {
  Communicator communicator;
  FusionBuffers buffers;
  DeviceLane device;
  BucketPlanner::Limits limits;
  BatchCounters counters;
  /// Outputs that the framework must still allocate. SetEngine takes them from here, and the driver (the thread that
  /// drives the engine) calls the allocation callback.
  std::vector<std::shared_ptr<OutputMemory>> requested_memory;
  Timeline& timeline;
  /// True if batches that are made now enqueue their collectives directly on the device, see DeviceLane.
  bool is_direct = false;
};

/// A request of a batch: the description that all ranks agreed on, and this rank's part.
struct BatchEntry {
  SharedSpec spec;
  std::unique_ptr<LocalRequest> local;  ///< null: this rank has joined, and contributes neutral values
};

/// The collectives of agreed requests. A communicator requires that all ranks start its collectives in the same order;
/// therefore a batch starts only after every earlier batch has started all its collectives. Several batches may be in
/// flight at the same time; they finish in order.
class Batch {
 public:
  virtual ~Batch() = default;
  /// Starts the collectives that can start now. Returns true once all collectives of the batch have started.
  /// Non-blocking. @throws Error
  virtual bool start() = 0;
  /// Appends the completions of tensors that have become done to `completions`. Returns true once all tensors of the
  /// batch are done. Non-blocking. @throws Error
  virtual bool finish(std::vector<Completion>& completions) = 0;
  /// Appends a completion with this error for each tensor that is not done.
  virtual void fail(const RequestError& error, std::vector<Completion>& completions) = 0;
};

/// Label of the whole batch phase of a request in the timeline, packing and waiting included: "ALLREDUCE".
std::string activity_of(const RequestSpec& spec);
/// Label of the collective alone, nested in the span of `activity_of`: "FARANDOLE_ALLREDUCE".
std::string collective_activity_of(const RequestSpec& spec);

/// Batch of allreduces with the same operation and factors, or of a broadcast: outputs have the shape of inputs. Small
/// tensors (BucketPlanner::Limits) are packed into fusion buffers; larger tensors move directly between the caller's
/// input and output.
std::unique_ptr<Batch> make_same_shape_batch(BatchContext& context, std::vector<BatchEntry> entries);
/// Batch of an allgather, alltoall or reduce_scatter: the ranks exchange their numbers of rows, the caller allocates
/// the outputs, then the data moves.
std::unique_ptr<Batch> make_new_shape_batch(BatchContext& context, BatchEntry entry);
/// Batch of an Adasum allreduce. Adaptive summation averages parallel vectors and adds orthogonal vectors. Every rank
/// gathers the vectors of all P ranks (P*N bytes of memory for N bytes of tensors), and combines them pairwise in a
/// balanced binary tree, with arithmetic in double. Tensors in device memory are copied to the host and back.
/// Source: Maleki et al., "Scaling Distributed Training with Adaptive Summation", MLSys 2021.
std::unique_ptr<Batch> make_adasum_batch(BatchContext& context, BatchEntry entry);

/// Number of rows that rank `rank` of `size` ranks gets when a reduce_scatter divides `rows` rows.
std::int64_t rows_of(std::int64_t rows, int rank, int size);

/// Stores the adaptive sum of all vectors, of `count` elements each, in vectors[0]; overwrites the other vectors.
void adaptive_sum(const std::vector<void*>& vectors, std::size_t count, DType dtype);

}  // namespace farandole
