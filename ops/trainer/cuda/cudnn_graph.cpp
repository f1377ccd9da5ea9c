// SPDX-License-Identifier: Apache-2.0
#include "cudnn_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::trainer::cuda {
namespace {

/// Engine configurations of a query. cuDNN offers fewer for attention.
constexpr std::size_t kMaxConfigurations = 32;
constexpr std::int64_t kAlignmentBytes = 16;
constexpr std::int64_t kNoAxis = -1;

void check(const CudnnApi& api, cudnnStatus_t status, std::string_view action) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw GraphRefused(fmt::format("{}: {}{}", action, api.cudnnGetErrorString(status), last_error_of(api)));
}

}  // namespace

GraphDescriptor::GraphDescriptor(const CudnnApi& api, cudnnBackendDescriptorType_t type) : api_(&api) {
  check(api, api.cudnnBackendCreateDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
}

GraphDescriptor::~GraphDescriptor() {
  if (descriptor_ != nullptr) api_->cudnnBackendDestroyDescriptor(descriptor_);
}

GraphDescriptor::GraphDescriptor(GraphDescriptor&& other) noexcept
    : api_(other.api_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}

void GraphDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t count,
                          const void* values) {
  const auto elements = static_cast<std::int64_t>(count);
  check(*api_, api_->cudnnBackendSetAttribute(descriptor_, name, type, elements, values), "cudnnBackendSetAttribute");
}

std::size_t GraphDescriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                 std::size_t capacity, void* values) const {
  std::int64_t count = 0;
  const auto requested = static_cast<std::int64_t>(capacity);
  check(*api_, api_->cudnnBackendGetAttribute(descriptor_, name, type, requested, &count, values),
        "cudnnBackendGetAttribute");
  return static_cast<std::size_t>(count);
}

void GraphDescriptor::finalize() {
  check(*api_, api_->cudnnBackendFinalize(descriptor_), "cudnnBackendFinalize");
}

GraphLayout GraphLayout::packed(const std::array<std::int64_t, 4>& extents) {
  const auto [samples, heads, rows, columns] = extents;
  return {extents, {heads * rows * columns, rows * columns, columns, 1}};
}

GraphLayout GraphLayout::transposed() const {
  GraphLayout result = *this;
  std::swap(result.extents[2], result.extents[3]);
  std::swap(result.strides[2], result.strides[3]);
  return result;
}

void GraphPlan::execute(const Cudnn& cudnn, std::span<const GraphAddress> addresses, void* workspace) const {
  std::vector<std::int64_t> ids(addresses.size());
  std::vector<const void*> pointers(addresses.size());
  std::ranges::transform(addresses, ids.begin(), &GraphAddress::id);
  std::ranges::transform(addresses, pointers.begin(), &GraphAddress::address);
  cudnn.device().run_bound([&] {
    try {
      GraphDescriptor pack(cudnn.api(), CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
      pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids.size(), ids.data());
      pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.size(), pointers.data());
      pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
      pack.finalize();
      cudnn.check(cudnn.api().cudnnBackendExecute(cudnn.handle(), plan_.get(), pack.get()), "cudnnBackendExecute");
    } catch (const GraphRefused& refused) {
      throw DeviceError(fmt::format("cuDNN refuses the addresses of a graph on CUDA device {}: {}",
                                    cudnn.device().info().ordinal, refused.what()));
    }
  });
}

GraphTensor CudnnGraph::add_tensor(std::int64_t id, const GraphLayout& layout, cudnnDataType_t type, bool is_virtual,
                                   bool is_number) {
  GraphDescriptor& tensor = add(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, layout.extents.size(), layout.extents.data());
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, layout.strides.size(), layout.strides.data());
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignmentBytes);
  tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, is_number);
  tensor.finalize();
  return {tensor.get()};
}

GraphTensor CudnnGraph::tensor(std::int64_t id, const GraphLayout& layout, cudnnDataType_t type) {
  return add_tensor(id, layout, type, false, false);
}
GraphTensor CudnnGraph::number(std::int64_t id) {
  return add_tensor(id, GraphLayout::packed({1, 1, 1, 1}), CUDNN_DATA_FLOAT, false, true);
}
GraphTensor CudnnGraph::inner(const GraphLayout& layout, cudnnDataType_t type) {
  return add_tensor(next_id_++, layout, type, true, false);
}

