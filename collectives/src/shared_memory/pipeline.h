// SPDX-License-Identifier: Apache-2.0
// Pipelines: collectives in shared memory on long vectors, slice by slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "operation/call.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "shared_memory/arrival.h"
#include "shared_memory/shm_group.h"
#include "shared_memory/shm_plan.h"
#include "shared_memory/slices.h"

namespace farandole {

/// One rank's side of a pipelined collective, from before the arrival until no peer uses this rank's memory any more. A
/// step is one stage on one slice. ShmPlan defines the stages and the order of steps, the same on all ranks; Pipeline
/// carries out this rank's steps.
///
/// Protocol, for an allreduce among P ranks. The vector has one chunk per rank, and a chunk's owner reduces it: a
/// reduce_scatter followed by an allgather, in slices so short that they stay in the caches.
/// 1. copy-in: a rank copies the slice of every other rank's chunk from the input to the input slots.
/// 2. reduce: a rank reads the slice of its own chunk from the input and from the other ranks' input slots, reduces,
///    and writes the result to the output and to the result slot.
/// 3. copy-out: a rank copies the slice of every other chunk from the owner's result slot to the output.
///
/// While slice t is copied in, slice t-1 is reduced and slice t-2 copied out. If ranks can reach each other's buffers
/// (PeerBuffers), owners read their peers' inputs, or write their peers' outputs, in place, and the plan omits the
/// copying stage. The other collectives use the same three stages, see ShmPlan.
///
/// Each rank publishes the number of steps that it has taken. A step waits for the peers' steps that write this step's
/// sources, and for the peers' steps that read the memory that this step overwrites. There is one synchronisation per
/// slice and stage, and one at the end if peers use this rank's buffers.
///
/// Memory:
/// - Input slots: the owner writes them in copy-in, the peers read them in reduce.
/// - Result slots: the owner writes them in reduce, the peers read them in copy-out.
/// - Exchange slots replace both if there are two ranks: the slot's owner writes the input (copy-in), the peer reads
///   the input and overwrites the slot with the result (reduce), and the owner reads the result (copy-out).
/// - Buffers that peers can reach: between the owner's arrival and the last step of all ranks, peers read inputs and
///   write outputs, each peer only its own chunk.
///
/// Atomics: a rank publishes each step (StepCounter, release); a peer reads the counter (acquire) before reading data
/// that the step has written, or overwriting data that the step has read. A rank stores `touching` before it reads the
/// job's fault; a rank that gives up stores the fault before it reads `touching`. These accesses are sequentially
/// consistent, so at least one of the two ranks sees the other's store.
class Pipeline {
 public:
  /// @param prepared, arrival, offsets  belong to the same operation, and outlive this object
  /// @param offsets  the start of each rank's part in the whole vector, and the end; empty if the vector may be cut
  /// anywhere
  Pipeline(const Group& group, ShmGroup& shm, Arrival& arrival, const PreparedCall& prepared,
           std::span<const std::size_t> offsets);

  /// True if peers may read the input in place wherever they can reach it.
  bool shares_input() const { return !scales_input_ && !is_exchange_in_place(); }
  /// Takes the first step early, in a reduction whose input peers cannot reach. Call before this rank arrives.
  void take_first_step();
  /// Makes the plan from all ranks' arrival records. Call after all ranks have arrived.
  void begin();
  /// Takes the next step if the peers are ready for it. kDone once no peer uses this rank's memory any more.
  Operation::State advance();
  /// Local rank whose step this rank waits for.
  int waits_for() const { return awaited_; }

 private:
  bool is_exchange_in_place() const;
  std::size_t largest_chunk() const;
  ShmFacts facts(std::size_t largest_chunk) const;

  bool is_ready(const ShmPlan::Step& step);
  bool all_reached(std::uint64_t steps, int source);

  // Each function that returns bool returns false if the step must be tried again.
  bool run(const ShmPlan::Step& step);
  bool run_stage(const ShmPlan::Step& step);
  void copy_in(std::size_t slice);
  void reduce_slice(std::size_t slice);
  void reduce_block(Extent at, std::size_t slice, std::size_t done);
  void publish(std::size_t slice);
  bool receive_parts(std::size_t slice);
  bool copy_out(std::size_t slice);
  bool copy_from_peer(int local, std::size_t element, std::byte* to, std::size_t bytes) const;
  bool writes_results_past_caches() const;
  std::byte* second_target(Extent at) const;
  void distribute_result(const std::byte* result, const std::byte* also, Extent at) const;
  void copy_to_output(std::byte* to, const std::byte* from, std::size_t bytes, const void* next = nullptr) const;

  const std::byte* input(std::size_t element) const { return input_ + slices_.bytes(element); }
  std::byte* output(std::size_t element) const { return output_ + slices_.bytes(element); }
  std::byte* peer_input(int local, std::size_t element) const {
    return shm_.buffers().resolve(local, arrival_.input_of(local)) + slices_.bytes(element);
  }
  std::byte* result_at(int local, std::size_t element) const;
  std::byte* staged_chunk(int from, int owner, std::size_t slice) const;
  std::byte* staged_result(int owner, int reader, std::size_t slice) const;

  const Group& group_;
  ShmGroup& shm_;
  Arrival& arrival_;
  const Call& call_;
  Slices slices_;
  ShmPlan plan_;
  ShmPlan::Step step_;  // the next step
  std::uint64_t steps_taken_ = 0;
  int awaited_ = 0;                   // local rank that this rank waited for last
  const bool scales_input_;           // copy-in scales the input
  bool non_temporal_ = false;         // write the output by non-temporal stores
  bool uses_exchange_slots_ = false;  // instead of input and result slots
  Scratch input_copy_;                // set if the output may overwrite unread input
  const std::byte* input_;
  std::byte* const output_;
};

}  // namespace farandole
