// SPDX-License-Identifier: Apache-2.0
// Collectives on short vectors: each rank publishes its data to its peers, and each rank computes its result from the
// data of all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "farandole/core/reduce.h"
#include "farandole/internal/average.h"
#include "operation/call.h"

namespace farandole {

/// One rank's side of a short collective, independent of the memory or messages that carry the data. `shown_by` says
/// which elements each rank publishes, `show` copies this rank's, and `take` computes this rank's result from all
/// published elements.
class ShortCollective {
 public:
  /// Receivers of published data: all ranks, or with two ranks only the peer. A rank then publishes only what the peer
  /// needs.
  enum class ShownTo : std::uint8_t { kAll, kOtherOfTwo };

  /// @param prepared  its call outlives this object
  /// @param firsts  offset of each rank's part in the whole vector, then the end of the vector; empty: equal parts
  ShortCollective(const PreparedCall& prepared, int rank, int size, std::span<const std::size_t> firsts = {},
                  ShownTo shown_to = ShownTo::kAll)
      : call_(prepared.call),
        rank_(rank),
        size_(size),
        shown_to_(shown_to),
        firsts_(firsts),
        element_bytes_(size_in_bytes(call_.input.dtype)),
        total_(prepared.total) {}

  /// Range of elements of its input that `rank` publishes.
  Extent shown_by(int rank) const {
    switch (call_.collective) {
      case Collective::kAllgather:
        return {0, part(rank).count};
      case Collective::kGather:
        return {0, keeps(rank) ? 0 : part(rank).count};
      case Collective::kBroadcast:
        return {0, rank == call_.root ? total_ : 0};
      case Collective::kScatter:
        return rank == call_.root ? shown_parts(rank) : Extent{};
      case Collective::kReduceScatter:
      case Collective::kAlltoall:
        return shown_parts(rank);
      case Collective::kReduce:
        return {0, keeps(rank) ? 0 : total_};
      default:
        return {0, total_};
    }
  }
  std::size_t bytes(std::size_t count) const { return count * element_bytes_; }
  /// Copies the elements that this rank publishes to `to`, scaled if the call has a prescale.
  void show(void* to) const {
    const Extent at = shown_by(rank_);
    if (at.count == 0) return;
    if (is_scaled()) return scale(to, input_at(at), at.count, call_.input.dtype, call_.prescale);
    std::memcpy(to, input_at(at), bytes(at.count));
  }
  /// Computes this rank's result in the call's output. Reads this rank's own data in the input; but in the published
  /// copy if the data are scaled or would be overwritten before they are read.
  /// @param shown     returns the address of the elements `shown_by(rank)` that a rank has published
  /// @param pointers  memory for one pointer per rank
  template <class Shown>
  void take(const Shown& shown, std::span<const void*> pointers) const;

 private:
  Extent part(int rank) const {
    if (!firsts_.empty()) return extent_of(firsts_, rank);
    const std::size_t each = total_ / static_cast<std::size_t>(size_);
    return {static_cast<std::size_t>(rank) * each, each};
  }
  /// True if `rank` publishes nothing: with two ranks, `rank` is the root and the only receiver of the result.
  bool keeps(int rank) const { return shown_to_ == ShownTo::kOtherOfTwo && rank == call_.root; }
  /// Elements that `rank` publishes if the vector has a part for each rank.
  Extent shown_parts(int rank) const { return shown_to_ == ShownTo::kOtherOfTwo ? part(1 - rank) : Extent{0, total_}; }
  /// True if this rank publishes the elements `at` of its input.
  bool shows(Extent at) const {
    const Extent all = shown_by(rank_);
    return at.first >= all.first && at.first + at.count <= all.first + all.count;
  }
  /// True if the published elements are scaled.
  bool is_scaled() const { return reduces(call_.collective) && call_.prescale != 1.0; }
  /// True if the input's elements `at` can be read in place: they are read before the output is written, or do not
  /// overlap the output.
  bool input_stays(Extent at) const {
    const auto from = reinterpret_cast<std::uintptr_t>(call_.input.data) + bytes(at.first);
    const auto to = reinterpret_cast<std::uintptr_t>(call_.output.data);
    return from == to || from + bytes(at.count) <= to || to + bytes(at.count) <= from;
  }
  const std::byte* input_at(Extent at) const {
    return static_cast<const std::byte*>(call_.input.data) + bytes(at.first);
  }
  std::byte* output_at(std::size_t first) const { return static_cast<std::byte*>(call_.output.data) + bytes(first); }

