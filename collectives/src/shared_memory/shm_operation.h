// SPDX-License-Identifier: Apache-2.0
// A collective among the ranks of one host, through memory that they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "operation/call.h"
#include "operation/descriptor.h"
#include "operation/operation.h"
#include "operation/scratch.h"
#include "shared_memory/one_shot.h"
#include "shared_memory/shm_group.h"
#include "shared_memory/shm_plan.h"

namespace farandole {

extern const Method kShmMethod;

/// The rank arrives, which compares what the ranks called. Short vectors are one-shot: nothing follows. For longer ones
/// the rank takes the steps of the plan. Synchronisations: one for a one-shot collective; else one per slice and stage,
/// and one at the end if peers use this rank's buffers.
///
/// Bytes copied or reduced per rank of an allreduce of N among P: one-shot N(P+1); through staging memory 5N-2N/P; in
/// windows 2N. Reductions associate as a balanced binary tree over the ranks, so all ways give the same bits.
class ShmOperation final : public Operation {
 public:
  /// What the operation is for: the whole collective, or only to compare what the ranks called.
  enum class Purpose { kCollective, kComparison };
  /// @param arrived  the caller has published this rank's arrival, in full
  /// @param call  outlives the operation; ranks of it are those of `host`.   @param number  grows from call to call
  ShmOperation(const Group& group, ShmGroup& host, const Call& call, const Descriptor& descriptor, std::uint64_t number,
               Purpose purpose, bool arrived = false);
  /// The same collective will run operation `number` in the same lane after this one.
  void set_followed_by(std::uint64_t number) { followed_by_ = number; }
  ~ShmOperation() override;
  ShmOperation(const ShmOperation&) = delete;
  ShmOperation& operator=(const ShmOperation&) = delete;

  /// @throws Mismatch  on all ranks, before data is touched
  State advance() override;
  std::vector<int> waits_for() const override;
  /// The destructor waits until no peer touches this rank's memory.
  Aftermath withdraw() override { return Aftermath::kNone; }

 private:
  enum class Phase { kConnect, kFree, kEnter, kDescribe, kRun, kLeave, kDone };
  struct Extent {
    std::size_t first = 0, count = 0;  // elements
  };

  // Entering.
  void enter();
  void stage_first();
  bool all_arrived();
  bool is_alike() const;
  void describe_call();
  bool all_described();
  void compare() const;
  void compare_counts() const;
  void choose_way();
  ShmFacts facts() const;
  bool is_exchange_in_place() const;
  std::size_t granularity(bool staged) const;
  void cut_into_slices();

  // Running (the stages are in host_stages.cpp).
  bool is_ready(const ShmPlan::Step& step);
  bool all_reached(std::uint64_t steps, int only);
  bool run(const ShmPlan::Step& step);
  // These return false if they are to be tried again.
  bool work_on(const ShmPlan::Step& step);
  void take(const ShmPlan::Step& step);
  void copy_in(std::size_t slice);
  void combine(std::size_t slice);
  void combine_block(Extent at, std::size_t slice, std::size_t done);
  void publish(std::size_t slice);
  bool place(std::size_t slice);
  bool copy_out(std::size_t slice);
  bool fetch(int local, std::size_t element, std::byte* to, std::size_t bytes) const;
  bool passes_by() const;
  std::byte* result_at(int local, std::size_t element) const;
  /// Puts a block of this rank's result where it belongs: to its output, and to where the peers look for it.
  void spread(const std::byte* result, Extent at) const;

  Extent chunk(int owner) const;
  std::size_t largest_chunk() const;
  Extent slice_of(Extent whole, std::size_t slice) const;
  std::size_t bytes(std::size_t count) const { return count * element_bytes_; }
  const std::byte* input(std::size_t element) const { return input_ + bytes(element); }
  std::byte* output(std::size_t element) const { return output_ + bytes(element); }
  std::byte* staged_chunk(int from, int owner, std::size_t slice) const;
  std::byte* staged_result(int owner, int reader, std::size_t slice) const;
  std::byte* peer_buffer(int local, bool input, std::size_t element) const;
  void copy_to_output(std::byte* to, const std::byte* from, std::size_t bytes, const void* next = nullptr) const;
  std::span<const std::uint64_t> counts_of(int local, bool sent) const;
  ArrivalRecord& arrival(int local) const { return host_.lane(local, lane_).arrival; }

  const Group& group_;
  ShmGroup& host_;
  const Call& call_;
  const Purpose purpose_;
  const bool arrived_;
  std::uint64_t followed_by_ = 0;
  const std::uint64_t number_;
  const int lane_;
  const std::size_t element_bytes_;
  const std::size_t total_;  // elements
  Descriptor descriptor_;
  std::uint64_t digest_ = 0;
  bool counted_;               // uneven alltoall: the counts travel too
  bool has_staged_ = false;    // the first slice, on entering
  bool stages_own_ = false;    // the own input is scaled on its way into staging memory
  bool non_temporal_ = false;  // the output is so large that non-temporal stores write it
  bool exchanges_ = false;     // results are put where the input of the other rank was staged
  Phase phase_ = Phase::kConnect;
  std::optional<OneShot> one_shot_;
  ShmPlan plan_;
  ShmPlan::Step step_;
  std::uint64_t taken_ = 0;                        // steps
  std::size_t granularity_ = 0;                    // elements of a chunk in a slice
  int cursor_ = 0;                                 // ranks below it are known to be where they are waited for
  std::vector<std::size_t> firsts_, recv_firsts_;  // where chunks begin, for collectives with counts
  Scratch original_;                               // the input, where it is overwritten before all of it has been read
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  const std::uint64_t previous_;  // what all must have completed before the lane may be written
};

}  // namespace farandole
