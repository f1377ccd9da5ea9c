// SPDX-License-Identifier: Apache-2.0
// Computation of graphs of the double of cuDNN, operation by operation. Results are rounded to the type of their
// tensor.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "fake_cudnn_graph.h"

namespace farandole::fake::cudnn {
namespace {

constexpr std::int64_t kMaxHeadUnits = 256, kHeadUnitsMultiple = 8;

std::int64_t dot(const Index& index, const Index& strides) {
  std::int64_t sum = 0;
  for (std::size_t k = 0; k < index.size(); ++k) sum += index[k] * strides[k];
  return sum;
}

/// Calls `use` for all indices, the last one running fastest, with their number.
template <class Use>
void for_each_index(const Index& extents, const Use& use) {
  std::size_t number = 0;
  Index i{};
  for (i[0] = 0; i[0] < extents[0]; ++i[0]) {
    for (i[1] = 0; i[1] < extents[1]; ++i[1]) {
      for (i[2] = 0; i[2] < extents[2]; ++i[2]) {
        for (i[3] = 0; i[3] < extents[3]; ++i[3]) use(i, number++);
      }
    }
  }
}

/// The number of an index in a tensor in which an extent may be 1 instead.
std::size_t broadcast(const Index& index, const Index& extents) {
  std::int64_t number = 0;
  for (std::size_t k = 0; k < index.size(); ++k) number = number * extents[k] + (extents[k] == 1 ? 0 : index[k]);
  return static_cast<std::size_t>(number);
}
bool broadcasts(const Index& from, const Index& to) {
  return std::ranges::equal(from, to, [](std::int64_t one, std::int64_t other) { return one == 1 || one == other; });
}

float rounded(float value, cudnnDataType_t type) {
  if (type != CUDNN_DATA_HALF && type != CUDNN_DATA_BFLOAT16) return value;
  std::uint16_t bits = 0;
  write(value, &bits, 0, type);
  return read(&bits, 0, type);
}

float pointwise(int mode, const std::array<float, 3>& x) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return x[0] + x[1];
    case CUDNN_POINTWISE_MUL:
      return x[0] * x[1];
    case CUDNN_POINTWISE_DIV:
      return x[0] / x[1];
    case CUDNN_POINTWISE_SUB:
      return x[0] - x[1];
    case CUDNN_POINTWISE_EXP:
      return std::exp(x[0]);
    case CUDNN_POINTWISE_LOG:
      return std::log(x[0]);
    case CUDNN_POINTWISE_IDENTITY:
      return x[0];
    case CUDNN_POINTWISE_CMP_GE:
      return x[0] >= x[1] ? 1 : 0;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return x[2] != 0 ? x[0] : x[1];
    default:
      return std::numeric_limits<float>::quiet_NaN();
  }
}

/// Number of operands of a mode; 0 for a mode that the double lacks.
std::size_t operands_of(int mode) {
  switch (mode) {
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_IDENTITY:
    case CUDNN_POINTWISE_GEN_INDEX:
      return 1;
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_CMP_GE:
      return 2;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return 3;
    default:
      return 0;
  }
}

std::string mistake_of_pointwise(const GraphOperation& operation, const std::vector<const GraphTensor*>& inputs,
                                 const GraphTensor& output) {
  if (operands_of(operation.mode) != inputs.size()) return "a pointwise operation with another number of operands";
  if (operation.mode == CUDNN_POINTWISE_GEN_INDEX && (operation.axis < 0 || operation.axis > 3)) {
    return "an index along no axis";
  }
  if ((operation.mode == CUDNN_POINTWISE_CMP_GE) != (output.type == CUDNN_DATA_BOOLEAN)) {
    return "a comparison is BOOLEAN, and nothing else is";
  }
  if (inputs.size() == 3 && inputs[2]->type != CUDNN_DATA_BOOLEAN) return "a condition that is not BOOLEAN";
  const bool fit = std::ranges::all_of(inputs, [&](const auto* x) { return broadcasts(x->extents, output.extents); });
  return fit ? "" : "operands of a pointwise operation that do not fit its result";
}

