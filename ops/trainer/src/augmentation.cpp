// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/augmentation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "checksum.h"
#include "farandole/core/error.h"
#include "farandole/trainer/random.h"
#include "gathered_batch.h"

namespace farandole::trainer {
namespace {

/// Logarithm of a number drawn from Gamma(shape, 1). The logarithm stays finite where the number itself is too small
/// for a double. Counters: attempt n uses 4n to 4n + 2. Source: Marsaglia & Tsang, A simple method for generating gamma
/// variables, TOMS 26(3), 2000; for shape < 1 with a factor U^(1 / shape).
double log_gamma_variate(const CounterRandom& random, double shape) {
  const double raised = shape < 1 ? shape + 1 : shape;
  const double d = raised - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  const auto uniform = [&](std::uint64_t counter) { return random.uniform(counter) + 0x1p-33; };  // never 0
  for (std::uint64_t attempt = 0;; ++attempt) {
    const double x = random.normal(2 * attempt);
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(uniform(4 * attempt + 2)) >= 0.5 * x * x + d - d * v + d * std::log(v)) continue;
    return std::log(d * v) + (shape < 1 ? std::log(uniform(3)) / shape : 0);
  }
}

/// Choices for one sample. Different choices use different counters or streams.
class SampleDraw {
 public:
  SampleDraw(const TrainingDraw& draw, std::uint64_t level, std::uint32_t sample)
      : draw_(draw), level_(level), sample_(sample), random_(stream(0)) {}

  std::int64_t crop_y(std::int64_t padding) const { return below(0, 2 * padding + 1); }
  std::int64_t crop_x(std::int64_t padding) const { return below(1, 2 * padding + 1); }
  std::int64_t cutout_y(std::int64_t height) const { return below(2, height); }
  std::int64_t cutout_x(std::int64_t width) const { return below(3, width); }
  std::uint32_t other(std::int64_t samples) const { return static_cast<std::uint32_t>(below(4, samples)); }
  bool flips(double probability) const { return random_.uniform(0) < probability; }
  /// Beta(alpha, alpha), as a / (a + b) of two numbers of Gamma(alpha).
  double share(double alpha) const {
    return 1 / (1 + std::exp(log_gamma_variate(stream(2), alpha) - log_gamma_variate(stream(1), alpha)));
  }

 private:
  CounterRandom stream(std::uint64_t purpose) const {
    return {draw_.seed, random_stream(RandomPurpose::kAugmentation,
                                      {purpose, level_, static_cast<std::uint64_t>(draw_.epoch), sample_})};
  }
  std::int64_t below(std::uint64_t counter, std::int64_t bound) const {
    return static_cast<std::int64_t>(random_.below(counter, static_cast<std::uint64_t>(bound)));
  }

  const TrainingDraw draw_;
  const std::uint64_t level_, sample_;
  const CounterRandom random_;
};

class Augmented final : public Dataset {
 public:
  Augmented(std::shared_ptr<const Dataset> data, const AugmentationOptions& options)
      : data_(std::move(data)), options_(options), target_shape_(data_->target_shape()) {
    check();
    if (has_soft_classes()) target_shape_ = {data_->classes()};
    if (const auto* const inner = dynamic_cast<const Augmented*>(data_.get())) level_ = inner->level_ + 1;
  }

  std::int64_t size() const override { return data_->size(); }
  const Shape& shape() const override { return data_->shape(); }
  std::int32_t classes() const override { return data_->classes(); }
  const std::vector<std::string>& class_names() const override { return data_->class_names(); }
  std::int64_t labels_per_sample() const override { return data_->labels_per_sample(); }
  const Shape& target_shape() const override { return target_shape_; }
  bool targets_are_probabilities() const override { return has_soft_classes() || data_->targets_are_probabilities(); }
  std::uint32_t checksum() const override {
    const auto& [crop_padding, flip, cutout, mixup] = options_;
    const std::string text = fmt::format("{:08x} {} {} {} {}", data_->checksum(), crop_padding, flip, cutout, mixup);
    return trainer::checksum(std::as_bytes(std::span(text)));
  }
  bool is_sequential() const override { return data_->is_sequential(); }
  std::shared_ptr<const Dataset> for_replica() const override {
    auto of_replica = data_->for_replica();
    return of_replica ? std::make_shared<const Augmented>(std::move(of_replica), options_) : nullptr;
  }

  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override {
    gather_unchanged(samples, batch);
  }
  void gather(std::span<const std::uint32_t> samples, Batch<double>& batch) const override {
    gather_unchanged(samples, batch);
  }
  void gather_for_training(std::span<const std::uint32_t> samples, const TrainingDraw& draw,
                           Batch<float>& batch) const override {
    gather_changed(samples, draw, batch);
  }
  void gather_for_training(std::span<const std::uint32_t> samples, const TrainingDraw& draw,
                           Batch<double>& batch) const override {
    gather_changed(samples, draw, batch);
  }

