// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

struct StreamSource {
  StreamOptions options;
  std::function<SampleGenerator()> make_generator;
};

/// What the data set of a stream and that of a replica have in common.
class StreamBase : public Dataset {
 public:
  explicit StreamBase(std::shared_ptr<const StreamSource> source) : source_(std::move(source)) {}
  std::int64_t size() const override { return options().samples_per_epoch; }
  const Shape& shape() const override { return options().shape; }
  std::int32_t classes() const override { return options().classes; }
  const Shape& target_shape() const override { return options().target_shape; }
  bool is_sequential() const override { return true; }

 protected:
  const StreamOptions& options() const { return source_->options; }
  const std::shared_ptr<const StreamSource> source_;
};

/// A replica's stream, with its position. Used by one thread at a time.
class ReplicaStream final : public StreamBase {
 public:
  using StreamBase::StreamBase;

  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override { read(samples, 0, batch); }
  void gather(std::span<const std::uint32_t> samples, Batch<double>& batch) const override { read(samples, 0, batch); }
  void gather_for_training(std::span<const std::uint32_t> samples, const TrainingDraw& draw,
                           Batch<float>& batch) const override {
    read(samples, draw.epoch, batch);
  }
  void gather_for_training(std::span<const std::uint32_t> samples, const TrainingDraw& draw,
                           Batch<double>& batch) const override {
    read(samples, draw.epoch, batch);
  }

 private:
  /// Moves the generator on by one sample.
  void advance(bool is_skipped) const {
    sample_.is_skipped = is_skipped;
    sample_.weight = 1;
    sample_.label = 0;
    try {
      generator_(sample_);
    } catch (...) {
      generator_ = nullptr;  // its position is unknown
      throw;
    }
    ++position_;
  }

  /// Runs through the stream up to the sample of this number, from the start if the sample has passed.
  void skip_to(std::int64_t number) const {
    if (!generator_ || number < position_) {
      input_.assign(static_cast<std::size_t>(elements(shape())), 0);
      target_.assign(target_shape().empty() ? 0 : static_cast<std::size_t>(elements(target_shape())), 0);
      sample_ = {.input = input_, .target = target_};
      generator_ = source_->make_generator();
      if (!generator_) throw InvalidArgument("make_generator of a stream returned an empty function");
      position_ = 0;
    }
    while (position_ < number) advance(true);
  }

  template <class Scalar>
  void read(std::span<const std::uint32_t> samples, std::int64_t epoch, Batch<Scalar>& batch) const {
    const auto count = static_cast<std::int64_t>(samples.size());
    batch.inputs.resize(count, shape());
    batch.targets.resize(target_shape().empty() ? 0 : count, target_shape());
    batch.labels.resize(classes() > 0 ? samples.size() : 0);
    batch.weights.resize(samples.size());
    Scalar *inputs = batch.inputs.data(), *targets = batch.targets.data();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::int64_t number = epoch * size() + samples[i];
      skip_to(number);
      advance(false);
      inputs = std::copy(input_.begin(), input_.end(), inputs);
      targets = std::copy(target_.begin(), target_.end(), targets);
      batch.weights[i] = sample_.weight;
      if (classes() == 0) continue;
      if (sample_.label < 0 || sample_.label >= classes()) {
        throw DataError(fmt::format("sample {} of the stream has label {}, which is not in [0, {})", number,
                                    sample_.label, classes()));
      }
      batch.labels[i] = sample_.label;
    }
  }

  // The stream moves on in const functions, because a replica uses this object alone.
  mutable SampleGenerator generator_;
  mutable std::int64_t position_ = 0;  // number of the generator's next sample
  mutable std::vector<float> input_, target_;
  mutable StreamSample sample_;
};

class StreamDataset final : public StreamBase {
 public:
  using StreamBase::StreamBase;

  std::shared_ptr<const Dataset> for_replica() const override { return std::make_shared<const ReplicaStream>(source_); }
  void gather(std::span<const std::uint32_t>, Batch<float>&) const override {
    throw InvalidArgument("a stream has no index to gather by; use the object of its for_replica()");
  }
};

}  // namespace

std::shared_ptr<const Dataset> stream_dataset(StreamOptions options, std::function<SampleGenerator()> make_generator) {
  if (!make_generator) throw InvalidArgument("stream_dataset needs a function that makes generators");
  if (options.samples_per_epoch < 1) {
    throw InvalidArgument(
        fmt::format("samples_per_epoch of a stream is {}; it must be at least 1", options.samples_per_epoch));
  }
  if (options.shape.empty()) throw InvalidArgument("a stream needs the shape of its samples");
  return std::make_shared<const StreamDataset>(
      std::make_shared<const StreamSource>(StreamSource{std::move(options), std::move(make_generator)}));
}

}  // namespace farandole::trainer
