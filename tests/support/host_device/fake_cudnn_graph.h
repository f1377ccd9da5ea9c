// SPDX-License-Identifier: Apache-2.0
// Graphs of the double of cuDNN's graph API, and their computation on the host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fake_cudnn.h"

namespace farandole::fake::cudnn {

/// {samples, heads, rows, columns}.
using Index = std::array<std::int64_t, 4>;

struct GraphTensor {
  std::int64_t id = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Index extents{}, strides{};
  bool is_virtual = false;
  bool is_number = false;  ///< read from host memory when the graph is executed

  std::size_t elements() const;
  /// Elements from the first to the last, both included.
  std::size_t span() const;
};

enum class GraphOperationKind : std::uint8_t { kPointwise, kProduct, kReduction, kReshape };

struct GraphOperation {
  GraphOperationKind kind{};
  int mode = 0;  ///< a cudnnPointwiseMode_t or cudnnReduceTensorOp_t
  std::int64_t axis = 0;
  std::vector<std::int64_t> inputs;  ///< ids
  std::int64_t output = 0;
};

/// A graph whose operations are in an order in which they can be computed.
struct Graph {
  std::map<std::int64_t, GraphTensor> tensors;  ///< by id
  std::vector<GraphOperation> operations;

  /// Returns why the graph is wrong: "" if it is right. Checks shapes, types, and that each tensor has a source.
  std::string mistake() const;
  /// Returns why cuDNN would not compute this graph by a fused kernel; "" if it would.
  std::string refusal() const;
  /// True for a graph with the gradients of attention.
  bool is_backward() const;
};

/// A graph with the addresses of a call.
struct GraphRun {
  std::shared_ptr<const Graph> graph;
  std::map<std::int64_t, void*> addresses;  ///< of tensors that are neither virtual nor numbers, for streams
  std::map<std::int64_t, float> numbers;
  unsigned char* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  float product_factor = 1;  ///< of all products; an error that another order of their terms might make

  /// Fills the workspace with NaN, and computes all operations in f32.
  void compute() const;
};

}  // namespace farandole::fake::cudnn
