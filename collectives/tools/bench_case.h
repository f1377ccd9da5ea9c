// SPDX-License-Identifier: Apache-2.0
// farandole-bench: the buffers, the calls and the expected results of one case.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench.h"

namespace farandole::bench {

/// What is called, in elements.
struct Shape {
  Collective collective = Collective::kAllreduce;
  std::size_t count = 0;  ///< of the whole vector
  std::size_t part = 0;   ///< of one rank's equal part
  bool in_place = false;
};
Shape shape_of(const Communicator& ranks, const Options& options, Collective collective, std::size_t bytes,
               bool in_place);

/// One that is measured: some pairs of input and output of its own, and a call on each. Two contenders share no memory,
/// so that none profits from what the other leaves in the caches.
class Contender {
 public:
  /// @throws InvalidArgument  not enough memory for the pairs
  static Contender farandole(Communicator& ranks, const Options& options, const Shape& shape,
                             const std::string& algorithm);
  /// The same call on another communicator of the same ranks, with the buffers of this one.
  Contender on(Communicator& other, const Options& options) const;
  /// The peer's buffers are ordinary memory, whatever ours are. @throws InvalidArgument  more than the peer can do
  static Contender vendor(Communicator& ranks, const Options& options, const Shape& shape,
                          VendorCollectives& collectives);
  /// @throws InvalidArgument  NCCL has no such collective
  static Contender nccl(Communicator& ranks, const Options& options, const Shape& shape, NcclPeer& nccl);

  /// The call on the next pair. Blocks.
  void call() {
    calls_[next_]();
    if (++next_ == calls_.size()) next_ = 0;
  }
  /// Runs the call on every pair once and, if results are checked, counts the elements of all ranks that are wrong.
  /// Leaves buffers that can be used again and again.
  long long try_all(Communicator& ranks, const Options& options);

 private:
  struct Pair {
    Buffer input, output;
    ConstBufferView source;
    BufferView target;
  };
  Contender(Communicator& ranks, const Options& options, const Shape& shape, bool for_vendor);
  void bind(Communicator& ranks, const Options& options, const std::string& algorithm);
  void lay_out(Pair& pair, int rank, bool for_vendor) const;
  void fill_first(const Pair& pair, int rank, ReduceOp op) const;
  void zero(Pair& pair) const;
  long long count_wrong(const Communicator& ranks, const Options& options, const Pair& pair) const;

  Shape shape_;
  ReduceOp oracle_op_;
  Device* device_ = nullptr;  // of the buffers; null: host memory
  std::shared_ptr<std::vector<Pair>> pairs_;
  std::vector<std::function<void()>> calls_;
  std::size_t next_ = 0;
};

/// The rank's device. @throws InvalidArgument  there is none; says why
Device& device_of(Communicator& ranks);
/// How many calls make a sample: the clock is too coarse for one short call.
int calls_for(std::size_t bytes);
/// Microseconds per call on this rank, after a barrier of `ranks`.
double time_calls(Communicator& ranks, Contender& contender, int calls);

}  // namespace farandole::bench