 private:
  static constexpr const char* kName = "the data set inside augmented";  // for messages

  bool needs_images() const { return options_.crop_padding > 0 || options_.flip > 0 || options_.cutout > 0; }
  bool has_soft_classes() const { return options_.mixup > 0 && data_->classes() > 0; }
  void check() const;

  template <class Scalar>
  void gather_unchanged(std::span<const std::uint32_t> samples, Batch<Scalar>& batch) const {
    data_->gather(samples, batch);
    check_gathered(*data_, kName, samples, batch);
    write_soft_classes(batch);
  }
  template <class Scalar>
  void gather_changed(std::span<const std::uint32_t> samples, const TrainingDraw& draw, Batch<Scalar>& batch) const {
    gather_images(samples, draw, batch);
    if (options_.mixup > 0) mix(samples, draw, batch);
  }
  /// Everything but mixup.
  template <class Scalar>
  void gather_images(std::span<const std::uint32_t> samples, const TrainingDraw& draw, Batch<Scalar>& batch) const {
    data_->gather_for_training(samples, draw, batch);
    check_gathered(*data_, kName, samples, batch);
    write_soft_classes(batch);
    if (!needs_images()) return;
    std::vector<Scalar> copy(static_cast<std::size_t>(batch.inputs.sample_elements()));
    for (std::size_t i = 0; i < samples.size(); ++i) {
      Scalar* const image = batch.inputs.data() + i * copy.size();
      const SampleDraw choices(draw, level_, samples[i]);
      crop_and_flip(choices, image, copy);
      if (options_.cutout > 0) cut_out(choices, image);
    }
  }
  template <class Scalar>
  void write_soft_classes(Batch<Scalar>& batch) const;
  template <class Scalar>
  void crop_and_flip(const SampleDraw& choices, Scalar* image, std::vector<Scalar>& copy) const;
  template <class Scalar>
  void cut_out(const SampleDraw& choices, Scalar* image) const;
  template <class Scalar>
  void mix(std::span<const std::uint32_t> samples, const TrainingDraw& draw, Batch<Scalar>& batch) const;

  const std::shared_ptr<const Dataset> data_;
  const AugmentationOptions options_;
  Shape target_shape_;
  std::uint64_t level_ = 0;  // number of augmentations inside: each draws numbers of its own
};

void Augmented::check() const {
  const auto& [crop_padding, flip, cutout, mixup] = options_;
  const Shape& shape = data_->shape();
  if (needs_images() && shape.size() != 3) {
    throw InvalidArgument(
        fmt::format("crop, flip and cutout need images of shape {{height, width, channels}}, but the samples are {}; "
                    "only mixup can be used",
                    describe(shape)));
  }
  if (crop_padding < 0 || (crop_padding > 0 && crop_padding > std::min(shape[0], shape[1]))) {
    throw InvalidArgument(
        fmt::format("a crop padding of {}; it must be from 0 to the side of an image, and images are {}", crop_padding,
                    describe(shape)));
  }
  if (!(flip >= 0 && flip <= 1)) throw InvalidArgument(fmt::format("flip is {}; it must be from 0 to 1", flip));
  if (cutout < 0) throw InvalidArgument(fmt::format("a cutout of {} pixels; it must be at least 0", cutout));
  if (!(mixup >= 0) || !std::isfinite(mixup)) {
    throw InvalidArgument(fmt::format("mixup is {}; it must be a finite number, at least 0", mixup));
  }
  if (mixup == 0) return;
  if (data_->is_sequential()) {
    throw InvalidArgument("mixup draws a second sample from the whole data set, which a stream cannot give");
  }
  if (data_->labels_per_sample() != 1) {
    throw InvalidArgument(fmt::format("mixup needs one class for each sample, but the samples have {} labels each",
                                      data_->labels_per_sample()));
  }
  if (data_->classes() > 0 && !data_->target_shape().empty() && !data_->targets_are_probabilities()) {
    throw InvalidArgument(
        fmt::format("mixup needs the targets for the shares of {} classes, but the samples have targets of shape {}",
                    data_->classes(), describe(data_->target_shape())));
  }
}

template <class Scalar>
void Augmented::write_soft_classes(Batch<Scalar>& batch) const {
  if (!has_soft_classes() || data_->targets_are_probabilities()) return;
  batch.targets_are_probabilities = true;
  if (static_cast<std::int64_t>(batch.labels.size()) != batch.inputs.samples()) {
    throw InvalidArgument(fmt::format("mixup needs one class for each sample, but {} samples have {} labels",
                                      batch.inputs.samples(), batch.labels.size()));
  }
  batch.targets.resize(batch.inputs.samples(), target_shape_);
  std::fill(batch.targets.host().begin(), batch.targets.host().end(), Scalar{0});
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    if (batch.labels[i] < 0 || batch.labels[i] >= classes()) {
      throw InvalidArgument(
          fmt::format("mixup: a sample has label {}, which is not in [0, {})", batch.labels[i], classes()));
    }
    batch.targets.data()[static_cast<std::int64_t>(i) * target_shape_[0] + batch.labels[i]] = 1;
  }
}

