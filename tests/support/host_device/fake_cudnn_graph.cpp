// SPDX-License-Identifier: Apache-2.0
// The double of cuDNN's graph API. Descriptors must have all their attributes, of the right types, before they are
// finalized; a plan must get the address of each tensor. A graph has three engines:
//
//   kNondeterministic  of graphs with gradients only: products are off by a random error of up to 2^-12
//   kBroken            no plan of which can be finalized
//   kGood              needs FAKE_CUDNN_WORKSPACE bytes
#include "fake_cudnn_graph.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include "fake_cudnn_descriptor.h"
#include "fake_device.h"
#include "fake_options.h"

namespace farandole::fake {
namespace cudnn {
namespace {

constexpr std::uintptr_t kAlignment = 16;

cudnnStatus_t refuse(cudnnStatus_t status, std::string reason) {
  last_error() = std::move(reason);
  return status;
}

GraphTensor tensor_of(const Descriptor& descriptor) {
  GraphTensor tensor;
  tensor.id = descriptor.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  tensor.type = descriptor.one<int>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  std::ranges::copy(descriptor.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS), tensor.extents.begin());
  std::ranges::copy(descriptor.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES), tensor.strides.begin());
  tensor.is_virtual = descriptor.one<unsigned char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0;
  tensor.is_number = descriptor.one<unsigned char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0;
  return tensor;
}

/// Adds tensors to a graph. Returns the id of each.
class TensorsOfGraph {
 public:
  TensorsOfGraph(const Descriptor& operation, Graph& graph) : operation_(operation), graph_(graph) {}
  std::vector<std::int64_t> ids(std::initializer_list<cudnnBackendAttributeName_t> names) {
    std::vector<std::int64_t> result;
    for (const cudnnBackendAttributeName_t name : names) {
      for (const Descriptor* const descriptor : operation_.descriptors(name)) {
        const GraphTensor tensor = tensor_of(*descriptor);
        graph_.tensors.try_emplace(tensor.id, tensor);
        result.push_back(tensor.id);
      }
    }
    return result;
  }

 private:
  const Descriptor& operation_;
  Graph& graph_;
};

GraphOperation operation_of(const Descriptor& descriptor, Graph& graph) {
  TensorsOfGraph tensors(descriptor, graph);
  GraphOperation operation;
  switch (descriptor.type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
      const Descriptor& kind = *descriptor.descriptors(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR).front();
      operation.kind = GraphOperationKind::kPointwise;
      operation.mode = kind.one<int>(CUDNN_ATTR_POINTWISE_MODE);
      operation.axis = kind.one<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1);
      operation.inputs = tensors.ids({CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                      CUDNN_ATTR_OPERATION_POINTWISE_TDESC});
      operation.output = tensors.ids({CUDNN_ATTR_OPERATION_POINTWISE_YDESC}).front();
      break;
    }
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      operation.kind = GraphOperationKind::kProduct;
      operation.inputs = tensors.ids({CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC});
      operation.output = tensors.ids({CUDNN_ATTR_OPERATION_MATMUL_CDESC}).front();
      break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      operation.kind = GraphOperationKind::kReduction;
      operation.mode =
          descriptor.descriptors(CUDNN_ATTR_OPERATION_REDUCTION_DESC).front()->one<int>(CUDNN_ATTR_REDUCTION_OPERATOR);
      operation.inputs = tensors.ids({CUDNN_ATTR_OPERATION_REDUCTION_XDESC});
      operation.output = tensors.ids({CUDNN_ATTR_OPERATION_REDUCTION_YDESC}).front();
      break;
    default:
      operation.kind = GraphOperationKind::kReshape;
      operation.inputs = tensors.ids({CUDNN_ATTR_OPERATION_RESHAPE_XDESC});
      operation.output = tensors.ids({CUDNN_ATTR_OPERATION_RESHAPE_YDESC}).front();
      break;
  }
  return operation;
}

cudnnStatus_t finalize_graph(Descriptor& descriptor) {
  auto graph = std::make_shared<Graph>();
  for (const Descriptor* const operation : descriptor.descriptors(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    graph->operations.push_back(operation_of(*operation, *graph));
  }
  if (std::string mistake = graph->mistake(); !mistake.empty()) return refuse(CUDNN_STATUS_BAD_PARAM, mistake);
  descriptor.graph = std::move(graph);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_plan(const char* call, Descriptor& plan) {
  const auto handle = static_cast<cudnnHandle_t>(plan.one<void*>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE));
  if (handle_of(call, handle) == nullptr) return CUDNN_STATUS_BAD_PARAM;
  const Descriptor& configuration = *plan.descriptors(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).front();
  plan.graph = configuration.graph;
  plan.engine = configuration.engine;
  if (plan.engine == Engine::kBroken) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "an engine of the double refuses");
  return CUDNN_STATUS_SUCCESS;
}

