// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "case.h"
#include "safetensors.h"

namespace farandole::trainer::test {

CaseData::CaseData(const std::filesystem::path& file, std::int32_t classes, bool targets_are_probabilities)
    : classes_(classes), targets_are_probabilities_(targets_are_probabilities) {
  const SafetensorsFile tensors(file);
  const auto read = [&](const char* name, Column& column) {
    const SafetensorsFile::Entry* const entry = tensors.find(name);
    if (entry == nullptr) return;
    if (entry->dtype != DType::kF64) throw InvalidArgument(fmt::format("the tensor '{}' is not f64", name));
    size_ = entry->shape.at(0);
    column.shape.assign(entry->shape.begin() + 1, entry->shape.end());
    column.values.resize(entry->bytes.size() / sizeof(double));
    std::memcpy(column.values.data(), entry->bytes.data(), entry->bytes.size());
  };
  read("labels", labels_);
  read("targets", targets_);
  read("weights", weights_);
  read("inputs", inputs_);
}

template <class Scalar>
void CaseData::gather_column(const Column& column, std::span<const std::uint32_t> samples, Tensor<Scalar>& to) {
  if (column.values.empty()) {
    to.resize(0, {});
    return;
  }
  to.resize(static_cast<std::int64_t>(samples.size()), column.shape);
  const std::int64_t count = to.sample_elements();
  Scalar* next = to.data();
  for (const std::uint32_t sample : samples) {
    next = std::transform(column.values.data() + sample * count, column.values.data() + (sample + 1) * count, next,
                          [](double value) { return static_cast<Scalar>(value); });
  }
}

template <class Scalar>
void CaseData::gather_all(std::span<const std::uint32_t> samples, Batch<Scalar>& batch) const {
  gather_column(inputs_, samples, batch.inputs);
  gather_column(targets_, samples, batch.targets);
  Tensor<double> labels;
  gather_column(labels_, samples, labels);
  batch.labels.assign(labels.host().begin(), labels.host().end());
  batch.weights.clear();
  batch.targets_are_probabilities = targets_are_probabilities_;
  for (const std::uint32_t sample : samples) {
    if (!weights_.values.empty()) batch.weights.push_back(static_cast<float>(weights_.values[sample]));
  }
}

void CaseData::gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const {
  gather_all(samples, batch);
}
void CaseData::gather(std::span<const std::uint32_t> samples, Batch<double>& batch) const {
  gather_all(samples, batch);
}

}  // namespace farandole::trainer::test
