// SPDX-License-Identifier: Apache-2.0
// Graphs of cuDNN's graph API, and the plans that run them.
//
//     CudnnGraph graph(api);
//     const GraphTensor x = graph.tensor(1, {layout of x}, CUDNN_DATA_HALF), y = graph.tensor(2, ...);
//     graph.pointwise(CUDNN_POINTWISE_EXP, {x}, y);
//     const GraphPlan plan = std::move(graph).plan(target, limits);
//     plan.execute(cudnn, {{1, address of x}, {2, address of y}}, workspace);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <vector>

#include "cudnn.h"

namespace farandole::trainer::cuda {

/// A graph that cuDNN cannot compute. The text is cuDNN's reason.
class GraphRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A tensor of a graph. Valid as long as the graph or its plan.
struct GraphTensor {
  cudnnBackendDescriptor_t descriptor;
};

/// A descriptor of the graph API. Errors of all its functions: GraphRefused.
class GraphDescriptor {
 public:
  /// @param api  outlives this object
  GraphDescriptor(const CudnnApi& api, cudnnBackendDescriptorType_t type);
  ~GraphDescriptor();
  GraphDescriptor(GraphDescriptor&& other) noexcept;
  GraphDescriptor& operator=(GraphDescriptor&&) = delete;
  GraphDescriptor(const GraphDescriptor&) = delete;
  GraphDescriptor& operator=(const GraphDescriptor&) = delete;

  cudnnBackendDescriptor_t get() const { return descriptor_; }
  /// Sets an attribute to `count` values of the attribute type `type`.
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t count, const void* values);
  template <class Value>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const Value& value) {
    set(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const GraphDescriptor& value) { set(name, GraphTensor{value.get()}); }
  void set(cudnnBackendAttributeName_t name, GraphTensor value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.descriptor);
  }
  /// Fills up to `capacity` values. Returns how many there are.
  std::size_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t capacity,
                  void* values) const;
  void finalize();

 private:
  const CudnnApi* api_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

/// Extents of a tensor {samples, heads, rows, columns}, and the elements from an index to the next, of each extent.
struct GraphLayout {
  std::array<std::int64_t, 4> extents, strides;

  /// Without gaps.
  static GraphLayout packed(const std::array<std::int64_t, 4>& extents);
  /// The same elements with rows and columns exchanged.
  GraphLayout transposed() const;
};

/// The device on which a plan is to run: that of `handle`, or if that is null, the one that `device`, a
/// CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, describes. A plan without a handle cannot be executed.
struct GraphTarget {
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t device = nullptr;
};
/// The plans that may be chosen.
struct PlanLimits {
  bool is_deterministic = false;  ///< none whose engine cuDNN calls nondeterministic
};

/// The address of a tensor: in memory of the device, or of a number in host memory, which `execute` reads.
struct GraphAddress {
  std::int64_t id;
  const void* address;
};

/// A plan that runs a graph. Used by one thread at a time.
class GraphPlan {
 public:
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  /// Enqueues the graph. @param addresses  of each tensor with an id   @param workspace  of `workspace_bytes`
  /// @throws DeviceError  with cuDNN's reason
  void execute(const Cudnn& cudnn, std::span<const GraphAddress> addresses, void* workspace) const;

 private:
  friend class CudnnGraph;
  GraphPlan(std::vector<GraphDescriptor> graph, GraphDescriptor plan, std::size_t workspace_bytes)
      : graph_(std::move(graph)), plan_(std::move(plan)), workspace_bytes_(workspace_bytes) {}

  std::vector<GraphDescriptor> graph_;
  GraphDescriptor plan_;
  std::size_t workspace_bytes_;
};

/// A graph of operations. Operations compute in f32. Errors of all functions: GraphRefused.
class CudnnGraph {
 public:
  /// @param api  outlives the graph and its plan
  explicit CudnnGraph(const CudnnApi& api) : api_(api) {}

  /// A tensor in memory of the device, at a multiple of 16 bytes. @param id  positive, below kFirstInnerId
  GraphTensor tensor(std::int64_t id, const GraphLayout& layout, cudnnDataType_t type);
  /// A number of type f32, read from host memory.
  GraphTensor number(std::int64_t id);
  /// A tensor between two operations, which need not be in memory.
  GraphTensor inner(const GraphLayout& layout, cudnnDataType_t type = CUDNN_DATA_FLOAT);

  /// output = mode(operands). Three operands: {if true, if false, condition} of CUDNN_POINTWISE_BINARY_SELECT.
  void pointwise(cudnnPointwiseMode_t mode, std::initializer_list<GraphTensor> operands, GraphTensor output,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  /// output = the index along `axis` of each element of `like`.
  void index(GraphTensor like, std::int64_t axis, GraphTensor output);
  /// output = left * right, for each sample and head.
  void multiply(GraphTensor left, GraphTensor right, GraphTensor output);
  /// Reduces each extent that is 1 in `output`.
  void reduce(cudnnReduceTensorOp_t operation, GraphTensor input, GraphTensor output);
  /// output = the elements of `input` with the layout of `output`.
  void reshape(GraphTensor input, GraphTensor output);

  /// Returns the first plan in the order of cuDNN's heuristics that the limits allow. May take seconds: cuDNN may
  /// compile kernels. The graph is empty after it.
  GraphPlan plan(const GraphTarget& target, const PlanLimits& limits) &&;

  static constexpr std::int64_t kFirstInnerId = 1000;

 private:
  GraphDescriptor& add(cudnnBackendDescriptorType_t type) { return descriptors_.emplace_back(api_, type); }
  GraphTensor add_tensor(std::int64_t id, const GraphLayout& layout, cudnnDataType_t type, bool is_virtual,
                         bool is_number);
  void add_pointwise(cudnnPointwiseMode_t mode, std::span<const GraphTensor> operands, GraphTensor output,
                     cudnnDataType_t compute, std::int64_t axis);
  /// Finalizes an operation and takes it into the graph. @param kind  the descriptor that it names
  void finish(GraphDescriptor& operation);
  void finish(GraphDescriptor& operation, GraphDescriptor kind);
  GraphDescriptor plan_of(const GraphTarget& target, const GraphDescriptor& configuration) const;
  std::vector<GraphDescriptor> configurations(const GraphTarget& target, const GraphDescriptor& graph,
                                              cudnnBackendHeurMode_t mode) const;
  bool is_nondeterministic(const GraphDescriptor& configuration) const;

  const CudnnApi& api_;
  std::vector<GraphDescriptor> descriptors_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::int64_t next_id_ = kFirstInnerId;
};

}  // namespace farandole::trainer::cuda
