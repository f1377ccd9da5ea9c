// SPDX-License-Identifier: Apache-2.0
// Kernels of the collective ops.
//
// The same classes serve as kernels for GPUs: then tensors lie in the GPU's memory, and numbers of rows and scalars in
// the host's.
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "call.h"
#include "gpu_kernels.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace farandole_tensorflow {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Reads the attributes of an op.
CallOptions read_options(OpKernelConstruction* context, const std::string& node_name) {
  CallOptions options;
  int value = 0;
  (void)context->GetAttr("process_set", &value);
  options.process_set = value;
  (void)context->GetAttr("caller_waits", &options.caller_waits);
  if (context->HasAttr("about")) (void)context->GetAttr("about", &options.about);
  if (context->HasAttr("tensor_name")) (void)context->GetAttr("tensor_name", &options.name);
  if (!options.name.empty()) return options;
  options.name = node_name;
  bool ignore_name_scope = false;
  if (context->HasAttr("ignore_name_scope")) (void)context->GetAttr("ignore_name_scope", &ignore_name_scope);
  if (ignore_name_scope) options.name.erase(0, options.name.rfind('/') + 1);
  return options;
}

double read_factor(OpKernelConstruction* context, const char* attribute) {
  std::string text;
  (void)context->GetAttr(attribute, &text);
  char* end = nullptr;
  const double factor = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') {
    context->CtxFailure(absl::InvalidArgumentError(absl::StrCat(attribute, " is '", text, "'; it must be a number")));
  }
  return factor;
}

class CollectiveKernel : public AsyncOpKernel {
 public:
  CollectiveKernel(OpKernelConstruction* context, farandole_collective collective)
      : AsyncOpKernel(context), options_(read_options(context, name())) {
    options_.collective = collective;
    options_.is_on_gpu = context->device_type() == tensorflow::DEVICE_GPU;
    if (context->HasAttr("root_rank")) OP_REQUIRES_OK(context, context->GetAttr("root_rank", &options_.root));
    if (!context->HasAttr("reduce_op")) return;
    int op = 0;
    OP_REQUIRES_OK(context, context->GetAttr("reduce_op", &op));
    options_.op = static_cast<farandole_reduce_op>(op);
    options_.prescale = read_factor(context, "prescale_factor");
    options_.postscale = read_factor(context, "postscale_factor");
  }

 protected:
  std::shared_ptr<Call> make_call(OpKernelContext* context, DoneCallback done, int tensor_count) const {
    return std::make_shared<Call>(context, std::move(done), options_, tensor_count);
  }
  const CallOptions& options() const { return options_; }

 private:
  CallOptions options_;
};

/// Allreduce and broadcast: each result has its input's shape, and reuses the input's memory if no other op needs it.
template <farandole_collective kCollective>
class SameShapeKernel : public CollectiveKernel {
 public:
  explicit SameShapeKernel(OpKernelConstruction* context) : CollectiveKernel(context, kCollective) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const int count = context->num_inputs();
    std::vector<Tensor*> outputs(count);
    for (int i = 0; i < count; ++i) {
      OP_REQUIRES_OK_ASYNC(
          context, context->forward_input_or_allocate_output({i}, i, context->input(i).shape(), &outputs[i]), done);
    }
    const auto call = make_call(context, std::move(done), count);
    for (int i = 0; i < count; ++i) call->add(context->input(i), *outputs[i]);
    call->submit();
  }
};

/// Allgather and reduce_scatter: the number of rows of a result is known only after all ranks have announced theirs.
template <farandole_collective kCollective>
class VariableRowsKernel : public CollectiveKernel {
 public:
  explicit VariableRowsKernel(OpKernelConstruction* context) : CollectiveKernel(context, kCollective) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const int count = context->num_inputs();
    const auto call = make_call(context, std::move(done), count);
    for (int i = 0; i < count; ++i) call->add_with_deferred_output(context->input(i), i);
    call->submit();
  }
};

class AlltoallKernel : public CollectiveKernel {
 public:
  explicit AlltoallKernel(OpKernelConstruction* context) : CollectiveKernel(context, FARANDOLE_ALLTOALL) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const Tensor& given = context->input(1);
    std::vector<int64_t> splits(given.NumElements());
    for (std::size_t i = 0; i < splits.size(); ++i) {
      splits[i] = given.dtype() == tensorflow::DT_INT32 ? given.flat<int32_t>()(i) : given.flat<int64_t>()(i);
    }
    const auto call = make_call(context, std::move(done), 1);
    call->add_with_deferred_output(context->input(0), 0, &splits, 1);
    call->submit();
  }
};

class BarrierKernel : public CollectiveKernel {
 public:
  explicit BarrierKernel(OpKernelConstruction* context) : CollectiveKernel(context, FARANDOLE_BARRIER) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const auto call = make_call(context, std::move(done), 1);
    call->add_nothing();
    call->submit();
  }
};

