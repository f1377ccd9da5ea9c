// SPDX-License-Identifier: Apache-2.0
// The sets of elements that layer, group and RMS normalisation normalise.
#pragma once

#include <cstdint>

#include "farandole/internal/host_device.h"

namespace farandole::trainer {

/// Sets of a sample. Set k is `rows` runs of `width` neighbours; run r begins at element k * width + r * channels. The
/// channel of an element is its index modulo `channels`. If a set is not a run of all channels, every set begins in the
/// first row of the sample.
struct NormalizationSets {
  std::int64_t per_sample = 0, rows = 0, width = 0, channels = 0;

  FARANDOLE_HOST_DEVICE std::int64_t sample_elements() const { return per_sample * rows * width; }
  FARANDOLE_HOST_DEVICE std::int64_t offset(std::int64_t set) const {
    return set / per_sample * sample_elements() + set % per_sample * width;
  }
  FARANDOLE_HOST_DEVICE std::int64_t first_channel(std::int64_t set) const {
    return set % per_sample * width % channels;
  }
  FARANDOLE_HOST_DEVICE double count() const { return static_cast<double>(rows * width); }
  /// The set of an element, counted over all samples.
  FARANDOLE_HOST_DEVICE std::int64_t set_of(std::int64_t element) const {
    const std::int64_t sample = element / sample_elements(), place = element % sample_elements();
    const bool is_a_run_of_all = rows == 1 && width == channels;
    return sample * per_sample + (is_a_run_of_all ? place / channels : place % channels / width);
  }
};

}  // namespace farandole::trainer