std::size_t workspace_of(Engine engine) {
  return engine == Engine::kBroken ? 0 : static_cast<std::size_t>(option(Option::kCudnnWorkspace));
}

/// The engines that a mode of the heuristics offers. The good one is a fallback of gradients.
std::vector<Engine> offered(const Graph& graph, int mode) {
  if (!graph.refusal().empty()) return {};
  if (!graph.is_backward()) {
    return mode == CUDNN_HEUR_MODE_A ? std::vector{Engine::kBroken, Engine::kGood} : std::vector<Engine>{};
  }
  return mode == CUDNN_HEUR_MODE_A ? std::vector{Engine::kNondeterministic, Engine::kBroken}
                                   : std::vector{Engine::kGood};
}

cudnnStatus_t give_configurations(const char* call, const Descriptor& heuristics, std::span<void*> results,
                                  std::int64_t* count) {
  const std::shared_ptr<const Graph>& graph =
      heuristics.descriptors(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).front()->graph;
  const std::vector<Engine> engines = offered(*graph, heuristics.one<int>(CUDNN_ATTR_ENGINEHEUR_MODE));
  *count = static_cast<std::int64_t>(std::min(engines.size(), results.size()));
  for (std::size_t k = 0; k < static_cast<std::size_t>(*count); ++k) {
    auto* const configuration = object_of<Descriptor>(call, results[k]);
    if (configuration == nullptr || configuration->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
      return refuse(CUDNN_STATUS_BAD_PARAM, "results are to be configurations of engines");
    }
    configuration->graph = graph;
    configuration->engine = engines[k];
    configuration->is_final = true;
  }
  return CUDNN_STATUS_SUCCESS;
}

void run_graph(void* argument, int is_possible) {
  if (is_possible != 0) static_cast<const GraphRun*>(argument)->compute();
}
void release_graph(void* argument) {
  delete static_cast<GraphRun*>(argument);
}

/// The memory of a run, as the program knows it. Returns "" or what is wrong.
std::string collect(const Graph& graph, const Descriptor& pack, GraphRun& run,
                    std::vector<FakeDeviceAccess>& accesses) {
  const auto ids = pack.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (ids.size() != pointers.size()) return "as many ids as addresses are needed";
  std::set<std::int64_t> written;
  for (const GraphOperation& operation : graph.operations) written.insert(operation.output);
  for (const auto& [id, tensor] : graph.tensors) {
    if (tensor.is_virtual) continue;
    const auto found = std::ranges::find(ids, id);
    if (found == ids.end()) return fmt::format("no address of tensor {}", id);
    void* const address = pointers[static_cast<std::size_t>(found - ids.begin())];
    if (tensor.is_number) {
      run.numbers[id] = *static_cast<const float*>(address);
      continue;
    }
    if (reinterpret_cast<std::uintptr_t>(address) % kAlignment != 0) return fmt::format("tensor {} is not aligned", id);
    accesses.push_back({address, tensor.span() * bytes_of(tensor.type), written.contains(id) ? 1 : 0});
    run.addresses[id] = fake_device_stream_address(address);
  }
  for (const std::int64_t id : ids) {
    const auto found = graph.tensors.find(id);
    if (found == graph.tensors.end() || found->second.is_virtual)
      return fmt::format("no tensor {} needs an address", id);
  }
  return "";
}

cudnnStatus_t execute(const char* call, const CudnnHandle& handle, const Descriptor& plan, const Descriptor& pack) {
  auto run = std::make_unique<GraphRun>();
  run->graph = plan.graph;
  run->workspace_bytes = workspace_of(plan.engine);
  if (plan.engine == Engine::kNondeterministic) {
    run->product_factor = 1 + static_cast<float>(random_number() % 256) * 0x1p-20F;
  }
  std::vector<FakeDeviceAccess> accesses;
  if (std::string wrong = collect(*plan.graph, pack, *run, accesses); !wrong.empty()) {
    return refuse(CUDNN_STATUS_BAD_PARAM, wrong);
  }
  if (run->workspace_bytes > 0) {
    void* const workspace = pack.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    accesses.push_back({workspace, run->workspace_bytes, 1});
    run->workspace = static_cast<unsigned char*>(fake_device_stream_address(workspace));
  }
  const int failed =
      fake_device_launch(handle.stream, call, &run_graph, run.get(), &release_graph, accesses.data(), accesses.size());
  if (failed != 0) return CUDNN_STATUS_EXECUTION_FAILED;
  (void)run.release();
  return CUDNN_STATUS_SUCCESS;
}

