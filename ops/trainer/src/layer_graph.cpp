// SPDX-License-Identifier: Apache-2.0
// Forward and backward passes.
//   forward    each node after its sources
//   backward   each node before its sources: when a node's turn comes, all nodes that use its value have added their
//              contributions to its gradient, and the node adds its own to the gradients of its sources. With y the
//              node's value and x_k its sources: sum, dx_k += dy; multiply, dx_k += dy * (product of the other x);
//              concatenate and slice, dx_k += the channels of dy that x_k gave, and 0 for all others.
// A layer at several nodes adds its parameters' gradients of all uses; its forward pass of a use runs again before the
// backward pass of that use, because the layer may keep values of its last forward pass only.
#include "layer_graph.h"
#include "farandole/trainer/random.h"
#include "graph_work.h"
#include "kernels/kernels.h"
#include "step_profiler.h"

namespace farandole::trainer {
namespace {

/// Calls use(node, columns) with each part's place in samples in which all parts lie one behind the other.
template <class Parts, class Use>
void for_each_part(const Parts& parts, std::int64_t width, const Use& use) {
  std::int64_t first = 0;
  for (const auto& [node, count] : parts) {
    use(node, Columns{first, count, width});
    first += count;
  }
}

Columns all_of(std::int64_t count) {
  return {0, count, count};
}

}  // namespace

/// The number of a layer inside a container is a hash of its path: of the container's number, the branch and the
/// layer's number. Every use of a layer has its own number.
template <class Scalar>
Pass LayerGraph<Scalar>::inner_pass(const Pass& pass, const NodeSpec& spec) const {
  const LayerPlace& place = stages_[spec.layer].place;
  Pass inner = pass;
  inner.layer = place.branch == 0 ? place.number
                                  : random_stream(RandomPurpose::kInnerLayer, {pass.layer, place.branch, place.number});
  if (spec.use > 0) inner.layer = random_stream(RandomPurpose::kInnerLayer, {inner.layer, spec.use});
  return inner;
}

template <class Scalar>
const Tensor<Scalar>& LayerGraph<Scalar>::value(std::size_t node, const Run& run) const {
  if (nodes_[node].kind == NodeKind::kInput && inputs_.size() == 1) return run.input;
  return is_only_output(node) ? run.output : values_[node];
}

template <class Scalar>
std::vector<std::pair<std::size_t, std::int64_t>> LayerGraph<Scalar>::input_parts() const {
  std::vector<std::pair<std::size_t, std::int64_t>> parts;
  for (const std::size_t node : inputs_) parts.emplace_back(node, elements(nodes_[node].shape));
  return parts;
}

template <class Scalar>
std::vector<std::pair<std::size_t, std::int64_t>> LayerGraph<Scalar>::output_parts() const {
  std::vector<std::pair<std::size_t, std::int64_t>> parts;
  for (const auto& [name, node] : outputs_) parts.emplace_back(node, elements(nodes_[node].shape));
  return parts;
}

template <class Scalar>
void LayerGraph<Scalar>::place_values(const Execution& execution) {
  if (!execution_.changes(execution) && values_.size() == nodes_.size()) return;
  values_.clear();
  gradients_ = {};
  for (std::size_t node = 0; node < nodes_.size(); ++node) values_.emplace_back(execution.memory());
}

template <class Scalar>
void LayerGraph<Scalar>::forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) {
  place_values(pass.execution);
  const Kernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution);
  const Run run{pass, input, output};
  const std::int64_t samples = input.samples();
  if (inputs_.size() > 1) {
    for_each_part(input_parts(), input.sample_elements(), [&](std::size_t node, const Columns& columns) {
      values_[node].resize(samples, nodes_[node].shape);
      kernels.copy_columns(samples, input.data(), columns, values_[node].data(), all_of(columns.count));
    });
  }
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].kind == NodeKind::kInput || is_computed_by_source(node, pass.execution)) continue;
    const std::size_t result = result_of(node, pass.execution);
    if (!is_only_output(result)) values_[result].resize(samples, nodes_[result].shape);
    compute(node, run, is_only_output(result) ? output : values_[result]);
  }
  if (outputs_.size() == 1) return;
  for_each_part(output_parts(), output.sample_elements(), [&](std::size_t node, const Columns& columns) {
    kernels.copy_columns(samples, value(node, run).data(), all_of(columns.count), output.data(), columns);
  });
}

template <class Scalar>
std::size_t LayerGraph<Scalar>::result_of(std::size_t node, const Execution& execution) const {
  const NodeSpec& spec = nodes_[node];
  if (spec.relu == NodeSpec::kNoNode || !stages_[spec.layer].rectifiable->can_rectify(execution)) return node;
  return spec.relu;
}

template <class Scalar>
bool LayerGraph<Scalar>::is_computed_by_source(std::size_t node, const Execution& execution) const {
  const NodeSpec& spec = nodes_[node];
  return spec.kind == NodeKind::kLayer && result_of(spec.sources[0], execution) == node;
}