template <class Scalar>
void Augmented::crop_and_flip(const SampleDraw& choices, Scalar* image, std::vector<Scalar>& copy) const {
  const std::int64_t height = shape()[0], width = shape()[1], channels = shape()[2], padding = options_.crop_padding;
  const std::int64_t y = choices.crop_y(padding) - padding, x = choices.crop_x(padding) - padding;
  const bool flips = choices.flips(options_.flip);
  if (y == 0 && x == 0 && !flips) return;
  std::copy_n(image, copy.size(), copy.begin());
  std::fill_n(image, copy.size(), Scalar{0});
  const std::int64_t first = std::max<std::int64_t>(0, -x), last = std::min(width, width - x);  // columns of the part
  for (std::int64_t row = std::max<std::int64_t>(0, -y); row < std::min(height, height - y); ++row) {
    const Scalar* const from = copy.data() + ((row + y) * width + x) * channels;
    Scalar* const to = image + row * width * channels;
    if (!flips) {
      std::copy(from + first * channels, from + last * channels, to + first * channels);
      continue;
    }
    for (std::int64_t column = first; column < last; ++column) {
      std::copy_n(from + column * channels, channels, to + (width - 1 - column) * channels);
    }
  }
}

template <class Scalar>
void Augmented::cut_out(const SampleDraw& choices, Scalar* image) const {
  const std::int64_t height = shape()[0], width = shape()[1], channels = shape()[2], side = options_.cutout;
  const std::int64_t top = choices.cutout_y(height) - side / 2, left = choices.cutout_x(width) - side / 2;
  const std::int64_t first = std::max<std::int64_t>(left, 0), last = std::min(left + side, width);
  for (std::int64_t row = std::max<std::int64_t>(top, 0); row < std::min(top + side, height); ++row) {
    std::fill(image + (row * width + first) * channels, image + (row * width + last) * channels, Scalar{0});
  }
}

/// Adds the other sample's part to sample `i` of a tensor.
template <class Scalar>
void mix_sample(Tensor<Scalar>& tensor, const Tensor<Scalar>& others, std::size_t i, double share) {
  const auto count = static_cast<std::size_t>(tensor.sample_elements());
  const auto own = static_cast<Scalar>(share), rest = static_cast<Scalar>(1 - share);
  Scalar* const values = tensor.data() + i * count;
  const Scalar* const other = others.data() + i * count;
  for (std::size_t k = 0; k < count; ++k) values[k] = own * values[k] + rest * other[k];
}

template <class Scalar>
void Augmented::mix(std::span<const std::uint32_t> samples, const TrainingDraw& draw, Batch<Scalar>& batch) const {
  std::vector<std::uint32_t> drawn;
  for (const std::uint32_t sample : samples) drawn.push_back(SampleDraw(draw, level_, sample).other(size()));
  Batch<Scalar> others;
  gather_images(drawn, draw, others);
  if (batch.weights.empty() && !others.weights.empty()) batch.weights.assign(samples.size(), 1.0F);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double share = SampleDraw(draw, level_, samples[i]).share(options_.mixup);
    mix_sample(batch.inputs, others.inputs, i, share);
    if (batch.targets.samples() > 0) mix_sample(batch.targets, others.targets, i, share);
    if (!batch.labels.empty() && !others.labels.empty() && share < 0.5) batch.labels[i] = others.labels[i];
    if (batch.weights.empty()) continue;
    batch.weights[i] =
        static_cast<float>(share * batch.weights[i] + (1 - share) * others.weight(static_cast<std::int64_t>(i)));
  }
}

}  // namespace

std::shared_ptr<const Dataset> augmented(std::shared_ptr<const Dataset> data, const AugmentationOptions& options) {
  if (!data) throw InvalidArgument("augmented needs a data set");
  return std::make_shared<const Augmented>(std::move(data), options);
}

}  // namespace farandole::trainer
