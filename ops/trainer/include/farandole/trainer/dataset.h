// SPDX-License-Identifier: Apache-2.0
// Data to train on: the interface, samples in memory, and the reader of Fashion-MNIST.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/trainer/tensor.h"

namespace farandole FARANDOLE_API {
namespace trainer {

template <class Scalar>
struct BatchView;

/// Samples of a batch in host memory, as a Dataset gives them. A dataset writes the members that it has, and empties
/// the others.
template <class Scalar>
struct Batch {
  Tensor<Scalar> inputs;
  /// Classes, `Dataset::labels_per_sample()` for each sample, one sample behind the other; empty if the samples have no
  /// classes.
  std::vector<std::int32_t> labels;
  Tensor<Scalar> targets;      ///< numbers to predict for each sample; empty if the samples have none
  std::vector<float> weights;  ///< factor of each sample's loss, finite and at least 0; empty: every sample counts once
  /// As Dataset::targets_are_probabilities. The trainer sets this; a loop of your own needs a dataset that does.
  bool targets_are_probabilities = false;

  double weight(std::int64_t sample) const { return BatchView<Scalar>(*this).weight(sample); }
};

/// What losses and metrics see of a batch: views, valid as long as the batch, of memory in which the model computes. A
/// Batch converts to it. For arguments of functions: a variable of this type must not outlive the batch.
template <class Scalar>
struct BatchView {
  BatchView(const Batch<Scalar>& batch)  // NOLINT: implicit, so that a Batch can be passed as it is
      : inputs(batch.inputs),
        labels(std::span(batch.labels)),
        targets(batch.targets),
        weights(std::span(batch.weights)),
        targets_are_probabilities(batch.targets_are_probabilities) {}
  /// Labels and weights in the memory of a device.
  BatchView(const Tensor<Scalar>& of_inputs, VectorView<const std::int32_t> of_labels, const Tensor<Scalar>& of_targets,
            VectorView<const float> of_weights, bool probabilities)
      : inputs(of_inputs),
        labels(of_labels),
        targets(of_targets),
        weights(of_weights),
        targets_are_probabilities(probabilities) {}

  const Tensor<Scalar>& inputs;
  VectorView<const std::int32_t> labels;  ///< as Batch::labels
  const Tensor<Scalar>& targets;
  VectorView<const float> weights;  ///< as Batch::weights
  bool targets_are_probabilities;

  /// Factor of a sample's loss, for code that computes in host memory.
  double weight(std::int64_t sample) const {
    return weights.empty() ? 1.0 : static_cast<double>(weights.host()[static_cast<std::size_t>(sample)]);
  }
};

/// What random choices in a training may depend on, beside the index of the sample: never the rank, the batch or the
/// thread, so that the choices are the same on any number of replicas.
struct TrainingDraw {
  std::uint64_t seed = 0;  ///< TrainerOptions::seed; with own shards a value of its own on each rank
  std::int64_t epoch = 0;  ///< 0 for the first
};

/// Samples with classes, with numbers to predict (targets), or with neither. Implement Dataset to train on data of your
/// own; `gather` may read files or compute the samples:
///
///     class Sine final : public Dataset {
///      public:
///       std::int64_t size() const override { return 1000; }
///       const Shape& shape() const override { return shape_; }
///       const Shape& target_shape() const override { return shape_; }
///       void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override {
///         const auto count = static_cast<std::int64_t>(samples.size());
///         batch.inputs.resize(count, shape_);
///         batch.targets.resize(count, shape_);
///         const std::span<float> inputs = batch.inputs.host(), targets = batch.targets.host();
///         for (std::size_t i = 0; i < samples.size(); ++i) {
///           inputs[i] = static_cast<float>(samples[i]) / 1000;
///           targets[i] = std::sin(inputs[i]);
///         }
///       }
///      private:
///       const Shape shape_{1};
///     };
///
/// All replicas of a process share one Dataset through std::shared_ptr, and with DataOptions::threads several threads
/// gather, so const functions must be thread-safe, and give the same values in each call. A Dataset that contains
/// another one passes on `gather_for_training`, `is_sequential` and `for_replica`.
class Dataset {
 public:
  virtual ~Dataset() = default;
  /// Number of samples. Default implementations of the functions below describe samples without labels and targets.
  virtual std::int64_t size() const = 0;
  virtual const Shape& shape() const = 0;  ///< of a sample's input
  /// Number of classes; labels are in [0, classes). 0: the samples have no classes.
  virtual std::int32_t classes() const { return 0; }
  /// Names of the classes, `classes()` of them; empty: the classes are numbers only.
  virtual const std::vector<std::string>& class_names() const;
  /// Number of labels of each sample, at least 1. Samples have more than one label if each position of a sequence has a
  /// class, as each symbol of a text has its next symbol; the model's output is then {labels_per_sample, classes}.
  virtual std::int64_t labels_per_sample() const { return 1; }
  /// Shape of a sample's target; empty: the samples have no targets.
  virtual const Shape& target_shape() const;
  /// True: the targets, of shape {classes}, are the probabilities of the classes, as mixup makes them.
  /// cross_entropy_loss uses them instead of the labels, which then count for metrics only.
  virtual bool targets_are_probabilities() const { return false; }
  /// Value that differs if the data differ; the trainer compares it across ranks. Default: 0 for all data.
  virtual std::uint32_t checksum() const { return 0; }

