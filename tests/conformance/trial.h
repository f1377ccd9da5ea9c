// SPDX-License-Identifier: Apache-2.0
// Runs one collective on one rank with memory of a given kind, and compares the result with the expected result.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"

namespace farandole::test {

/// Memory of one buffer, in a window or not, with guards on both sides. `skip` elements lie before it.
template <class T>
class Placed {
 public:
  Placed() = default;
  Placed(Communicator& ranks, bool in_window, std::size_t count, std::size_t skip)
      : owner_(in_window ? ranks.allocate(skip + count + kGuard, dtype_of<T>)
                         : Buffer(skip + count + kGuard, dtype_of<T>)),
        skip_(skip),
        count_(count) {
    std::fill_n(all(), owner_.count(), kMark);
  }
  T* data() { return all() + skip_; }
  std::size_t count() const { return count_; }
  /// Whether nothing was written outside the buffer.
  bool is_bounded() {
    const auto is_mark = [](T element) { return element == kMark; };
    return std::all_of(all(), data(), is_mark) && std::all_of(data() + count_, all() + owner_.count(), is_mark);
  }

 private:
  static constexpr std::size_t kGuard = 16;
  static constexpr T kMark = static_cast<T>(0x5b);
  T* all() { return static_cast<T*>(owner_.view().data); }

