// SPDX-License-Identifier: Apache-2.0
// The op FarandoleMismatch: fails as if the ranks disagreed about a collective, with a text from Python.
#include <memory>
#include <string>
#include <utility>

#include "call.h"
#include "farandole/engine.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/tstring.h"

namespace farandole_tensorflow {
namespace {

/// Fails the step on all ranks. All ranks run this op, but perhaps at different points of their steps: a rank may have
/// submitted a collective that another rank will never reach. The engine ends all collectives of a step when ranks
/// disagree about a request. So the ranks disagree on purpose: each rank submits a broadcast with itself as the root.
class MismatchKernel : public tensorflow::AsyncOpKernel {
 public:
  explicit MismatchKernel(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("caller_waits", &caller_waits_));
  }

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    const tensorflow::Tensor& text = context->input(0);
    OP_REQUIRES_ASYNC(context, text.NumElements() == 1,
                      error_status(FARANDOLE_INVALID_ARGUMENT, "FarandoleMismatch takes one text"), done);
    tensorflow::Tensor* never = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, {}, &never), done);
    never->scalar<bool>()() = false;
    CallOptions options;
    options.name = "farandole.mismatch";
    options.collective = FARANDOLE_BROADCAST;
    options.root = current_place().rank;
    options.caller_waits = caller_waits_;
    options.outcome = error_status(FARANDOLE_MISMATCH, std::string(text.flat<tensorflow::tstring>()(0)));
    const auto call = std::make_shared<Call>(context, std::move(done), std::move(options), 1);
    call->add(*never, *never);
    call->submit();
  }

 private:
  bool caller_waits_ = false;
};

REGISTER_KERNEL_BUILDER(Name("FarandoleMismatch").Device(tensorflow::DEVICE_CPU), MismatchKernel);

}  // namespace
}  // namespace farandole_tensorflow
