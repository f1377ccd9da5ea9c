// SPDX-License-Identifier: Apache-2.0
// Averages by methods that send partial sums from rank to rank. A sum may overflow the elements' type even if the
// average fits.
#pragma once

#include <memory>
#include <vector>

#include "operation/call.h"
#include "operation/group.h"
#include "operation/method_inputs.h"
#include "operation/operation.h"

namespace farandole {

/// How a method that sends partial sums computes an average.
enum class AverageWay {
  kUnchanged,     ///< the method adds in the elements' type, and divides the sum at the end
  kDividedFirst,  ///< f16: each rank divides its contribution before the method adds
  kWideSum,       ///< integers: the method adds in `sum_type`; the sum is divided and narrowed at the end
};
/// The way for the call's type and the settings; kUnchanged if the call is not an average.
AverageWay average_way(const Call& call, const Group& group);

/// Returns the sum that replaces an average: each rank first divides its contribution by `size`.
Call divided_sum(const Call& call, int size);
/// Returns the sum that replaces an average: of elements of `sum_type`, from `input` to `output`, without factors.
Call wide_sum(const Call& call, void* input, void* output);

/// Runs an average as a sum by the same method, and converts the elements before and after the sum.
class AverageOperation final : public Operation {
 public:
  /// @param inputs  arguments of a method on host memory
  AverageOperation(const MethodInputs& inputs, AverageWay way);

  State advance() override;
  std::vector<int> waits_for() const override { return sum_->waits_for(); }
  BufferHazard withdraw() override { return sum_->withdraw(); }

 private:
  Call sum_call(int size) const;

  const Call& call_;
  const AverageWay way_;
  const Scratch input_, output_;  // buffers of the wide sum; an allreduce adds in place and needs no output
  const KeptCall sum_call_;
  PreparedCall prepared_sum_;
  std::unique_ptr<Operation> sum_;  // last member: withdraws its messages before their memory is freed
};

}  // namespace farandole