std::string mistake_of(const GraphOperation& operation, const std::vector<const GraphTensor*>& inputs,
                       const GraphTensor& output) {
  const Index& y = output.extents;
  const Index& x = inputs.front()->extents;
  switch (operation.kind) {
    case GraphOperationKind::kPointwise:
      return mistake_of_pointwise(operation, inputs, output);
    case GraphOperationKind::kProduct: {
      const Index& right = inputs.back()->extents;
      const bool fit = right == Index{x[0], x[1], x[3], right[3]} && y == Index{x[0], x[1], x[2], right[3]};
      return fit ? "" : "factors of a product that do not fit";
    }
    case GraphOperationKind::kReduction:
      return broadcasts(y, x) ? "" : "a reduction to another shape";
    case GraphOperationKind::kReshape:
      return output.elements() == inputs.front()->elements() ? "" : "a reshape to another number of elements";
  }
  return "";
}

/// The values of a run, by tensor, in the order of for_each_index.
class Values {
 public:
  explicit Values(const GraphRun& run) : run_(run) {}

  const std::vector<float>& of(std::int64_t id) {
    auto [place, is_new] = values_.try_emplace(id);
    if (is_new) load(tensor(id), place->second);
    return place->second;
  }
  void compute(const GraphOperation& operation) {
    const GraphTensor& output = tensor(operation.output);
    std::vector<float> result(output.elements());
    switch (operation.kind) {
      case GraphOperationKind::kPointwise:
        compute_pointwise(operation, output, result);
        break;
      case GraphOperationKind::kProduct:
        multiply(operation, output, result);
        break;
      case GraphOperationKind::kReduction:
        reduce(operation, output, result);
        break;
      case GraphOperationKind::kReshape:
        reshape(operation, output, result);
        break;
    }
    for (float& value : result) value = rounded(value, output.type);
    if (!output.is_virtual) store(output, result);
    values_[operation.output] = std::move(result);
  }

 private:
  const GraphTensor& tensor(std::int64_t id) const { return run_.graph->tensors.at(id); }
  void load(const GraphTensor& from, std::vector<float>& to) const {
    if (from.is_number) {
      to.assign(1, run_.numbers.at(from.id));
      return;
    }
    to.resize(from.elements());
    const void* const memory = run_.addresses.at(from.id);
    for_each_index(from.extents, [&](const Index& index, std::size_t number) {
      to[number] = read(memory, static_cast<std::size_t>(dot(index, from.strides)), from.type);
    });
  }
  void store(const GraphTensor& to, const std::vector<float>& from) const {
    void* const memory = run_.addresses.at(to.id);
    for_each_index(to.extents, [&](const Index& index, std::size_t number) {
      write(from[number], memory, static_cast<std::size_t>(dot(index, to.strides)), to.type);
    });
  }