  Buffer owner_;
  std::size_t skip_ = 0, count_ = 0;
};

/// How the elements are distributed over the ranks, where a collective has counts.
enum class Spread { kEven, kUneven, kLastOnly };
/// Ranks whose input or output lies in windows.
struct Places {
  std::function<bool(int)> input, output;
  const char* name;
};

struct Shape {
  Collective collective = Collective::kAllreduce;
  std::size_t total = 0;  ///< elements of the whole vector; rounded down for even parts
  Spread spread = Spread::kEven;
  bool in_place = false;
  int root = 0;
  bool blocking = false;
};

/// Element `index` of the input of rank `rank`.
template <class T>
T sent(int rank, std::size_t index) {
  return static_cast<T>(31 * static_cast<std::size_t>(rank) + 7 * index + index / 251);
}

/// The constructor starts the collective (and ends it, if it blocks); `difference` waits for it. Inputs and outputs
/// start at another element on each rank.
template <class T>
class Trial {
 public:
  Trial(Communicator& ranks, const Shape& shape, const Places& places)
      : ranks_(ranks), shape_(shape), me_(ranks.rank()), size_(ranks.size()) {
    lay_out(places);
    start();
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  /// Describes the error; empty if there is none.
  std::string difference() {
    if (work_.valid()) work_.wait();
    std::string text;
    if (has_output()) {
      const std::vector<T> wanted = expected();
      const auto* came = static_cast<const T*>(output_.data);
      for (std::size_t i = 0; i < output_.count && text.empty(); ++i) {
        if (came[i] != wanted[i]) text = fmt::format("output {} is {}, expected {}", i, came[i], wanted[i]);
      }
    }
    // Input elements outside the output (of an in-place collective) must keep their values.
    const auto* input = static_cast<const T*>(input_.data);
    for (std::size_t i = 0; i < input_.count && has_input() && text.empty(); ++i) {
      const bool overwritten =
          has_output() && input + i >= output_.data && input + i < static_cast<const T*>(output_.data) + output_.count;
      if (!overwritten && input[i] != sent<T>(me_, i)) text = fmt::format("input {} became {}", i, input[i]);
    }
    if (text.empty() && !(memory_.is_bounded() && other_memory_.is_bounded())) text = "wrote beside the buffers";
    return text;
  }

 private:
  std::size_t part(int from, int to) const {
    const std::size_t even = shape_.total / static_cast<std::size_t>(size_);
    if (shape_.spread == Spread::kEven) return even;
    if (shape_.spread == Spread::kLastOnly) return to == size_ - 1 ? shape_.total : 0;
    return (from + 2 * to) % 3 == 0 ? 0 : even + static_cast<std::size_t>(from);
  }
  /// Elements of each rank's part of the vector: exactly `total` unless even.
  std::vector<std::size_t> counts() const {
    std::vector<std::size_t> counts;
    std::size_t left = shape_.total;
    for (int rank = 0; rank < size_; ++rank) {
      std::size_t count = shape_.total / static_cast<std::size_t>(size_);
      if (shape_.spread != Spread::kEven && rank == size_ - 1) {
        count = left;
      } else if (shape_.spread == Spread::kLastOnly) {
        count = 0;
      } else if (shape_.spread == Spread::kUneven) {
        count = rank % 2 == 1 ? 0 : std::min(left, count + 3);
      }
      left -= count;
      counts.push_back(count);
    }
    return counts;
  }

  bool has_input() const { return shape_.collective != Collective::kScatter || me_ == shape_.root; }
  bool has_output() const {
    const bool of_root = shape_.collective == Collective::kReduce || shape_.collective == Collective::kGather;
    return !of_root || me_ == shape_.root;
  }

  void lay_out(const Places& places) {
    std::size_t in = shape_.total, out = shape_.total, first = 0;
    if (shape_.collective == Collective::kAlltoall) {
      for (int rank = 0; rank < size_; ++rank) {
        send_.push_back(part(me_, rank));
        recv_.push_back(part(rank, me_));
      }
      in = sum(send_, send_.size());
      out = sum(recv_, recv_.size());
    } else if (shape_.collective != Collective::kAllreduce && shape_.collective != Collective::kReduce &&
               shape_.collective != Collective::kBroadcast) {
      send_ = counts();
      in = out = sum(send_, send_.size());
      const auto own = static_cast<std::size_t>(me_);
      const bool gathers = shape_.collective == Collective::kAllgather || shape_.collective == Collective::kGather;
      (gathers ? in : out) = send_[own];
      first = sum(send_, own);
    }
    const std::size_t skip = static_cast<std::size_t>(me_) * 5 + 1;
    const bool gathers = shape_.collective == Collective::kAllgather;
    if (shape_.in_place) {
      memory_ = Placed<T>(ranks_, places.input(me_), std::max(in, out), skip);
      input_ = BufferView(memory_.data() + (gathers ? first : 0), in, dtype_of<T>);
      output_ =
          BufferView(memory_.data() + (shape_.collective == Collective::kReduceScatter ? first : 0), out, dtype_of<T>);
    } else {
      memory_ = Placed<T>(ranks_, places.input(me_), has_input() ? in : 0, skip);
      other_memory_ = Placed<T>(ranks_, places.output(me_), has_output() ? out : 0, 2 * skip);
      input_ = BufferView(memory_.data(), memory_.count(), dtype_of<T>);
      output_ = BufferView(other_memory_.data(), other_memory_.count(), dtype_of<T>);
    }
    for (std::size_t i = 0; i < input_.count; ++i) static_cast<T*>(input_.data)[i] = sent<T>(me_, i);
  }

  void start() {
    const std::vector<std::size_t> none;
    const std::vector<std::size_t>& send = shape_.spread == Spread::kEven ? none : send_;
    const std::vector<std::size_t>& recv = shape_.spread == Spread::kEven ? none : recv_;
    switch (shape_.collective) {
      case Collective::kAllreduce:
        if (shape_.blocking) return ranks_.allreduce(input_, output_, ReduceOp::kSum);
        work_ = ranks_.allreduce_async(input_, output_, ReduceOp::kSum);
        break;
      case Collective::kReduce:
        work_ = ranks_.reduce_async(input_, output_, ReduceOp::kSum, shape_.root);
        break;
      case Collective::kReduceScatter:
        work_ = ranks_.reduce_scatter_async(input_, output_, ReduceOp::kSum, send);
        break;
      case Collective::kBroadcast:
        work_ = ranks_.broadcast_async(shape_.in_place ? output_ : input_, shape_.root);
        if (!shape_.in_place) output_ = input_;
        break;
      case Collective::kAllgather:
        work_ = ranks_.allgather_async(input_, output_, send);
        break;
      case Collective::kGather:
        work_ = ranks_.gather_async(input_, output_, shape_.root, send);
        break;
      case Collective::kScatter:
        work_ = ranks_.scatter_async(input_, output_, shape_.root, send);
        break;
      case Collective::kAlltoall:
        work_ = ranks_.alltoall_async(input_, output_, send, recv);
        break;
      case Collective::kBarrier:
        work_ = ranks_.barrier_async();
        output_ = input_;
        break;
    }
    if (shape_.blocking) work_.wait();
  }

  std::vector<T> expected() const {
    std::vector<T> all;
    const auto own = static_cast<std::size_t>(me_);
    const auto append = [&](int from, std::size_t first, std::size_t count) {
      for (std::size_t i = first; i < first + count; ++i) all.push_back(sent<T>(from, i));
    };
    all.reserve(output_.count);
    switch (shape_.collective) {
      case Collective::kBroadcast:
        append(shape_.root, 0, shape_.total);
        break;
      case Collective::kScatter:
        append(shape_.root, sum(send_, own), send_[own]);
        break;
      case Collective::kBarrier:
        append(me_, 0, output_.count);
        break;
      case Collective::kAllgather:
      case Collective::kGather:
        for (int from = 0; from < size_; ++from) append(from, 0, send_[static_cast<std::size_t>(from)]);
        break;
      case Collective::kAlltoall:
        for (int from = 0; from < size_; ++from) {
          std::size_t first = 0;
          for (int to = 0; to < me_; ++to) first += part(from, to);
          append(from, first, part(from, me_));
        }
        break;
      default: {
        const std::size_t first = shape_.collective == Collective::kReduceScatter ? sum(send_, own) : 0;
        const auto size = static_cast<std::size_t>(size_);
        for (std::size_t i = first; i < first + output_.count; ++i) {
          all.push_back(static_cast<T>(31 * (size * (size - 1) / 2) + size * (7 * i + i / 251)));
        }
      }
    }
    return all;
  }
  static std::size_t sum(const std::vector<std::size_t>& counts, std::size_t end) {
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(end), std::size_t{0});
  }

  Communicator& ranks_;
  const Shape shape_;
  const int me_, size_;
  std::vector<std::size_t> send_, recv_;
  Placed<T> memory_, other_memory_;  // of input and output; in place both are in the first
  BufferView input_, output_;
  Work work_;  // last: it ends before its buffers go
};

inline const std::vector<Places>& all_places() {
  const auto always = [](int) { return true; };
  const auto never = [](int) { return false; };
  const auto even = [](int rank) { return rank % 2 == 0; };
  const auto odd = [](int rank) { return rank % 2 == 1; };
  const auto not_first = [](int rank) { return rank != 0; };
  static const std::vector<Places> places{{always, always, "windows"},
                                          {never, never, "ordinary memory"},
                                          {always, never, "inputs in windows"},
                                          {never, always, "outputs in windows"},
                                          {even, odd, "by rank"},
                                          {not_first, not_first, "all but rank 0"}};
  return places;
}

}  // namespace farandole::test