class JoinKernel : public AsyncOpKernel {
 public:
  explicit JoinKernel(OpKernelConstruction* context)
      : AsyncOpKernel(context), options_(read_options(context, name())) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    std::make_shared<Call>(context, std::move(done), options_, 0)->submit_join();
  }

 private:
  const CallOptions options_;
};

/// Broadcasts variables in place. If a tensor that was read from a variable still shares the variable's memory
/// (TensorFlow copies on write), the rank receives into new memory, which replaces the variable's memory after success.
class BroadcastVariablesKernel : public CollectiveKernel {
 public:
  explicit BroadcastVariablesKernel(OpKernelConstruction* context) : CollectiveKernel(context, FARANDOLE_BROADCAST) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const auto targets = std::make_shared<std::vector<Target>>(context->num_inputs());
    for (int i = 0; i < context->num_inputs(); ++i) {
      const absl::Status status = prepare(context, i, (*targets)[i]);
      if (!status.ok()) refuse(options(), context->step_id(), status);
      OP_REQUIRES_OK_ASYNC(context, status, done);
    }
    const auto call = make_call(context, std::move(done), context->num_inputs());
    for (const Target& target : *targets) {
      call->add(target.input, target.output);
    }
    call->on_success([targets] {
      for (const Target& target : *targets) {
        if (!target.is_new) continue;
        const tensorflow::mutex_lock lock(*target.variable->mu());
        *target.variable->tensor() = target.output;
      }
    });
    call->submit();
  }

 private:
  struct Target {
    tensorflow::core::RefCountPtr<tensorflow::Var> variable;
    Tensor input, output;  // own the memory until the call has ended
    bool is_new = false;
  };

  absl::Status prepare(OpKernelContext* context, int index, Target& target) const {
    TF_RETURN_IF_ERROR(
        tensorflow::LookupResource(context, tensorflow::HandleFromInput(context, index), &target.variable));
    const tensorflow::mutex_lock lock(*target.variable->mu());
    Tensor* const value = target.variable->tensor();
    if (!target.variable->is_initialized) {
      return error_status(FARANDOLE_INVALID_ARGUMENT,
                          absl::StrCat(options().name, ": variable ", index, " of ", context->num_inputs(),
                                       " has no value yet; initialise it on every rank before it is broadcast"));
    }
    // The root's memory is only read, so it may be shared.
    target.is_new = current_place().rank != options().root && !value->RefCountIsOne();
    target.input = *value;
    if (target.is_new) {
      TF_RETURN_IF_ERROR(context->allocate_temp(value->dtype(), value->shape(), &target.output));
    } else {
      target.output = *value;
    }
    return absl::OkStatus();
  }
};

#define FARANDOLE_REGISTER_KERNEL(name, ...) \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU), __VA_ARGS__)

FARANDOLE_REGISTER_KERNEL("FarandoleAllreduce", SameShapeKernel<FARANDOLE_ALLREDUCE>);
FARANDOLE_REGISTER_KERNEL("FarandoleBroadcast", SameShapeKernel<FARANDOLE_BROADCAST>);
FARANDOLE_REGISTER_KERNEL("FarandoleAllgather", VariableRowsKernel<FARANDOLE_ALLGATHER>);
FARANDOLE_REGISTER_KERNEL("FarandoleReducescatter", VariableRowsKernel<FARANDOLE_REDUCE_SCATTER>);
FARANDOLE_REGISTER_KERNEL("FarandoleBroadcastVariables", BroadcastVariablesKernel);
FARANDOLE_REGISTER_KERNEL("FarandoleAlltoall", AlltoallKernel);
FARANDOLE_REGISTER_KERNEL("FarandoleBarrier", BarrierKernel);
FARANDOLE_REGISTER_KERNEL("FarandoleJoin", JoinKernel);

}  // namespace

void register_gpu_collectives() {
  register_gpu_kernel<SameShapeKernel<FARANDOLE_ALLREDUCE>>("FarandoleAllreduce");
  register_gpu_kernel<SameShapeKernel<FARANDOLE_BROADCAST>>("FarandoleBroadcast");
  register_gpu_kernel<VariableRowsKernel<FARANDOLE_ALLGATHER>>("FarandoleAllgather");
  register_gpu_kernel<VariableRowsKernel<FARANDOLE_REDUCE_SCATTER>>("FarandoleReducescatter");
  register_gpu_kernel<BroadcastVariablesKernel>("FarandoleBroadcastVariables", {"variables"});
  register_gpu_kernel<AlltoallKernel>("FarandoleAlltoall", {"splits", "received_splits"});
  register_gpu_kernel<BarrierKernel>("FarandoleBarrier");
  register_gpu_kernel<JoinKernel>("FarandoleJoin", {"last_rank"});
}

}  // namespace farandole_tensorflow
