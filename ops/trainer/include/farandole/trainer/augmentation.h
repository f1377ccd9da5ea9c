// SPDX-License-Identifier: Apache-2.0
// Random changes of the samples in training.
#pragma once

#include <cstdint>
#include <memory>

#include "farandole/core/export.h"
#include "farandole/trainer/dataset.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Changes are applied in the order of the members. Zeros of `crop_padding` and `cutout` are zeros of the samples as
/// the data set gives them: after its normalisation, so 0 is the mean of normalised images.
struct AugmentationOptions {
  /// Pixels of zeros around an image, from which a part of the image's size is cut out at a random place; 0: no crop.
  /// At most the image's height and width. For images of 32x32 pixels 4 is usual.
  std::int64_t crop_padding = 0;
  double flip = 0;  ///< probability that an image is mirrored from left to right, in [0, 1]
  /// Side of a square of zeros whose centre is a random pixel; the part of the square outside of the image is lost. 0:
  /// none. Source: DeVries & Taylor, arXiv 1708.04552.
  std::int64_t cutout = 0;
  /// Mixes each sample with another one, drawn from the whole data set and changed by the options above in its own way:
  /// share * sample + (1 - share) * other, where the share has the distribution Beta(mixup, mixup). 0: off; 0.2 is
  /// usual. Samples with classes get targets of shape {classes}, the shares of both classes, which cross_entropy_loss
  /// uses as probabilities; the label is the class with the larger share. Targets and weights are mixed like inputs.
  /// Gathers two samples for each. Source: Zhang et al., mixup, ICLR 2018.
  double mixup = 0;
};

/// Makes a data set whose samples change at random in each epoch of a training. Evaluations and predictions get the
/// samples unchanged.
///
///     auto training = augmented(load_fashion_mnist().training, {.crop_padding = 2, .flip = 0.5});
///
/// Every choice is a function of (seed, epoch, index of the sample), so it depends neither on rank, batch and thread
/// nor on the number of replicas; deterministic mode keeps its promise. With own shards every rank draws its own
/// choices. Thread-safe if `data` is. Cost: about two copies of each sample. Augmented data sets can be augmented
/// again.
/// @throws InvalidArgument  an option is out of range; the samples are not {height, width, channels} and an option
/// needs images; or mixup cannot be used with the data: a stream, or samples that have both classes and targets
std::shared_ptr<const Dataset> augmented(std::shared_ptr<const Dataset> data, const AugmentationOptions& options);

}  // namespace trainer
}  // namespace FARANDOLE_API
