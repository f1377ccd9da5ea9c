// SPDX-License-Identifier: Apache-2.0
// Collectives on longer vectors: slices that pass through stages, which a plan orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "operation/call.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "operation/scratch.h"
#include "shared_memory/arrival.h"
#include "shared_memory/shm_group.h"
#include "shared_memory/shm_plan.h"
#include "shared_memory/slices.h"

namespace farandole {

/// One rank's side of a collective in slices, from before its arrival until no peer uses its memory any more. All ranks
/// take the steps of the same plan.
///
/// Memory. Input slots: their rank writes them in copy-in, its peers read them in reduce. Result slots: their rank
/// writes them in reduce, its peers read them in copy-out. Exchange slots, of two ranks, are both: their rank writes
/// its input (copy-in), the peer reads that and puts the result in its place (reduce), their rank reads it (copy-out).
/// Buffers that can be reached: the peers read inputs and write outputs, a rank the chunk it owns, between the owner's
/// arrival and the last step of all.
/// Atomics. Each step that a rank takes is published (`Progress`: release), and a peer touches what it has written, or
/// writes again what it has read, once it has read that (acquire). `touching` is stored, and then the job's fault is
/// read; a rank that gives up has stored the fault, and then reads `touching`: one of the two sees the other
/// (sequentially consistent).
class Pipeline {
 public:
  /// @param call, arrival, firsts  outlive this object, and belong to the same operation
  /// @param firsts  where the part of each rank begins in the whole vector, and the end; empty: it may be cut freely
  Pipeline(const Group& group, ShmGroup& host, Arrival& arrival, const Call& call, std::span<const std::size_t> firsts);

  /// Before this rank arrives.
  void show();
  /// After all have arrived: makes the plan of what all of them know.
  void begin();
  /// Takes a step, if it can be taken yet. Done once no peer uses this rank's memory any more.
  Operation::State advance();
  /// The local rank whose next step this one waits for.
  int waits_for() const { return cursor_; }

 private:
  bool is_exchange_in_place() const;
  std::size_t largest_chunk() const;
  ShmFacts facts(std::size_t largest_chunk) const;

  bool is_ready(const ShmPlan::Step& step);
  bool all_reached(std::uint64_t steps, int only);

  // These return false if the step is to be tried again.
  bool run(const ShmPlan::Step& step);
  bool work_on(const ShmPlan::Step& step);
  void copy_in(std::size_t slice);
  void combine(std::size_t slice);
  void combine_block(Extent at, std::size_t slice, std::size_t done);
  void publish(std::size_t slice);
  bool place(std::size_t slice);
  bool copy_out(std::size_t slice);
  bool fetch(int local, std::size_t element, std::byte* to, std::size_t bytes) const;
  bool passes_by() const;
  /// Puts a block of this rank's result where it belongs: to its output, and to where the peers look for it.
  void spread(const std::byte* result, Extent at) const;
  void copy_to_output(std::byte* to, const std::byte* from, std::size_t bytes, const void* next = nullptr) const;

  const std::byte* input(std::size_t element) const { return input_ + slices_.bytes(element); }
  std::byte* output(std::size_t element) const { return output_ + slices_.bytes(element); }
  std::byte* peer_input(int local, std::size_t element) const {
    return host_.reach(local, arrival_.input_of(local)) + slices_.bytes(element);
  }
  std::byte* result_at(int local, std::size_t element) const;
  std::byte* staged_chunk(int from, int owner, std::size_t slice) const;
  std::byte* staged_result(int owner, int reader, std::size_t slice) const;

  const Group& group_;
  ShmGroup& host_;
  Arrival& arrival_;
  const Call& call_;
  Slices slices_;
  ShmPlan plan_;
  ShmPlan::Step step_;         // the next one
  std::uint64_t taken_ = 0;    // steps
  int cursor_ = 0;             // the peer that was waited for last
  const bool scales_own_;      // the own input is scaled on its way into staging memory
  bool non_temporal_ = false;  // the output is so large that non-temporal stores write it
  bool exchanges_ = false;     // the slots are exchange slots
  Scratch original_;           // the input, where it is overwritten before all of it has been read
  const std::byte* input_;
  std::byte* const output_;
};

}  // namespace farandole
