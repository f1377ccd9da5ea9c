// SPDX-License-Identifier: Apache-2.0
// The tensors of a model or an optimizer, as files hold them.
#pragma once

#include <string>
#include <vector>

#include "farandole/trainer/checkpoint.h"
#include "farandole/trainer/model.h"

namespace farandole::trainer {

/// Appends a view of each entry of `layout`. @param suffix  appended to the names
inline void append_tensors(std::vector<CheckpointTensor>& tensors, const std::vector<NamedSpan>& layout,
                           BufferView values, const std::string& suffix = "") {
  for (const NamedSpan& span : layout) {
    tensors.push_back({span.name + suffix, span.shape, values.part(span.first, span.count)});
  }
}

/// Views of parameters and moving statistics, valid as long as the model.
template <class Scalar>
std::vector<CheckpointTensor> tensors_of(Model<Scalar>& model) {
  std::vector<CheckpointTensor> tensors;
  append_tensors(tensors, model.parameter_layout(), model.parameters());
  append_tensors(tensors, model.statistic_layout(), model.statistics());
  return tensors;
}

}  // namespace farandole::trainer