template <class Scalar>
void LayerGraph<Scalar>::compute(std::size_t node, const Run& run, Tensor<Scalar>& result) {
  const NodeSpec& spec = nodes_[node];
  const ProfiledPart part(run.pass.profiler, spec.row, Direction::kForward);
  const auto source = [&](std::size_t k) -> const Tensor<Scalar>& { return value(spec.sources[k], run); };
  const Kernels<Scalar>& kernels = kernels_of<Scalar>(run.pass.execution);
  const std::size_t count = spec.sources.size();
  const std::int64_t size = result.size();
  switch (spec.kind) {
    case NodeKind::kInput:
      return;
    case NodeKind::kLayer:
      if (result_of(node, run.pass.execution) != node) {
        stages_[spec.layer].rectifiable->forward_rectified(inner_pass(run.pass, spec), source(0), result);
      } else {
        stages_[spec.layer].layer->forward(inner_pass(run.pass, spec), source(0), result);
      }
      this->check_not_resized(node, "forward", "output", result, source(0).samples(), spec.shape);
      stages_[spec.layer].state_of = node;
      return;
    case NodeKind::kSum:
      kernels.add(size, source(0).data(), source(1).data(), result.data());
      for (std::size_t k = 2; k < count; ++k) kernels.add(size, result.data(), source(k).data(), result.data());
      return;
    case NodeKind::kMultiply:
      kernels.multiply_elements(size, source(0).data(), source(1).data(), result.data());
      for (std::size_t k = 2; k < count; ++k) {
        kernels.multiply_elements(size, result.data(), source(k).data(), result.data());
      }
      return;
    case NodeKind::kConcatenate:
      for_each_source(spec, [&](std::size_t k, const Columns& columns, std::int64_t rows_per_sample) {
        kernels.copy_columns(result.samples() * rows_per_sample, source(k).data(), all_of(columns.count), result.data(),
                             columns);
      });
      return;
    case NodeKind::kSlice: {
      const Columns columns{spec.first, spec.count, source(0).shape().back()};
      kernels.copy_columns(size / spec.count, source(0).data(), columns, result.data(), all_of(spec.count));
    }
  }
}

template <class Scalar>
void LayerGraph<Scalar>::for_each_source(
    const NodeSpec& spec, const std::function<void(std::size_t, const Columns&, std::int64_t)>& use) const {
  const std::int64_t width = spec.shape.back();
  std::int64_t first = 0;
  for (std::size_t k = 0; k < spec.sources.size(); ++k) {
    const std::int64_t count = nodes_[spec.sources[k]].shape.back();
    use(k, {first, count, width}, elements(spec.shape) / width);
    first += count;
  }
}

template <class Scalar>
void LayerGraph<Scalar>::start_gradients(const Run& run, const Tensor<Scalar>& output_gradient,
                                         bool wants_input_gradient) {
  find_nodes_with_gradient(*this, wants_input_gradient, needs_gradient_);
  gradients_.start(nodes_.size(), output_gradient, run.pass.execution);
  const Kernels<Scalar>& kernels = kernels_of<Scalar>(run.pass.execution);
  if (outputs_.size() == 1) {
    gradients_.contribute_result(outputs_[0].second);
    return;
  }
  for_each_part(output_parts(), output_gradient.sample_elements(), [&](std::size_t node, const Columns& columns) {
    contribute(node, run, nullptr, [&](Tensor<Scalar>& part) {
      kernels.copy_columns(part.samples(), output_gradient.data(), columns, part.data(), all_of(columns.count));
    });
  });
}

template <class Scalar>
void LayerGraph<Scalar>::backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output,
                                  const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient,
                                  const std::function<void(std::size_t)>& on_ready) {
  const Run run{pass, input, output};
  start_gradients(run, output_gradient, input_gradient != nullptr);
  for (std::size_t node = nodes_.size(); node-- > 0;) {
    if (needs_gradient_[node] == 0 || is_computed_by_source(node, pass.execution)) continue;
    const NodeSpec& spec = nodes_[node];
    if (spec.kind == NodeKind::kInput) {
      write_input_gradient(node, pass.execution, *input_gradient);
    } else {
      propagate(node, run, input_gradient);
    }
    gradients_.release(result_of(node, pass.execution));
    if (!on_ready || spec.kind != NodeKind::kLayer || spec.use > 0) continue;
    const Stage& stage = stages_[spec.layer];
    for (std::size_t k = stage.parameters; k-- > 0;) on_ready(stage.first_parameter + k);
  }
}

template <class Scalar>
void LayerGraph<Scalar>::write_input_gradient(std::size_t node, const Execution& execution,
                                              Tensor<Scalar>& input_gradient) {
  const Tensor<Scalar>& gradient = gradients_.gradient(node);
  if (&gradient == &input_gradient) return;
  for_each_part(input_parts(), elements(this->input_shape()), [&](std::size_t each, const Columns& columns) {
    if (each != node) return;
    kernels_of<Scalar>(execution).copy_columns(gradient.samples(), gradient.data(), all_of(columns.count),
                                               input_gradient.data(), columns);
  });
}

