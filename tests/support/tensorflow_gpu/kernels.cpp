// SPDX-License-Identifier: Apache-2.0
// The kernels of the fake GPU. A build of TensorFlow for CPUs has hardly any kernels for devices of type GPU, and would
// silently place a model on the CPU.
#include <algorithm>
#include <memory>
#include <vector>

#include "stream_kernel.h"
#include "tensorflow/core/framework/node_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/public/version.h"

namespace fake_gpu {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;

/// Runs the op of its node in the stream. TensorFlow's shape function computes the shapes of the outputs, so an
/// output's shape may depend on inputs in host memory, but not on values in device memory.
class StreamKernel : public OpKernel {
 public:
  explicit StreamKernel(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, tensorflow::OpRegistry::Global()->LookUp(type_string(), &op_));
    OP_REQUIRES_OK(context, create_processor_kernel(def(), &kernel_));
    writes_variables_ = type_string() != "ResourceGather";
  }

  void Compute(OpKernelContext* context) override {
    std::vector<Operand> inputs, outputs;
    std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables;
    std::vector<std::unique_ptr<tensorflow::mutex_lock>> locks;
    for (int i = 0; i < context->num_inputs(); ++i) {
      if (context->input_dtype(i) == tensorflow::DT_RESOURCE) {
        auto& variable = variables.emplace_back();
        OP_REQUIRES_OK(context,
                       tensorflow::LookupResource(context, tensorflow::HandleFromInput(context, i), &variable));
        locks.push_back(std::make_unique<tensorflow::mutex_lock>(*variable->mu()));
        if (writes_variables_) OP_REQUIRES_OK(context, own_value(context, *variable));
        inputs.push_back({*variable->tensor(), Operand::kVariable});
      } else {
        const bool is_on_host = context->input_memory_type(i) == tensorflow::HOST_MEMORY;
        inputs.push_back({context->input(i), is_on_host ? Operand::kHost : Operand::kDevice});
      }
    }
    OP_REQUIRES_OK(context, allocate(context, inputs, outputs));
    OP_REQUIRES_OK(context, launch(context, op_->op_def.name().c_str(), kernel_, inputs, outputs));
  }

 private:
  using ShapeAndType = std::pair<PartialTensorShape, DataType>;

  /// Gives the variable new memory if a tensor that was read from the variable shares the old memory.
  static absl::Status own_value(OpKernelContext* context, tensorflow::Var& variable) {
    Tensor* const value = variable.tensor();
    if (value->RefCountIsOne()) return absl::OkStatus();
    Tensor own;
    TF_RETURN_IF_ERROR(context->allocate_temp(value->dtype(), value->shape(), &own));
    copy_on_device(context, *value, own);
    *value = own;
    return absl::OkStatus();
  }

  absl::Status allocate(OpKernelContext* context, const std::vector<Operand>& inputs, std::vector<Operand>& outputs) {
    std::vector<PartialTensorShape> shapes;
    std::vector<const Tensor*> values;
    std::vector<std::unique_ptr<std::vector<ShapeAndType>>> variables;
    for (const Operand& input : inputs) {
      const bool is_variable = input.place == Operand::kVariable;
      shapes.push_back(is_variable ? PartialTensorShape({}) : PartialTensorShape(input.tensor.shape()));
      values.push_back(input.place == Operand::kHost ? &input.tensor : nullptr);
      auto& variable = variables.emplace_back();
      if (!is_variable) continue;
      variable = std::make_unique<std::vector<ShapeAndType>>();
      variable->emplace_back(PartialTensorShape(input.tensor.shape()), input.tensor.dtype());
    }
    InferenceContext inference(TF_GRAPH_DEF_VERSION, tensorflow::AttrSlice(def()), op_->op_def, shapes, values, {},
                               variables);
    TF_RETURN_IF_ERROR(inference.construction_status());
    TF_RETURN_IF_ERROR(inference.Run(op_->shape_inference_fn));
    for (int i = 0; i < inference.num_outputs(); ++i) {
      if (!inference.FullyDefined(inference.output(i))) {
        return absl::UnimplementedError(type_string() + " has an output whose shape depends on device memory");
      }
      TensorShape shape;
      for (int axis = 0; axis < inference.Rank(inference.output(i)); ++axis) {
        shape.AddDim(inference.Value(inference.Dim(inference.output(i), axis)));
      }
      Tensor* output = nullptr;
      TF_RETURN_IF_ERROR(context->allocate_output(i, shape, &output));
      outputs.push_back({*output});
    }
    return absl::OkStatus();
  }

  const tensorflow::OpRegistrationData* op_ = nullptr;
  std::shared_ptr<OpKernel> kernel_;
  bool writes_variables_ = false;
};

