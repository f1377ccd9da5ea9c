// SPDX-License-Identifier: Apache-2.0
#include "gathered_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

[[noreturn]] void refuse_gathered(const std::string& what, std::size_t samples, const std::string& came,
                                  const std::string& expected) {
  throw InvalidArgument(
      fmt::format("{}: gather was asked for {} samples and gave {}; expected {}", what, samples, came, expected));
}

template <class Scalar>
std::string describe_tensor(const Tensor<Scalar>& tensor, const char* kind) {
  if (tensor.samples() == 0) return fmt::format("no {}", kind);
  return fmt::format("{} {} of shape {}", tensor.samples(), kind, describe(tensor.shape()));
}

/// @param kind  "inputs"   @param declared  the function of Dataset that returns `shape`: "shape"
template <class Scalar>
void check_tensor(const std::string& what, std::size_t samples, const char* kind, const Tensor<Scalar>& tensor,
                  const char* declared, const Shape& shape) {
  if (tensor.samples() == static_cast<std::int64_t>(samples) && tensor.shape() == shape) return;
  refuse_gathered(what, samples, describe_tensor(tensor, kind),
                  fmt::format("{} of shape {}, as Dataset::{} says", samples, describe(shape), declared));
}

template <class Scalar>
void check_label_count(const Dataset& data, const std::string& what, std::size_t samples, const Batch<Scalar>& batch) {
  const std::size_t labels = batch.labels.size();
  if (data.classes() == 0) {
    if (labels == 0) return;
    refuse_gathered(what, samples, fmt::format("{} labels", labels), "none, because Dataset::classes is 0");
  }
  const auto of_each = static_cast<std::size_t>(data.labels_per_sample());
  if (labels == samples * of_each || (labels == 0 && data.targets_are_probabilities())) return;
  refuse_gathered(what, samples, fmt::format("{} labels", labels),
                  fmt::format("{}, because Dataset::labels_per_sample is {}", samples * of_each, of_each));
}

void check_weights_of(const std::string& what, std::span<const std::uint32_t> samples, std::span<const float> weights) {
  if (weights.empty()) return;
  if (weights.size() != samples.size()) {
    refuse_gathered(what, samples.size(), fmt::format("{} weights", weights.size()),
                    fmt::format("{}, or none if every sample counts once", samples.size()));
  }
  const auto wrong = std::find_if(weights.begin(), weights.end(),
                                  [](float weight) { return !(weight >= 0) || !std::isfinite(weight); });
  if (wrong == weights.end()) return;
  throw InvalidArgument(fmt::format("sample {} of {} has weight {}; it must be a finite number, at least 0",
                                    samples[static_cast<std::size_t>(wrong - weights.begin())], what, *wrong));
}

}  // namespace

template <class Scalar>
void check_gathered_inputs(const Dataset& data, const std::string& what, std::span<const std::uint32_t> samples,
                           const Batch<Scalar>& batch) {
  check_tensor(what, samples.size(), "inputs", batch.inputs, "shape", data.shape());
}

template <class Scalar>
void check_gathered(const Dataset& data, const std::string& what, std::span<const std::uint32_t> samples,
                    const Batch<Scalar>& batch) {
  check_gathered_inputs(data, what, samples, batch);
  check_label_count(data, what, samples.size(), batch);
  if (!data.target_shape().empty()) {
    check_tensor(what, samples.size(), "targets", batch.targets, "target_shape", data.target_shape());
  } else if (batch.targets.samples() != 0) {
    refuse_gathered(what, samples.size(), describe_tensor(batch.targets, "targets"),
                    "none, because Dataset::target_shape is empty");
  }
  check_weights_of(what, samples, batch.weights);
}

template void check_gathered_inputs(const Dataset&, const std::string&, std::span<const std::uint32_t>,
                                    const Batch<float>&);
template void check_gathered_inputs(const Dataset&, const std::string&, std::span<const std::uint32_t>,
                                    const Batch<double>&);
template void check_gathered(const Dataset&, const std::string&, std::span<const std::uint32_t>, const Batch<float>&);
template void check_gathered(const Dataset&, const std::string&, std::span<const std::uint32_t>, const Batch<double>&);

}  // namespace farandole::trainer
