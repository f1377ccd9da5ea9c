// SPDX-License-Identifier: Apache-2.0
#include "operation/average.h"

#include "farandole/core/reduce.h"
#include "farandole/internal/average.h"

namespace farandole {
namespace {

/// Bytes of the elements in the type of a wide sum; 0 for other averages.
std::size_t sum_bytes(const ConstBufferView& elements, AverageWay way) {
  return way == AverageWay::kWideSum ? elements.count * size_in_bytes(sum_type(elements.dtype)) : 0;
}

}  // namespace

AverageWay average_way(const Call& call, const Group& group) {
  if (call.op != ReduceOp::kAverage || !reduces(call.collective) || group.size() == 1) return AverageWay::kUnchanged;
  const DType dtype = call.input.dtype;
  if (sum_type(dtype) != dtype) return AverageWay::kWideSum;
  const bool divides = dtype == DType::kF16 && group.endpoint->settings().collectives.f16_average == "divide_first";
  return divides ? AverageWay::kDividedFirst : AverageWay::kUnchanged;
}

Call divided_sum(const Call& call, int size) {
  Call sum = call;
  sum.op = ReduceOp::kSum;
  sum.prescale = user_factor(averaging_scale(call.prescale, size), call.input.dtype);
  sum.final_scale = user_factor(call.postscale, call.input.dtype);
  return sum;
}

Call wide_sum(const Call& call, void* input, void* output) {
  const DType dtype = sum_type(call.input.dtype);
  Call sum = call;
  sum.op = ReduceOp::kSum;
  sum.prescale = sum.postscale = sum.final_scale = 1.0;
  sum.input = {input, call.input.count, dtype, call.input.space};
  sum.output = {output, call.output.count, dtype, call.output.space};
  return sum;
}

AverageOperation::AverageOperation(const MethodInputs& inputs, AverageWay way)
    : call_(inputs.prepared.call),
      way_(way),
      input_(sum_bytes(call_.input, way)),
      output_(call_.collective == Collective::kAllreduce ? 0 : sum_bytes(call_.output, way)),
      sum_call_(sum_call(inputs.group.size())),
      prepared_sum_(sum_call_, inputs.group.size()) {
  prepared_sum_.selection = inputs.prepared.selection;
  prepared_sum_.descriptor = inputs.prepared.descriptor;
  if (way_ == AverageWay::kWideSum) {
    widen_to_sum(input_.data(), call_.input.data, call_.input.count, call_.input.dtype, call_.prescale);
  }
  sum_ = prepared_sum_.selection.method->make(inputs.with(prepared_sum_));
}

Call AverageOperation::sum_call(int size) const {
  if (way_ == AverageWay::kDividedFirst) return divided_sum(call_, size);
  return wide_sum(call_, input_.data(), call_.collective == Collective::kAllreduce ? input_.data() : output_.data());
}

Operation::State AverageOperation::advance() {
  const State state = sum_->advance();
  if (state == State::kDone && way_ == AverageWay::kWideSum) {
    narrow_from_sum(call_.output.data, sum_call_.output.data, call_.output.count, call_.output.dtype,
                    call_.final_scale);
  }
  return state;
}

}  // namespace farandole