// Types of tensors in device memory. TensorFlow keeps int32 in host memory, where it registers kernels for any device.
const std::vector<DataType>& device_types() {
  using namespace tensorflow;
  static const auto* const types =
      new std::vector<DataType>{DT_BOOL,   DT_UINT8, DT_INT8,     DT_UINT16, DT_INT16, DT_UINT32,
                                DT_UINT64, DT_INT64, DT_BFLOAT16, DT_HALF,   DT_FLOAT, DT_DOUBLE};
  return *types;
}

struct Row {
  const char* op;
  std::vector<const char*> in_host_memory = {};  ///< arguments that are in host memory, as with kernels for a GPU
};

// clang-format off
const std::vector<Row>& rows() {
  static const auto* const table = new std::vector<Row>{
      // layers and losses
      {"MatMul"}, {"BiasAdd"}, {"BiasAddGrad"}, {"Relu"}, {"ReluGrad"}, {"Tanh"}, {"TanhGrad"}, {"Sigmoid"},
      {"SigmoidGrad"}, {"Softmax"}, {"LogSoftmax"}, {"SparseSoftmaxCrossEntropyWithLogits"},
      {"SoftmaxCrossEntropyWithLogits"},
      // arithmetic
      {"Add"}, {"AddV2"}, {"AddN"}, {"Sub"}, {"Mul"}, {"RealDiv"}, {"DivNoNan"}, {"TruncateDiv"}, {"FloorDiv"},
      {"FloorMod"}, {"Neg"}, {"Abs"}, {"Sign"}, {"Sqrt"}, {"Rsqrt"}, {"Square"}, {"SquaredDifference"}, {"Pow"},
      {"Exp"}, {"Log"}, {"Maximum"}, {"Minimum"}, {"Reciprocal"}, {"Cast"},
      // comparisons
      {"Equal"}, {"NotEqual"}, {"Greater"}, {"GreaterEqual"}, {"Less"}, {"LessEqual"}, {"LogicalAnd"}, {"LogicalOr"},
      {"LogicalNot"}, {"IsFinite"}, {"SelectV2"}, {"Select"},
      // reductions
      {"Sum", {"reduction_indices"}}, {"Mean", {"reduction_indices"}}, {"Max", {"reduction_indices"}},
      {"Min", {"reduction_indices"}}, {"Prod", {"reduction_indices"}}, {"All", {"reduction_indices"}},
      {"Any", {"reduction_indices"}}, {"ArgMax", {"dimension"}},
      // memory
      {"Fill", {"dims"}}, {"ZerosLike"}, {"OnesLike"}, {"BroadcastTo", {"shape"}}, {"Tile", {"multiples"}},
      {"Transpose", {"perm"}}, {"ConcatV2", {"axis"}}, {"Slice", {"begin", "size"}}, {"Pack"}, {"Unpack"},
      {"StridedSlice", {"begin", "end", "strides"}}, {"StridedSliceGrad", {"shape", "begin", "end", "strides"}},
      {"GatherV2", {"axis"}}, {"UnsortedSegmentSum", {"num_segments"}},
      // variables
      {"AssignAddVariableOp"}, {"AssignSubVariableOp"}, {"ResourceGather"}, {"ResourceScatterAdd"},
      {"ResourceScatterSub"}, {"ResourceScatterUpdate"}, {"ResourceApplyGradientDescent"}, {"ResourceApplyMomentum"},
      {"ResourceApplyKerasMomentum"}, {"ResourceApplyAdam"}};
  return *table;
}
// clang-format on

bool register_all() {
  for (const Row& row : rows()) {
    const tensorflow::OpDef* op = nullptr;
    TF_CHECK_OK(tensorflow::OpRegistry::Global()->LookUpOpDef(row.op, &op));
    tensorflow::KernelDefBuilder builder(row.op);
    builder.Device(tensorflow::DEVICE_GPU).Priority(1);  // above kernels that TensorFlow has for some types
    for (const char* const argument : row.in_host_memory) builder.HostMemory(argument);
    for (const auto& argument : op->input_arg()) {
      if (argument.type() == tensorflow::DT_RESOURCE) builder.HostMemory(argument.name().c_str());
    }
    for (const auto& attribute : op->attr()) {
      const bool is_type = attribute.name() == "T" || attribute.name() == "dtype";
      if (is_type) builder.TypeConstraint(attribute.name().c_str(), device_types());
    }
    const tensorflow::kernel_factory::OpKernelRegistrar registrar(
        builder.Build(), "fake_gpu",
        [](OpKernelConstruction* context) -> OpKernel* { return new StreamKernel(context); });
  }
  return true;
}

[[maybe_unused]] const bool are_registered = register_all();

}  // namespace
}  // namespace fake_gpu