  /// Address of the published elements `at` of a rank. Precondition: the rank publishes these elements.
  template <class Shown>
  const std::byte* shown_at(const Shown& shown, int rank, Extent at) const {
    return shown(rank) + bytes(at.first - shown_by(rank).first);
  }
  template <class Shown>
  void reduce_from_all(const Shown& shown, std::span<const void*> pointers, Extent at) const;
  template <class Shown>
  const void* own_to_reduce(const Shown& shown, Extent at) const;
  /// Copies elements of this rank's input to the output, from element `to` on. Call it before any other write to the
  /// output. No-op if the elements are in place, because a peer on another host may be reading them.
  void copy_own(Extent at, std::size_t to) const {
    if (at.count > 0 && output_at(to) != input_at(at)) std::memmove(output_at(to), input_at(at), bytes(at.count));
  }
  /// Copies published elements of `rank` to the output, from element `to` on.
  template <class Shown>
  void copy_from(const Shown& shown, int rank, Extent at, std::size_t to) const {
    if (at.count > 0) std::memcpy(output_at(to), shown_at(shown, rank, at), bytes(at.count));
  }
  template <class Shown>
  void collect(const Shown& shown) const;

  const Call& call_;
  const int rank_, size_;
  const ShownTo shown_to_;
  const std::span<const std::size_t> firsts_;
  const std::size_t element_bytes_;
  const std::size_t total_;
};

template <class Shown>
void ShortCollective::take(const Shown& shown, std::span<const void*> pointers) const {
  switch (call_.collective) {
    case Collective::kAllreduce:
      return reduce_from_all(shown, pointers, {0, total_});
    case Collective::kReduce:
      if (rank_ == call_.root) reduce_from_all(shown, pointers, {0, total_});
      return;
    case Collective::kReduceScatter:
      return reduce_from_all(shown, pointers, part(rank_));
    case Collective::kBroadcast:
      if (rank_ != call_.root) copy_from(shown, call_.root, {0, total_}, 0);
      return;
    case Collective::kScatter:
      return rank_ == call_.root ? copy_own(part(rank_), 0) : copy_from(shown, call_.root, part(rank_), 0);
    case Collective::kGather:
      if (rank_ == call_.root) collect(shown);
      return;
    case Collective::kAllgather:
    case Collective::kAlltoall:
      return collect(shown);
    case Collective::kBarrier:
      return;
  }
}

/// Concatenates one part from each rank in the output.
template <class Shown>
void ShortCollective::collect(const Shown& shown) const {
  const bool shows_one_part = call_.collective != Collective::kAlltoall;
  const auto taken_from = [&](int rank) { return shows_one_part ? Extent{0, part(rank).count} : part(rank_); };
  copy_own(taken_from(rank_), part(rank_).first);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) copy_from(shown, rank, taken_from(rank), part(rank).first);
  }
}

/// Address of this rank's contribution: in the input if it can be read there; else in the published copy; else, if this
/// rank does not publish the elements, in the output, to which they are copied.
template <class Shown>
const void* ShortCollective::own_to_reduce(const Shown& shown, Extent at) const {
  if (!is_scaled() && input_stays(at)) return input_at(at);
  if (shows(at)) return shown_at(shown, rank_, at);
  copy_own(at, 0);
  if (is_scaled()) scale(call_.output.data, call_.output.data, at.count, call_.input.dtype, call_.prescale);
  return call_.output.data;
}

/// Reduces in the order of ranks, so that all ranks get the same bits.
template <class Shown>
void ShortCollective::reduce_from_all(const Shown& shown, std::span<const void*> pointers, Extent at) const {
  for (int rank = 0; rank < size_; ++rank) {
    pointers[static_cast<std::size_t>(rank)] = rank == rank_ ? own_to_reduce(shown, at) : shown_at(shown, rank, at);
  }
  reduce_and_scale(call_.output.data, nullptr, pointers, at.count, call_.input.dtype, call_.op, call_.final_scale);
}

}  // namespace farandole
