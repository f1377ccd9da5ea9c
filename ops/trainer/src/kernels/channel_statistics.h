// SPDX-License-Identifier: Apache-2.0
// Statistics of channels, for batch normalisation.
#pragma once

namespace farandole::trainer {

/// What normalises the values of each channel. Lies in the memory of the kernels.
template <class Scalar>
struct ChannelStatistics {
  Scalar *mean = nullptr, *inverse_deviation = nullptr;  ///< a number for each channel
  double* count = nullptr;                               ///< number of rows over which the means were taken
};

}  // namespace farandole::trainer
