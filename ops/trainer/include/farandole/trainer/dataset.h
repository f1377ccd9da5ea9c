// SPDX-License-Identifier: Apache-2.0
// Labelled samples in memory; the reader of Fashion-MNIST.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/trainer/tensor.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Conversion of a byte b to a number: (b / 255 - mean) / deviation.
struct Normalization {
  double mean = 0;
  double deviation = 1;
};

/// Samples of the same shape, each with a class label: the training set or the test set of a classifier. Immutable and
/// thread-safe after construction, so all replicas of a process share one Dataset through std::shared_ptr.
///
///     auto data = std::make_shared<const Dataset>(Shape{28, 28, 1}, std::move(bytes), std::move(labels), 10,
///                                                 Normalization{0.286, 0.353});
class Dataset {
 public:
  /// Stores samples as bytes; `gather` converts the bytes by `normalization`.
  /// @param shape   shape of a sample   @param bytes  labels.size() samples, contiguous   @param labels  each in [0,
  /// classes)
  /// @throws InvalidArgument  there are more or fewer than labels.size() samples, or a label is out of range
  Dataset(Shape shape, std::vector<std::uint8_t> bytes, std::vector<std::int32_t> labels, std::int32_t classes,
          Normalization normalization = {});
  /// Stores samples as numbers, which `gather` copies without normalisation. Arguments and errors as above.
  Dataset(Shape shape, std::vector<float> values, std::vector<std::int32_t> labels, std::int32_t classes);

  std::int64_t size() const { return static_cast<std::int64_t>(labels_.size()); }
  const Shape& shape() const { return shape_; }
  std::int32_t classes() const { return classes_; }
  /// CRC-32 of samples, normalisation and labels; the trainer compares the value across ranks. Computed by the
  /// constructor: about 15 ms for the 47 MB of Fashion-MNIST's training images.
  std::uint32_t checksum() const { return checksum_; }

  /// Resizes `inputs` and `labels`, and copies the samples with these indices into them. `Scalar` is float or double;
  /// both give the same values except for rounding.
  /// @param samples  indices below `size()`, which are not checked
  template <class Scalar>
  void gather(std::span<const std::uint32_t> samples, Tensor<Scalar>& inputs, std::vector<std::int32_t>& labels) const;

 private:
  void check(std::size_t elements_given) const;
  std::uint32_t compute_checksum() const;

  Shape shape_;
  std::variant<std::vector<std::uint8_t>, std::vector<float>> values_;
  std::vector<std::int32_t> labels_;
  std::int32_t classes_ = 0;
  std::vector<double> value_of_byte_;  // 256 entries; empty if samples are stored as numbers
  std::uint32_t checksum_ = 0;
};

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
/// prototype plus noise. The result depends only on the arguments.
/// @param noise  standard deviation of the noise; the elements of the prototypes are standard normal
std::shared_ptr<const Dataset> synthetic_dataset(std::int64_t samples, const Shape& shape, std::int32_t classes,
                                                 std::uint64_t seed, double noise = 1.0);

}  // namespace trainer
}  // namespace FARANDOLE_API
