// SPDX-License-Identifier: Apache-2.0
#include "bench_background.h"

#include <algorithm>
#include <vector>

namespace farandole::bench {

BackgroundAllreduce::BackgroundAllreduce(Communicator& ranks, std::size_t bytes)
    : ranks_(ranks),
      own_(ranks.duplicate()),
      values_(std::max<std::size_t>(1, bytes / size_in_bytes(DType::kF32)), DType::kF32) {
  // Zeros stay zeros, however often they are summed.
  const BufferView all = values_.view();
  std::fill_n(static_cast<std::byte*>(all.data), all.size_in_bytes(), std::byte{0});
}

void BackgroundAllreduce::begin() {
  work_ = own_.allreduce_async(values_.view(), ReduceOp::kSum);
  ++begun_;
}

void BackgroundAllreduce::keep_running() {
  if (work_.valid() && !work_.test()) return;
  if (work_.valid()) work_.wait();  // throws if the allreduce has failed
  begin();
}

void BackgroundAllreduce::finish() {
  std::vector<std::int64_t> max_begun{begun_};
  ranks_.allreduce(max_begun, ReduceOp::kMax);
  while (begun_ < max_begun.front()) {
    if (work_.valid()) work_.wait();
    begin();
  }
  if (work_.valid()) work_.wait();
}

}  // namespace farandole::bench