  void compute_pointwise(const GraphOperation& operation, const GraphTensor& output, std::vector<float>& result) {
    const auto axis = static_cast<std::size_t>(operation.axis);
    if (operation.mode == CUDNN_POINTWISE_GEN_INDEX) {
      for_each_index(output.extents,
                     [&](const Index& index, std::size_t number) { result[number] = static_cast<float>(index[axis]); });
      return;
    }
    struct Operand {
      const std::vector<float>& values;
      const Index& extents;
    };
    std::vector<Operand> operands;
    for (const std::int64_t id : operation.inputs) operands.push_back({of(id), tensor(id).extents});
    for_each_index(output.extents, [&](const Index& index, std::size_t number) {
      std::array<float, 3> x{};
      for (std::size_t k = 0; k < operands.size(); ++k) {
        x[k] = operands[k].values[broadcast(index, operands[k].extents)];
      }
      result[number] = pointwise(operation.mode, x);
    });
  }
  void multiply(const GraphOperation& operation, const GraphTensor& output, std::vector<float>& result) {
    const GraphTensor& left = tensor(operation.inputs[0]);
    const GraphTensor& right = tensor(operation.inputs[1]);
    const std::vector<float>& x = of(left.id);
    const std::vector<float>& y = of(right.id);
    const std::int64_t terms = left.extents[3];
    for_each_index(output.extents, [&](const Index& i, std::size_t number) {
      float sum = 0;
      for (std::int64_t k = 0; k < terms; ++k) {
        sum += x[broadcast({i[0], i[1], i[2], k}, left.extents)] * y[broadcast({i[0], i[1], k, i[3]}, right.extents)];
      }
      result[number] = sum * run_.product_factor;
    });
  }
  void reduce(const GraphOperation& operation, const GraphTensor& output, std::vector<float>& result) {
    const bool is_sum = operation.mode == CUDNN_REDUCE_TENSOR_ADD;
    std::ranges::fill(result, is_sum ? 0 : -std::numeric_limits<float>::infinity());
    const std::vector<float>& x = of(operation.inputs[0]);
    for_each_index(tensor(operation.inputs[0]).extents, [&](const Index& index, std::size_t number) {
      float& to = result[broadcast(index, output.extents)];
      to = is_sum ? to + x[number] : std::max(to, x[number]);
    });
  }
  /// The elements keep their places in memory.
  void reshape(const GraphOperation& operation, const GraphTensor& output, std::vector<float>& result) {
    const GraphTensor& input = tensor(operation.inputs[0]);
    const std::vector<float>& x = of(input.id);
    std::map<std::int64_t, float> by_place;
    for_each_index(input.extents,
                   [&](const Index& index, std::size_t number) { by_place[dot(index, input.strides)] = x[number]; });
    for_each_index(output.extents, [&](const Index& index, std::size_t number) {
      const auto found = by_place.find(dot(index, output.strides));
      result[number] = found == by_place.end() ? std::numeric_limits<float>::quiet_NaN() : found->second;
    });
  }

  const GraphRun& run_;
  std::map<std::int64_t, std::vector<float>> values_;
};

}  // namespace

std::size_t GraphTensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents) product *= extent;
  return static_cast<std::size_t>(product);
}

std::size_t GraphTensor::span() const {
  std::int64_t last = 0;
  for (std::size_t k = 0; k < extents.size(); ++k) last += (extents[k] - 1) * strides[k];
  return static_cast<std::size_t>(last) + 1;
}

std::string Graph::mistake() const {
  std::set<std::int64_t> computed;
  for (const GraphOperation& operation : operations) {
    std::vector<const GraphTensor*> inputs;
    for (const std::int64_t id : operation.inputs) {
      const GraphTensor& input = tensors.at(id);
      if (input.is_virtual && !computed.contains(id)) return fmt::format("tensor {} has no source", id);
      inputs.push_back(&input);
    }
    const GraphTensor& output = tensors.at(operation.output);
    if (output.is_number) return fmt::format("tensor {} is a number", output.id);
    if (!computed.insert(output.id).second) return fmt::format("tensor {} has two sources", output.id);
    if (std::string text = mistake_of(operation, inputs, output); !text.empty()) {
      return fmt::format("{} (tensor {})", text, output.id);
    }
  }
  return "";
}

bool Graph::is_backward() const {
  return std::ranges::any_of(operations, [](const auto& o) { return o.kind == GraphOperationKind::kReshape; });
}

std::string Graph::refusal() const {
  const auto first = std::ranges::find(operations, GraphOperationKind::kProduct, &GraphOperation::kind);
  if (first == operations.end()) return "no engine for a graph without a product";
  const GraphTensor& query = tensors.at(first->inputs[0]);
  if (query.type == CUDNN_DATA_FLOAT) return "no engine for products of f32";
  const std::int64_t units = query.extents[3];
  if (units % kHeadUnitsMultiple != 0 || units > kMaxHeadUnits) {
    return fmt::format("no engine for heads of {} units", units);
  }
  return "";
}

void GraphRun::compute() const {
  if (workspace_bytes > 0) std::memset(workspace, 0xff, workspace_bytes);
  Values values(*this);
  for (const GraphOperation& operation : graph->operations) values.compute(operation);
}

}  // namespace farandole::fake::cudnn