/// Adds to the gradient of `source` what `write(tensor)` stores in a tensor of its shape.
template <class Scalar>
template <class Write>
void LayerGraph<Scalar>::contribute(std::size_t source, const Run& run, Tensor<Scalar>* input_gradient,
                                    const Write& write) {
  const NodeSpec& spec = nodes_[source];
  const bool is_only_input = spec.kind == NodeKind::kInput && inputs_.size() == 1;
  gradients_.contribute(source, run.input.samples(), spec.shape, is_only_input ? input_gradient : nullptr, write);
}

template <class Scalar>
void LayerGraph<Scalar>::propagate(std::size_t node, const Run& run, Tensor<Scalar>* input_gradient) {
  const NodeSpec& spec = nodes_[node];
  const ProfiledPart part(run.pass.profiler, spec.row, Direction::kBackward);
  if (spec.kind == NodeKind::kLayer) return propagate_layer(node, run, input_gradient);
  const Kernels<Scalar>& kernels = kernels_of<Scalar>(run.pass.execution);
  const auto contribute_to = [&](std::size_t k, const auto& write) {
    if (needs_gradient_[spec.sources[k]] == 0) return;
    contribute(spec.sources[k], run, input_gradient,
               [&](Tensor<Scalar>& result) { write(gradients_.gradient(node), result); });
  };
  if (spec.kind == NodeKind::kSum) {
    for (const std::size_t source : spec.sources) {
      if (needs_gradient_[source] != 0) gradients_.contribute_gradient_of(source, node);
    }
  } else if (spec.kind == NodeKind::kMultiply) {
    for (std::size_t k = 0; k < spec.sources.size(); ++k) {
      contribute_to(k, [&](const Tensor<Scalar>& gradient, Tensor<Scalar>& result) {
        kernels.copy(result.size(), gradient.data(), result.data());
        for (std::size_t other = 0; other < spec.sources.size(); ++other) {
          if (other == k) continue;
          kernels.multiply_elements(result.size(), result.data(), value(spec.sources[other], run).data(),
                                    result.data());
        }
      });
    }
  } else if (spec.kind == NodeKind::kConcatenate) {
    for_each_source(spec, [&](std::size_t k, const Columns& columns, std::int64_t rows_per_sample) {
      contribute_to(k, [&](const Tensor<Scalar>& gradient, Tensor<Scalar>& result) {
        kernels.copy_columns(result.samples() * rows_per_sample, gradient.data(), columns, result.data(),
                             all_of(columns.count));
      });
    });
  } else {
    contribute_to(0, [&](const Tensor<Scalar>& gradient, Tensor<Scalar>& result) {
      kernels.clear(result.size(), result.data());
      kernels.copy_columns(gradient.size() / spec.count, gradient.data(), all_of(spec.count), result.data(),
                           {spec.first, spec.count, result.shape().back()});
    });
  }
}

template <class Scalar>
void LayerGraph<Scalar>::propagate_layer(std::size_t node, const Run& run, Tensor<Scalar>* input_gradient) {
  const NodeSpec& spec = nodes_[node];
  Stage& stage = stages_[spec.layer];
  const Pass pass = inner_pass(run.pass, spec);
  const Tensor<Scalar>& input = value(spec.sources[0], run);
  if (stage.state_of != node) {
    gradients_.with_scratch(input.samples(), spec.shape, [&](Tensor<Scalar>& scratch) {
      stage.layer->forward(pass, input, scratch);
      this->check_not_resized(node, "forward", "output", scratch, input.samples(), spec.shape);
    });
    stage.state_of = node;
  }
  const bool is_last_use = spec.use + 1 == stage.uses;  // the first in backward
  Workspace::Scope scope(pass.execution.workspace());
  const Kernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution);
  std::vector<VectorView<Scalar>> earlier;
  for (std::size_t k = 0; k < stage.gradients.size() && !is_last_use; ++k) {
    const VectorView<Scalar>& values = stage.gradients[k];
    earlier.push_back(scope.take<Scalar>(values.size()));
    kernels.copy(static_cast<std::int64_t>(values.size()), values.data(), earlier.back().data());
  }
  const std::size_t own = result_of(node, pass.execution);
  const auto run_backward = [&](Tensor<Scalar>* by_input) {
    const Tensor<Scalar>&output = value(own, run), &gradient = gradients_.gradient(own);
    if (own != node) return stage.rectifiable->backward_rectified(pass, input, output, gradient, by_input);
    stage.layer->backward(pass, input, output, gradient, by_input);
    if (by_input == nullptr) return;
    this->check_not_resized(node, "backward", "input gradient", *by_input, input.samples(), input.shape());
  };
  if (needs_gradient_[spec.sources[0]] != 0) {
    contribute(spec.sources[0], run, input_gradient, [&](Tensor<Scalar>& result) { run_backward(&result); });
  } else {
    run_backward(nullptr);
  }
  for (std::size_t k = 0; k < earlier.size(); ++k) {
    Scalar* const values = stage.gradients[k].data();
    kernels.add(static_cast<std::int64_t>(earlier[k].size()), values, earlier[k].data(), values);
  }
}

template class LayerGraph<float>;
template class LayerGraph<double>;

}  // namespace farandole::trainer
