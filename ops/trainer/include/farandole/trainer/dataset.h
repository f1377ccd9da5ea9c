// SPDX-License-Identifier: Apache-2.0
// Labelled samples in memory, and how Fashion-MNIST gets there.
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

/// How a byte b becomes a number: (b / 255 - mean) / deviation.
struct Normalization {
  double mean = 0;
  double deviation = 1;
};

/// Samples of one shape with a class each. Constant after construction, so replicas of a process share one object.
class Dataset {
 public:
  /// Images as bytes, converted when a batch is gathered.
  /// @param shape   of one sample   @param bytes  labels.size() samples, one after the other   @param labels  in [0,
  /// classes)
  /// @throws InvalidArgument  sizes do not fit, or a label is out of range
  Dataset(Shape shape, std::vector<std::uint8_t> bytes, std::vector<std::int32_t> labels, std::int32_t classes,
          Normalization normalization = {});
  /// Samples as numbers, used as they are.
  Dataset(Shape shape, std::vector<float> values, std::vector<std::int32_t> labels, std::int32_t classes);

  std::int64_t size() const { return static_cast<std::int64_t>(labels_.size()); }
  const Shape& shape() const { return shape_; }
  std::int32_t classes() const { return classes_; }
  /// CRC-32 of the samples, how bytes become numbers, and the labels. Taken when the data set is made: about 15 ms for
  /// the 47 MB of Fashion-MNIST's training images.
  std::uint32_t checksum() const { return checksum_; }

  /// Copies the samples with these indices into `inputs` and `labels`, which are resized.
  /// `Scalar` is float or double; both get the same values, rounded.
  template <class Scalar>
  void gather(std::span<const std::uint32_t> samples, Tensor<Scalar>& inputs, std::vector<std::int32_t>& labels) const;

 private:
  void check(std::size_t elements_given) const;
  std::uint32_t compute_checksum() const;

  Shape shape_;
  std::variant<std::vector<std::uint8_t>, std::vector<float>> values_;
  std::vector<std::int32_t> labels_;
  std::int32_t classes_ = 0;
  std::vector<double> value_of_byte_;  // 256 entries, for bytes
  std::uint32_t checksum_ = 0;
};

struct TrainingData {
  std::shared_ptr<const Dataset> training, test;
};

/// Where Debian's package dataset-fashion-mnist puts its files.
inline constexpr const char* kFashionMnistDirectory = "/usr/share/datasets/fashion-mnist";

/// Reads the four IDX files, gzipped or plain, and normalises with the mean 0.2860 and deviation 0.3530 of the training
/// images.
/// @param directory  empty: kFashionMnistDirectory
/// @throws DataError  a file is missing (names what to install), cut or corrupt (names the sizes expected and found)
TrainingData load_fashion_mnist(const std::filesystem::path& directory = {});

/// `samples` samples around one random prototype per class, for tests and examples; the same for the same arguments.
/// @param noise  standard deviation around the prototypes, whose elements are standard normal
std::shared_ptr<const Dataset> synthetic_dataset(std::int64_t samples, const Shape& shape, std::int32_t classes,
                                                 std::uint64_t seed, double noise = 1.0);

}  // namespace trainer
}  // namespace FARANDOLE_API
