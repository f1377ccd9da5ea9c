// Fails as a collective does on whose call the ranks disagree, with a text that Python has made.
#include "call.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/tstring.h"

namespace farandole_tensorflow {
namespace {

class MismatchKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    const tensorflow::Tensor& text = context->input(0);
    OP_REQUIRES(context, text.NumElements() == 1,
                aborted(FARANDOLE_INVALID_ARGUMENT, "FarandoleMismatch takes one text"));
    context->SetStatus(aborted(FARANDOLE_MISMATCH, std::string(text.flat<tensorflow::tstring>()(0))));
  }
};

REGISTER_KERNEL_BUILDER(Name("FarandoleMismatch").Device(tensorflow::DEVICE_CPU), MismatchKernel);

}  // namespace
}  // namespace farandole_tensorflow