void CudnnGraph::finish(GraphDescriptor& operation) {
  operation.finalize();
  operations_.push_back(operation.get());
}
void CudnnGraph::finish(GraphDescriptor& operation, GraphDescriptor kind) {
  finish(operation);
  descriptors_.push_back(std::move(kind));
}

void CudnnGraph::add_pointwise(cudnnPointwiseMode_t mode, std::span<const GraphTensor> operands, GraphTensor output,
                               cudnnDataType_t compute, std::int64_t axis) {
  GraphDescriptor kind(api_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, compute);
  if (axis != kNoAxis) kind.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  kind.finalize();
  constexpr std::array kOperands{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                 CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  GraphDescriptor& operation = add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  for (std::size_t k = 0; k < operands.size(); ++k) {
    operation.set(kOperands.at(k), operands[k]);
  }
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, output);
  finish(operation, std::move(kind));
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, std::initializer_list<GraphTensor> operands, GraphTensor output,
                           cudnnDataType_t compute) {
  add_pointwise(mode, operands, output, compute, kNoAxis);
}

void CudnnGraph::index(GraphTensor like, std::int64_t axis, GraphTensor output) {
  add_pointwise(CUDNN_POINTWISE_GEN_INDEX, std::span(&like, 1), output, CUDNN_DATA_FLOAT, axis);
}

void CudnnGraph::multiply(GraphTensor left, GraphTensor right, GraphTensor output) {
  GraphDescriptor kind(api_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize();
  GraphDescriptor& operation = add(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, left);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, right);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, output);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
  finish(operation, std::move(kind));
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t operation, GraphTensor input, GraphTensor output) {
  GraphDescriptor kind(api_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, operation);
  kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize();
  GraphDescriptor& reduction = add(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  reduction.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, input);
  reduction.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, output);
  reduction.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
  finish(reduction, std::move(kind));
}

void CudnnGraph::reshape(GraphTensor input, GraphTensor output) {
  GraphDescriptor& operation = add(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, input);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, output);
  finish(operation);
}

/// The engine configurations that a mode of the heuristics offers, the fastest first.
std::vector<GraphDescriptor> CudnnGraph::configurations(const GraphTarget& target, const GraphDescriptor& graph,
                                                        cudnnBackendHeurMode_t mode) const {
  GraphDescriptor heuristics(api_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (target.handle == nullptr) {
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, target.device);
  }
  heuristics.finalize();
  std::vector<GraphDescriptor> found;
  std::vector<cudnnBackendDescriptor_t> descriptors;
  for (std::size_t k = 0; k < kMaxConfigurations; ++k) {
    descriptors.push_back(found.emplace_back(api_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  }
  const std::size_t count = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                           descriptors.size(), descriptors.data());
  while (found.size() > count) found.pop_back();
  return found;
}

bool CudnnGraph::is_nondeterministic(const GraphDescriptor& configuration) const {
  GraphDescriptor engine(api_, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t descriptor = engine.get();
  configuration.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &descriptor);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const std::size_t count =
      engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes.size(), notes.data());
  return std::ranges::count(std::span(notes).first(std::min(count, notes.size())),
                            CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) > 0;
}

GraphDescriptor CudnnGraph::plan_of(const GraphTarget& target, const GraphDescriptor& configuration) const {
  GraphDescriptor plan(api_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (target.handle != nullptr) {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  } else {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, target.device);
  }
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  plan.finalize();
  return plan;
}

GraphPlan CudnnGraph::plan(const GraphTarget& target, const PlanLimits& limits) && {
  GraphDescriptor graph(api_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (target.handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations_.size(), operations_.data());
  graph.finalize();
  std::string reason = "no engine";
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    try {
      std::vector<GraphDescriptor> found = configurations(target, graph, mode);
      if (found.empty()) reason = "no engine" + last_error_of(api_);
      for (GraphDescriptor& configuration : found) {
        if (limits.is_deterministic && is_nondeterministic(configuration)) {
          reason = "no deterministic engine";
          continue;
        }
        try {
          GraphDescriptor plan = plan_of(target, configuration);
          std::int64_t bytes = 0;
          plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
          descriptors_.push_back(std::move(configuration));
          descriptors_.push_back(std::move(graph));
          return {std::move(descriptors_), std::move(plan), static_cast<std::size_t>(bytes)};
        } catch (const GraphRefused& refused) {
          reason = refused.what();
        }
      }
    } catch (const GraphRefused& refused) {
      reason = refused.what();
    }
  }
  throw GraphRefused(reason);
}

}  // namespace farandole::trainer::cuda
