// SPDX-License-Identifier: Apache-2.0
#include "synthetic_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "checksum.h"
#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

/// @param function  "synthetic_dataset"   @throws InvalidArgument
void check_sizes(const char* function, std::int64_t samples, const Shape& shape, std::int32_t classes) {
  if (samples >= 0 && classes > 0 && std::ranges::all_of(shape, [](std::int64_t extent) { return extent > 0; })) return;
  throw InvalidArgument(
      fmt::format("{}: {} samples of shape {} with {} classes; expected at least 0 samples, extents of at least 1, and "
                  "at least 1 class",
                  function, samples, describe(shape), classes));
}

}  // namespace

SyntheticDataset::SyntheticDataset(std::int64_t size, Shape shape, const Source& source)
    : size_(size), shape_(std::move(shape)), source_(source) {
  std::uint64_t draw = 0;
  std::string facts = fmt::format("{} {}", size_, describe(shape_));
  if (const auto* const text = std::get_if<SyntheticText>(&source_)) {
    classes_ = text->symbols;
    labels_per_sample_ = text->length;
    draw = text->draw;
    facts += fmt::format(" text {} {}", text->seed, text->symbols);
  } else {
    const auto& of_classes = std::get<SyntheticClasses>(source_);
    classes_ = of_classes.classes;
    draw = of_classes.draw;
    facts += fmt::format(" classes {} {} {}", of_classes.seed, of_classes.classes, of_classes.noise);
  }
  if (draw > 0) facts += fmt::format(" draw {}", draw);
  checksum_ = trainer::checksum(std::as_bytes(std::span(facts)));
}

void SyntheticDataset::draw_all() const {
  std::vector<std::uint32_t> indices(static_cast<std::size_t>(size_));
  std::iota(indices.begin(), indices.end(), 0U);
  inputs_.resize(indices.size() * static_cast<std::size_t>(elements(shape_)));
  labels_.resize(indices.size() * static_cast<std::size_t>(labels_per_sample_));
  draw<float>(host_kernels<float>(), {size_, indices.data(), inputs_.data(), labels_.data()});
}

template <class Scalar>
void SyntheticDataset::write(std::span<const std::uint32_t> samples, Batch<Scalar>& batch) const {
  std::call_once(is_drawn_, [this] { draw_all(); });
  batch.inputs.resize(static_cast<std::int64_t>(samples.size()), shape_);
  batch.labels.resize(samples.size() * static_cast<std::size_t>(labels_per_sample_));
  batch.targets.resize(0, {});
  batch.weights.clear();
  batch.targets_are_probabilities = false;
  Scalar* input = batch.inputs.data();
  std::int32_t* label = batch.labels.data();
  for (const std::int64_t sample : samples) {
    input = std::copy_n(inputs_.data() + sample * elements(shape_), elements(shape_), input);
    label = std::copy_n(labels_.data() + sample * labels_per_sample_, labels_per_sample_, label);
  }
}

std::shared_ptr<const Dataset> synthetic_dataset(std::int64_t samples, const Shape& shape, std::int32_t classes,
                                                 std::uint64_t seed, double noise, std::uint64_t draw) {
  check_sizes("synthetic_dataset", samples, shape, classes);
  if (!std::isfinite(noise)) {
    throw InvalidArgument(fmt::format("synthetic_dataset: noise is {}; it must be a finite number", noise));
  }
  const SyntheticClasses source{
      .seed = seed, .elements = elements(shape), .classes = classes, .noise = noise, .draw = draw};
  return std::make_shared<const SyntheticDataset>(samples, shape, source);
}

std::shared_ptr<const Dataset> synthetic_text(std::int64_t samples, std::int64_t length, std::int32_t symbols,
                                              std::uint64_t seed, std::uint64_t draw) {
  check_sizes("synthetic_text", samples, {length}, symbols);
  const SyntheticText source{.seed = seed, .length = length, .symbols = symbols, .draw = draw};
  return std::make_shared<const SyntheticDataset>(samples, Shape{length}, source);
}

}  // namespace farandole::trainer