/// Copies values of an attribute that the double computes.
template <class T>
cudnnStatus_t give(const std::vector<T>& values, std::int64_t requested, std::int64_t* count, void* to) {
  *count = static_cast<std::int64_t>(values.size());
  std::memcpy(to, values.data(), static_cast<std::size_t>(std::min(requested, *count)) * sizeof(T));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t give_attribute(const char* call, const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                             std::int64_t requested, std::int64_t* count, void* values) {
  if (!descriptor.is_final) return refuse(CUDNN_STATUS_BAD_PARAM, "the descriptor is not finalized");
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      return give_configurations(call, descriptor, {static_cast<void**>(values), static_cast<std::size_t>(requested)},
                                 count);
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
      auto* const engine = object_of<Descriptor>(call, *static_cast<void**>(values));
      if (engine == nullptr) return CUDNN_STATUS_BAD_PARAM;
      engine->engine = descriptor.engine;
      engine->is_final = true;
      *count = 1;
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      return give(descriptor.engine == Engine::kNondeterministic ? std::vector{0, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}
                                                                 : std::vector{0},
                  requested, count, values);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return give(std::vector{static_cast<std::int64_t>(workspace_of(descriptor.engine))}, requested, count, values);
    default:
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, fmt::format("the double cannot give attribute {}", name));
  }
}

}  // namespace
}  // namespace cudnn

// NOLINTBEGIN(readability-identifier-naming): cuDNN's names
extern "C" {
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  FARANDOLE_CUDNN_CALL;
  *descriptor = &make_kept<cudnn::Descriptor>(type);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  FARANDOLE_CUDNN_CALL;
  auto* const object = cudnn::object_of<cudnn::Descriptor>(__func__, descriptor);
  if (object == nullptr) return CUDNN_STATUS_BAD_PARAM;
  object->die();
  object->attributes.clear();
  object->graph.reset();
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  FARANDOLE_CUDNN_CALL;
  auto* const object = cudnn::object_of<cudnn::Descriptor>(__func__, descriptor);
  if (object == nullptr || object->is_final || values == nullptr) return CUDNN_STATUS_BAD_PARAM;
  if (!cudnn::is_attribute(object->type, name, type, count)) {
    return cudnn::refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("attribute {} of descriptor {} is no {} values of type {}",
                                                             name, object->type, count, type));
  }
  const auto* const bytes = static_cast<const unsigned char*>(values);
  object->attributes[name].assign(bytes, bytes + static_cast<std::size_t>(count) * cudnn::bytes_of_attribute(type));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  FARANDOLE_CUDNN_CALL;
  auto* const object = cudnn::object_of<cudnn::Descriptor>(__func__, descriptor);
  if (object == nullptr || object->is_final) return CUDNN_STATUS_BAD_PARAM;
  if (std::string reason = cudnn::missing(__func__, *object); !reason.empty()) {
    return cudnn::refuse(CUDNN_STATUS_BAD_PARAM, reason);
  }
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  if (object->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) status = cudnn::finalize_graph(*object);
  if (object->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) status = cudnn::finalize_plan(__func__, *object);
  object->is_final = status == CUDNN_STATUS_SUCCESS;
  return status;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t /*type*/, std::int64_t requested,
                                       std::int64_t* count, void* values) {
  FARANDOLE_CUDNN_CALL;
  const auto* const object = cudnn::object_of<cudnn::Descriptor>(__func__, descriptor);
  if (object == nullptr) return CUDNN_STATUS_BAD_PARAM;
  return cudnn::give_attribute(__func__, *object, name, requested, count, values);
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  FARANDOLE_CUDNN_CALL;
  const cudnn::CudnnHandle* const owner = cudnn::handle_of(__func__, handle);
  const auto* const of_plan = cudnn::object_of<cudnn::Descriptor>(__func__, plan);
  const auto* const of_pack = cudnn::object_of<cudnn::Descriptor>(__func__, pack);
  if (owner == nullptr || of_plan == nullptr || of_pack == nullptr || !of_plan->is_final || !of_pack->is_final) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  return cudnn::execute(__func__, *owner, *of_plan, *of_pack);
}
}  // extern "C"
// NOLINTEND(readability-identifier-naming)

}  // namespace farandole::fake
