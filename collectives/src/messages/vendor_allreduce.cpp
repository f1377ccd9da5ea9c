// SPDX-License-Identifier: Apache-2.0
#include "messages/vendor_allreduce.h"

#include <fmt/core.h>

#include "farandole/core/error.h"
#include "farandole/core/reduce.h"
#include "operation/method_inputs.h"

namespace farandole {

constinit const Method kVendorMethod{
    .name = "vendor",
    .number = 0xfe,
    .needs = "the transport mpi, with one rank per process",
    .supports = [](Collective collective) { return collective == Collective::kAllreduce; },
    .fits = [](const TuningShape& shape) { return shape.transport == "mpi"; },
    // An algorithm that the caller names is available: the vendor then throws an error that says what is missing.
    .is_available = [](const SelectionQuery& query, bool from_table) { return !from_table || query.vendor_agrees; },
    .announce = [](const MethodInputs& inputs) { inputs.vendor.announce(inputs.sequence); },
    .make = [](const MethodInputs& inputs) -> std::unique_ptr<Operation> {
      return std::make_unique<VendorAllreduce>(inputs.group, inputs.vendor, inputs.prepared.call, inputs.sequence);
    },
};

Operation::State VendorAllreduce::advance() {
  if (!transfer_) {
    if (!vendor_.is_next(sequence_)) return State::kWaiting;
    VendorCollectives* const collectives = vendor_.collectives();
    if (collectives == nullptr) return State::kWaiting;
    vendor_.withdraw(sequence_);
    begin(*collectives);
  }
  if (!transfer_->test()) return State::kWaiting;
  if (call_.final_scale != 1.0) {
    scale(call_.output.data, call_.output.data, call_.output.count, call_.output.dtype, call_.final_scale);
  }
  return State::kDone;
}

void VendorAllreduce::begin(VendorCollectives& collectives) {
  const ConstBufferView& input = call_.input;
  if (!collectives.supports(input.dtype, call_.op)) {
    throw Unsupported(fmt::format("the vendor's allreduce does not support {} of {}; choose another algorithm",
                                  name(call_.op), name(input.dtype)));
  }
  const void* data = input.data;
  if (call_.prescale != 1.0) {
    scale(call_.output.data, data, input.count, input.dtype, call_.prescale);
    data = call_.output.data;
  }
  transfer_ = collectives.allreduce(data, call_.output.data, input.count, input.dtype, call_.op);
}

}  // namespace farandole
