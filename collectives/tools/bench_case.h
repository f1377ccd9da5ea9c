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

/// Shape of the measured calls. Counts are in elements.
struct CallShape {
  Collective collective = Collective::kAllreduce;
  bool is_sendrecv = false;  ///< kSendRecv, with the buffers of an allreduce out of place
  std::size_t count = 0;     ///< size of the whole vector
  std::size_t part = 0;      ///< size of each rank's part; the same on all ranks
  bool in_place = false;
};
/// Returns the shape of a call on about `bytes` bytes: rounded to whole elements, and to equal parts if the collective
/// has parts.
CallShape shape_of(const Communicator& ranks, const Options& options, Collective collective, std::size_t bytes,
                   bool in_place);
/// The same for kSendRecv.
CallShape sendrecv_shape_of(const Communicator& ranks, const Options& options, std::size_t bytes);

/// An implementation to measure: ours, MPI's or NCCL's. Owns pairs of input and output buffers, and a call on each
/// pair. Contenders share no buffers (except by `on`), so that no contender profits from data that another contender
/// has left in the caches.
class Contender {
 public:
  /// Our collective, or our messages, on `ranks`. @throws InvalidArgument  not enough memory for the pairs
  static Contender farandole(Communicator& ranks, const Options& options, const CallShape& shape,
                             const std::string& algorithm);
  /// The same call on another communicator of the same ranks. Shares this contender's buffers.
  Contender on(Communicator& other, const Options& options) const;
  /// The vendor's collective. The buffers are ordinary memory even with --memory window.
  /// @throws InvalidArgument  the vendor does not support the call
  static Contender vendor(Communicator& ranks, const Options& options, const CallShape& shape,
                          VendorCollectives& collectives);
  /// NCCL's collective. @throws InvalidArgument  NCCL has no such collective
  static Contender nccl(Communicator& ranks, const Options& options, const CallShape& shape, NcclPeer& nccl);

  /// Runs the call on the next pair. Blocks.
  void call() {
    calls_[next_]();
    if (++next_ == calls_.size()) next_ = 0;
  }
  /// Runs the call once on every pair. Returns the number of wrong elements on all ranks together; 0 with --no-check.
  /// Afterwards `call` may be repeated any number of times: the values in the buffers stay finite.
  long long try_all(Communicator& ranks, const Options& options);

 private:
  struct Pair {
    Buffer input, output;
    ConstBufferView source;
    BufferView target;
  };
  Contender(Communicator& ranks, const Options& options, const CallShape& shape, bool for_vendor);
  void bind(Communicator& ranks, const Options& options, const std::string& algorithm);
  void lay_out(Pair& pair, int rank, bool for_vendor) const;
  void fill_first(const Pair& pair, int rank, ReduceOp op) const;
  void zero(Pair& pair) const;
  long long count_wrong(const Communicator& ranks, const Options& options, const Pair& pair) const;

  CallShape shape_;
  ReduceOp expected_op_;      // reduction of the expected results
  Device* device_ = nullptr;  // device of the buffers; null: host memory
  std::shared_ptr<std::vector<Pair>> pairs_;
  std::vector<std::function<void()>> calls_;
  std::size_t next_ = 0;
};

/// The rank's device. @throws InvalidArgument  the rank has none; says why
Device& device_of(Communicator& ranks);
/// Number of calls per sample: several for short vectors, because the clock is too coarse to time a single short call.
int calls_for(std::size_t bytes);
/// Runs `calls` calls after a barrier of `ranks`. Returns the microseconds per call on this rank.
double time_calls(Communicator& ranks, Contender& contender, int calls);

}  // namespace farandole::bench
