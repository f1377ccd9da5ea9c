// SPDX-License-Identifier: Apache-2.0
#include "stream_kernel.h"

#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "driver.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/device_factory.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/platform/logging.h"
#include "tensorflow/core/public/session_options.h"
#include "tensorflow/core/public/version.h"

namespace fake_gpu {
namespace {

using tensorflow::AllocatorAttributes;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

/// Returns the fake GPU's own CPU device, whose kernels compute in the calling thread.
tensorflow::Device* processor() {
  static tensorflow::Device* const device = [] {
    tensorflow::SessionOptions options;
    options.config.set_intra_op_parallelism_threads(1);
    std::vector<std::unique_ptr<tensorflow::Device>> made;
    TF_CHECK_OK(
        tensorflow::DeviceFactory::GetFactory("CPU")->CreateDevices(options, "/job:fake_gpu/replica:0/task:0", &made));
    return made[0].release();  // streams use it until the process ends
  }();
  return device;
}

/// A buffer of a tensor that does not own its memory.
class View : public tensorflow::TensorBuffer {
 public:
  View(void* memory, size_t bytes) : TensorBuffer(memory), bytes_(bytes) {}
  size_t size() const override { return bytes_; }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(tensorflow::AllocationDescription*) const override {}
  bool OwnsMemory() const override { return false; }

 private:
  const size_t bytes_;
};

/// Returns the tensor at the address by which the stream's thread accesses its memory.
Tensor view_of(const Operand& operand) {
  if (operand.place == Operand::kHost) return operand.tensor;
  void* const memory = driver().stream_address(operand.tensor.tensor_data().data());
  auto* const view = new View(memory, operand.tensor.TotalBytes());
  Tensor result(operand.tensor.dtype(), operand.tensor.shape(), view);
  view->Unref();  // the tensor has its own reference
  return result;
}

constexpr int kMaxDevices = 64;
std::array<std::atomic<SP_Stream>, kMaxDevices> compute_streams{};

struct Launch {
  std::shared_ptr<OpKernel> kernel;
  std::vector<Tensor> inputs, outputs;
  std::vector<bool> are_variables;  // for each input

  void run() {
    // A second reference to each input: the kernel must not write its result there.
    const std::vector<Tensor> kept = inputs;
    std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables;
    std::vector<tensorflow::TensorValue> values;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (are_variables[i]) inputs[i] = handle_of(variables.emplace_back(variable_of(kept[i])).get());
      values.emplace_back(&inputs[i]);
    }
    const std::vector<AllocatorAttributes> input_attributes(inputs.size()), output_attributes(outputs.size());
    OpKernelContext::Params parameters;
    parameters.device = processor();
    parameters.op_kernel = kernel.get();
    parameters.resource_manager = processor()->resource_manager();
    parameters.inputs = values;
    parameters.input_alloc_attrs = input_attributes;
    parameters.output_attr_array = output_attributes.data();
    OpKernelContext context(&parameters, static_cast<int>(outputs.size()));
    kernel->Compute(&context);
    TF_CHECK_OK(context.status());
    for (std::size_t i = 0, next = 0; i < inputs.size(); ++i) {
      if (are_variables[i]) copy(*variables[next++]->tensor(), kept[i]);
    }
    for (int i = 0; i < static_cast<int>(outputs.size()); ++i) {
      copy(*context.mutable_output(i), outputs[i]);
      delete context.release_output(i).tensor;
    }
  }

  void copy(const Tensor& from, const Tensor& to) const {
    CHECK_EQ(from.TotalBytes(), to.TotalBytes()) << kernel->type_string();
    if (from.data() != to.data()) std::memcpy(to.data(), from.data(), from.TotalBytes());
  }

  static tensorflow::Var* variable_of(const Tensor& value) {
    auto* const variable = new tensorflow::Var(value.dtype());
    *variable->tensor() = value;
    variable->is_initialized = true;
    return variable;
  }

  static Tensor handle_of(tensorflow::Var* variable) {
    variable->Ref();  // the handle's
    Tensor handle(tensorflow::DT_RESOURCE, {});
    handle.scalar<tensorflow::ResourceHandle>()() =
        tensorflow::ResourceHandle::MakeRefCountingHandle(variable, processor()->name());
    return handle;
  }
};

void run_launch(void* pointer, int is_possible) {
  if (is_possible != 0) static_cast<Launch*>(pointer)->run();
}

void release_launch(void* pointer) {
  delete static_cast<Launch*>(pointer);
}

/// Returns the op's stream, and makes the stream's device current.
SP_Stream stream_of(OpKernelContext* context) {
  TF_Status* const status = TF_NewStatus();
  const SP_Stream stream = TF_GetStream(reinterpret_cast<TF_OpKernelContext*>(context), status);
  CHECK_EQ(TF_GetCode(status), TF_OK) << TF_Message(status);
  TF_DeleteStatus(status);
  const int ordinal = context->device()->tensorflow_accelerator_device_info()->gpu_id;
  use_device(ordinal);
  compute_streams.at(ordinal) = stream;
  return stream;
}

}  // namespace

absl::Status launch(OpKernelContext* context, const char* name, const std::shared_ptr<OpKernel>& kernel,
                    const std::vector<Operand>& inputs, const std::vector<Operand>& outputs) {
  const SP_Stream stream = stream_of(context);
  auto* const item = new Launch{kernel, {}, {}, {}};
  std::vector<FakeDeviceAccess> accesses;
  const auto add = [&accesses](const Operand& operand, bool is_write, std::vector<Tensor>& tensors) {
    tensors.push_back(view_of(operand));
    if (operand.place == Operand::kHost) return;
    accesses.push_back({operand.tensor.tensor_data().data(), operand.tensor.TotalBytes(), is_write ? 1 : 0});
  };
  for (const Operand& input : inputs) {
    item->are_variables.push_back(input.place == Operand::kVariable);
    add(input, input.place == Operand::kVariable, item->inputs);
  }
  for (const Operand& output : outputs) add(output, true, item->outputs);
  const CUresult failed =
      driver().launch(stream, name, run_launch, item, release_launch, accesses.data(), accesses.size());
  if (failed == CUDA_SUCCESS) return absl::OkStatus();
  delete item;
  return absl::InternalError(std::string(name) + " could not be launched: " + std::to_string(failed));
}

void copy_on_device(OpKernelContext* context, const Tensor& from, const Tensor& to) {
  const auto stream = reinterpret_cast<CUstream>(stream_of(context));
  check(driver().cuMemcpyAsync(address_of(to.data()), address_of(from.data()), from.TotalBytes(), stream),
        "cuMemcpyAsync");
}

SP_Stream compute_stream(int ordinal) {
  return compute_streams.at(ordinal);
}

absl::Status create_processor_kernel(const tensorflow::NodeDef& node, std::shared_ptr<OpKernel>* kernel) {
  std::shared_ptr<const tensorflow::NodeProperties> properties;
  TF_RETURN_IF_ERROR(
      tensorflow::NodeProperties::CreateFromNodeDef(node, tensorflow::OpRegistry::Global(), &properties));
  OpKernel* made = nullptr;
  TF_RETURN_IF_ERROR(tensorflow::CreateOpKernel(tensorflow::DeviceType("CPU"), processor(),
                                                processor()->GetAllocator({}), nullptr, properties,
                                                TF_GRAPH_DEF_VERSION, &made));
  kernel->reset(made);
  return absl::OkStatus();
}

}  // namespace fake_gpu
