// SPDX-License-Identifier: Apache-2.0
// Data without an index: a function gives one sample after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "farandole/core/export.h"
#include "farandole/trainer/dataset.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// A sample that a generator writes. `input` and `target` hold the previous sample's values, or zeros.
struct StreamSample {
  std::span<float> input;
  std::span<float> target;  ///< empty if the samples have no targets
  std::int32_t label = 0;   ///< of samples with classes
  float weight = 1;         ///< factor of the sample's loss
  /// True: nobody uses this sample, because it belongs to another rank, or to the time before a resume. The generator
  /// may move on without computing the sample.
  bool is_skipped = false;
};

/// Writes the next sample. To end a stream early is an error: throw DataError.
using SampleGenerator = std::function<void(StreamSample& sample)>;

struct StreamOptions {
  Shape shape = {};                    ///< of a sample's input
  std::int64_t samples_per_epoch = 0;  ///< after which the trainer evaluates, and so on; the stream goes on
  std::int32_t classes = 0;            ///< labels are in [0, classes); 0: no classes
  Shape target_shape = {};             ///< empty: no targets
};

/// Makes a data set of a stream. Each replica has a generator of its own, which it calls on one thread at a time, in
/// the order of the samples.
///
///     const auto stream = stream_dataset({.shape = {1}, .samples_per_epoch = 10000, .target_shape = {1}}, [] {
///       return [sensor = open_sensor()](StreamSample& sample) {
///         const Reading reading = sensor->next();
///         sample.input[0] = reading.x;
///         sample.target[0] = reading.y;
///       };
///     });
///
/// The trainer does not shuffle, and gathers on at most one thread. All ranks' generators must give the same samples:
/// each rank runs through all, and computes those of its part of each global batch. With DataOptions::own_shards every
/// rank's stream is its own, and no sample is skipped in training. A resumed training skips the samples that were used.
/// An evaluation or prediction begins a new generator, so it sees the first samples. Not in deterministic mode.
/// @param make_generator  called for each replica, possibly on several threads together, and again where a training has
/// to read samples a second time (after an exception, or for a second Trainer)
/// @throws InvalidArgument  an option is out of range
std::shared_ptr<const Dataset> stream_dataset(StreamOptions options, std::function<SampleGenerator()> make_generator);

}  // namespace trainer
}  // namespace FARANDOLE_API
