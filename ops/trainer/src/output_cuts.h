// SPDX-License-Identifier: Apache-2.0
// Cuts one output of a model out of batches, with the truth that it is compared with.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "farandole/trainer/outputs.h"
#include "kernels/kernels.h"

namespace farandole::trainer {

/// Memory for tensors that live as long as a scope of the execution's workspace.
inline TensorMemory memory_of(Workspace::Scope& scope, const Execution& execution) {
  const MemorySpace space = execution.space();
  return {space, [&scope, space](std::size_t count, DType dtype) {
            std::byte* const bytes = scope.take<std::byte>(count * size_in_bytes(dtype)).data();
            return Buffer(
                bytes, count, dtype, [](void*) {}, space);
          }};
}

/// Place of an output in samples in which all outputs lie one behind the other, and of its target in the targets.
struct OutputCut {
  std::string name;
  Shape shape;
  Columns output;
  bool has_labels = false;
  Columns target;  ///< where the output has no labels

  template <class Scalar>
  void cut(const Execution& execution, const Tensor<Scalar>& outputs, Tensor<Scalar>& part) const {
    part.resize(outputs.samples(), shape);
    kernels_of<Scalar>(execution).copy_columns(outputs.samples(), outputs.data(), output, part.data(),
                                               {0, output.count, output.count});
  }
  /// Returns the labels, with their probabilities, or the output's targets; and the weights. The inputs are empty.
  /// @param targets  memory for the output's targets
  template <class Scalar>
  BatchView<Scalar> cut(const Execution& execution, const BatchView<Scalar>& batch, Tensor<Scalar>& targets) const {
    static const Tensor<Scalar> none;
    if (has_labels) {
      const bool probabilities = batch.targets_are_probabilities;
      return {none, batch.labels, probabilities ? batch.targets : none, batch.weights, probabilities};
    }
    targets.resize(batch.targets.samples(), shape);
    kernels_of<Scalar>(execution).copy_columns(batch.targets.samples(), batch.targets.data(), target, targets.data(),
                                               {0, target.count, target.count});
    return {none, {}, targets, batch.weights, false};
  }
};

/// @throws InvalidArgument  there are no outputs, or `parts.with_labels` names no output
std::vector<OutputCut> cuts_of(const OutputParts& parts);

/// Calls `check(data of the output)` with the data as the output sees them: with classes and their probabilities, or
/// with its targets.
/// @param what  name of the data for messages
/// @throws InvalidArgument  as `check`, with the name of the output before its text; or the data's targets do not have
/// as many elements as the outputs without labels
void check_cut(const OutputCut& cut, const Shape& output, const Dataset& data, const std::string& what,
               const std::function<void(const Dataset&)>& check);

}  // namespace farandole::trainer
