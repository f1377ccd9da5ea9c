// SPDX-License-Identifier: Apache-2.0
// Kernels that return this process's place in the job. They query the engine when they run, not when the graph is
// built.
#include <algorithm>
#include <vector>

#include "call.h"
#include "farandole/engine.h"
#include "gpu_kernels.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace farandole_tensorflow {
namespace {

/// Returns the ranks of a process set; empty if there is no such set or no job.
std::vector<int32_t> ranks_of(int32_t process_set) {
  std::vector<int32_t> ranks;
  if (farandole_is_initialized() == 0) return ranks;
  const int32_t count = farandole_process_set_ranks(process_set, nullptr, 0);
  ranks.resize(std::max(count, 0));
  if (farandole_process_set_ranks(process_set, ranks.data(), count) != count) ranks.clear();  // removed meanwhile
  return ranks;
}

int32_t rank_in(int32_t process_set) {
  const std::vector<int32_t> ranks = ranks_of(process_set);
  const auto own = std::find(ranks.begin(), ranks.end(), current_place().rank);
  return own == ranks.end() ? -1 : static_cast<int32_t>(own - ranks.begin());
}

int32_t size_of(int32_t process_set) {
  const std::vector<int32_t> ranks = ranks_of(process_set);
  return ranks.empty() ? -1 : static_cast<int32_t>(ranks.size());
}

int32_t local_rank(int32_t) {
  return current_place().local_rank;
}
int32_t local_size(int32_t) {
  return current_place().local_size;
}

/// Returns 1 if this rank is in the set, 0 if it is not, -1 before `init`, -2 if there is no such set.
int32_t inclusion_of(int32_t process_set) {
  if (farandole_is_initialized() == 0) return -1;
  if (ranks_of(process_set).empty()) return -2;
  return rank_in(process_set) < 0 ? 0 : 1;
}

template <int32_t (*kFunction)(int32_t)>
class TopologyKernel : public tensorflow::OpKernel {
 public:
  explicit TopologyKernel(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("process_set", &process_set_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    tensorflow::Tensor* value = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &value));
    value->scalar<int32_t>()() = kFunction(process_set_);
  }

 private:
  int32_t process_set_ = FARANDOLE_GLOBAL_SET;
};

#define FARANDOLE_REGISTER_TOPOLOGY_KERNEL(name, function) \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU), TopologyKernel<function>)

FARANDOLE_REGISTER_TOPOLOGY_KERNEL("FarandoleRank", rank_in);
FARANDOLE_REGISTER_TOPOLOGY_KERNEL("FarandoleSize", size_of);
FARANDOLE_REGISTER_TOPOLOGY_KERNEL("FarandoleLocalRank", local_rank);
FARANDOLE_REGISTER_TOPOLOGY_KERNEL("FarandoleLocalSize", local_size);
FARANDOLE_REGISTER_TOPOLOGY_KERNEL("FarandoleProcessSetIncluded", inclusion_of);

}  // namespace

void register_gpu_topology() {
  register_gpu_kernel<TopologyKernel<rank_in>>("FarandoleRank", {"value"});
  register_gpu_kernel<TopologyKernel<size_of>>("FarandoleSize", {"value"});
  register_gpu_kernel<TopologyKernel<local_rank>>("FarandoleLocalRank", {"value"});
  register_gpu_kernel<TopologyKernel<local_size>>("FarandoleLocalSize", {"value"});
  register_gpu_kernel<TopologyKernel<inclusion_of>>("FarandoleProcessSetIncluded", {"value"});
}

}  // namespace farandole_tensorflow