  /// Writes the samples with these indices to `batch`: as many as indices, in their order, with the shapes, labels and
  /// targets that the functions above declare. The trainer checks that after each call, and that weights are finite and
  /// at least 0; its InvalidArgument names the data. In predictions it checks the inputs only, and uses nothing else.
  /// The labels of samples whose targets are probabilities may be missing.
  /// @param samples  indices below `size()`   @throws DataError  a sample cannot be read, on this rank
  virtual void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const = 0;
  /// The same in double, for Trainer<double>. Default: converts the floats.
  virtual void gather(std::span<const std::uint32_t> samples, Batch<double>& batch) const;

  /// As `gather`, for a training step: samples may change at random, see `augmented`. Evaluations and predictions use
  /// `gather`. Take every random number from `draw` and the sample's index, as with CounterRandom. Default: `gather` of
  /// the same precision. Override both functions if you train in double.
  virtual void gather_for_training(std::span<const std::uint32_t> samples, const TrainingDraw& draw,
                                   Batch<float>& batch) const;
  virtual void gather_for_training(std::span<const std::uint32_t> samples, const TrainingDraw& draw,
                                   Batch<double>& batch) const;

  /// True: samples can only be read in the order of their indices, epoch by epoch, as from a stream. The trainer then
  /// does not shuffle, and gathers on one thread. Default: false.
  virtual bool is_sequential() const { return false; }
  /// Returns an object that one replica uses alone, one call at a time, such as a reader with a position. Default:
  /// null, all replicas share this object.
  virtual std::shared_ptr<const Dataset> for_replica() const { return nullptr; }
};

/// Conversion of a byte b to a number: (b / 255 - mean) / deviation. `deviation` is not 0.
struct Normalization {
  double mean = 0;
  double deviation = 1;
};

/// Samples for `memory_dataset`. Samples lie one behind the other in each vector.
struct Samples {
  Shape shape;  ///< of a sample's input
  /// Inputs. Bytes, as of images, are converted by `normalization` when they are gathered; numbers are copied.
  std::variant<std::vector<float>, std::vector<std::uint8_t>> inputs = {};
  /// Empty: b / 255. One entry: for all bytes. Otherwise one for each channel, which is the last extent of `shape`.
  std::vector<Normalization> normalization = {};
  std::vector<std::int32_t> labels = {};  ///< each in [0, classes); empty: no classes
  std::int32_t classes = 0;
  std::vector<std::string> class_names = {};  ///< empty: the classes are numbers only
  std::int64_t labels_per_sample = 1;
  std::vector<float> targets = {};  ///< empty: no targets
  Shape target_shape = {};
  bool targets_are_probabilities = false;  ///< of the classes; see Dataset
  std::vector<float> weights = {};         ///< at least 0; empty: every sample counts once
};

/// Makes a dataset of samples in memory. Computes a checksum: about 15 ms for the 47 MB of Fashion-MNIST's images.
///
///     const auto data = memory_dataset({.shape = {28, 28, 1}, .inputs = std::move(bytes),
///                                       .labels = std::move(labels), .classes = 10});
/// @throws InvalidArgument  the vectors have different numbers of samples, or a label or weight is out of range
std::shared_ptr<const Dataset> memory_dataset(Samples samples);

/// A training set and a test set.
struct TrainingData {
  std::shared_ptr<const Dataset> training, test;
};

/// Directory in which Debian's package dataset-fashion-mnist installs its files.
inline constexpr const char* kFashionMnistDirectory = "/usr/share/datasets/fashion-mnist";

/// Reads Fashion-MNIST's four IDX files, gzipped or plain, and normalises with the training images' mean 0.2860 and
/// deviation 0.3530.
/// @param directory  empty: kFashionMnistDirectory
/// @throws DataError  a file is missing (the text names the package to install), or truncated or corrupt (the text
/// names the expected and the actual size)
TrainingData load_fashion_mnist(const std::filesystem::path& directory = {});

/// Makes `samples` samples for tests and examples: each class has a random prototype, and a sample is its class's
/// prototype plus noise. Prototypes and noise are nearly normal (each number is a sum of eight uniform bytes). The
/// samples depend on the arguments only. They are drawn in host memory when the first of them is gathered (some 1 to 4
/// ns for each element). A training on devices draws its batches on the device instead, with the same bits
/// (docs/trainer.md#gpus).
/// @param shape, classes  extents and number of at least 1
/// @param noise  standard deviation of the noise; that of the prototypes' elements is 1
/// @param draw  different numbers give different samples of the same prototypes: 0 for training, 1 for a test set
/// @throws InvalidArgument  a size is too small, or the noise is not a finite number
std::shared_ptr<const Dataset> synthetic_dataset(std::int64_t samples, const Shape& shape, std::int32_t classes,
                                                 std::uint64_t seed, double noise = 1.0, std::uint64_t draw = 0);

/// Makes `samples` samples of `length` random symbols, for models of text: inputs are numbers of symbols, and the label
/// of each position is the next symbol. A model can learn no more than that all symbols are equally frequent. Otherwise
/// as synthetic_dataset. @param symbols  number of different symbols
std::shared_ptr<const Dataset> synthetic_text(std::int64_t samples, std::int64_t length, std::int32_t symbols,
                                              std::uint64_t seed, std::uint64_t draw = 0);

}  // namespace trainer
}  // namespace FARANDOLE_API
