// SPDX-License-Identifier: Apache-2.0
// Averages where sums travel from rank to rank, and may leave the type of the elements though the average fits.
#pragma once

#include <memory>
#include <vector>

#include "operation/call.h"
#include "operation/group.h"
#include "operation/method_inputs.h"
#include "operation/operation.h"
#include "operation/scratch.h"

namespace farandole {

/// What takes the place of an average whose sums travel.
enum class AverageWay {
  kAsItIs,        ///< nothing: the sum is divided once all has been added
  kDividedFirst,  ///< of f16: a sum of contributions that are divided before they leave their rank
  kWideSum,       ///< of integers: a sum in `sum_type`, which is divided and narrowed at the end
};
AverageWay average_way(const Call& call, const Group& group);

/// The sum of contributions that are divided by `size` first.
Call divided_sum(const Call& call, int size);
/// The sum in `sum_type`, of elements at `input`, to `output`. Neither is scaled.
Call wide_sum(const Call& call, void* input, void* output);

/// An average by a method that sends sums: what takes its place, by the same method, and the conversions around it.
class AverageOperation final : public Operation {
 public:
  /// @param inputs  of a method on host memory
  AverageOperation(const MethodInputs& inputs, AverageWay way);

  State advance() override;
  std::vector<int> waits_for() const override { return sum_->waits_for(); }
  BufferHazard withdraw() override { return sum_->withdraw(); }

 private:
  Call sum_call(int size) const;

  const Call& call_;
  const AverageWay way_;
  const Scratch input_, output_;  // of the wide sum; an allreduce needs no output beside its input
  const KeptCall sum_call_;
  std::unique_ptr<Operation> sum_;  // last: it withdraws its messages before their memory goes
};

}  // namespace farandole
