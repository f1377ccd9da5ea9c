// SPDX-License-Identifier: Apache-2.0
// The tensors of a model or an optimizer, as files hold them.
#pragma once

#include <string>
#include <vector>

#include "farandole/trainer/checkpoint.h"
#include "farandole/trainer/model.h"
#include "kernels/transfer.h"

namespace farandole::trainer {

/// Appends a view of each entry of `layout`. @param suffix  appended to the names
inline void append_tensors(std::vector<CheckpointTensor>& tensors, const std::vector<NamedSpan>& layout,
                           BufferView values, const std::string& suffix = "") {
  for (const NamedSpan& span : layout) {
    tensors.push_back({span.name + suffix, span.shape, values.part(span.first, span.count)});
  }
}

/// The parameters and moving statistics of a model in host memory: the model's own, or copies of those on a device.
template <class Scalar>
class ModelOnHost {
 public:
  /// Copies from a device. @param model  outlives this object
  explicit ModelOnHost(Model<Scalar>& model)
      : model_(model),
        parameters_(on_host(model.parameters(), copies_[0])),
        statistics_(on_host(model.statistics(), copies_[1])) {}
  ModelOnHost(const ModelOnHost&) = delete;
  ModelOnHost& operator=(const ModelOnHost&) = delete;

  std::vector<CheckpointTensor> tensors() const {
    std::vector<CheckpointTensor> tensors;
    append_tensors(tensors, model_.parameter_layout(), parameters_);
    append_tensors(tensors, model_.statistic_layout(), statistics_);
    return tensors;
  }
  /// The parameters by the names of their averages.
  std::vector<CheckpointTensor> averages() const {
    std::vector<CheckpointTensor> tensors;
    append_tensors(tensors, model_.parameter_layout(), parameters_, ".ema");
    return tensors;
  }
  /// Copies the values back to a device.
  void store() {
    if (model_.execution().space().is_host()) return;
    copy_now(model_.execution(), model_.parameters(), parameters_);
    copy_now(model_.execution(), model_.statistics(), statistics_);
  }

 private:
  BufferView on_host(BufferView values, Buffer& copy) const {
    if (values.space.is_host()) return values;
    copy = Buffer(values.count, values.dtype);
    copy_now(model_.execution(), copy.view(), values);
    return copy.view();
  }

  Model<Scalar>& model_;
  Buffer copies_[2];
  const BufferView parameters_, statistics_;
};

}  // namespace farandole::trainer
