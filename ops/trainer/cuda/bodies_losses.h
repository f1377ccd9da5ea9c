// SPDX-License-Identifier: Apache-2.0
// Bodies of losses and metrics.
#pragma once

#include <cmath>
#include <cstdint>

#include "body_arguments.h"
#include "kernels/right_labels.h"

namespace farandole::trainer::cuda {

/// Operands: a loss for each row, logits, labels, gradient or null, weights of the samples or null. Sizes: rows,
/// classes, rows per sample. Numbers: scale, smoothing.
template <class T>
struct CrossEntropy {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t classes = a.sizes[1];
    const double smoothing = a.numbers[1], others = smoothing / static_cast<double>(classes);
    const auto* labels = input<std::int32_t>(a, 2);
    const auto* weights = input<float>(a, 4);
    for (std::int64_t index = share.first; index < a.sizes[0]; index += share.stride) {
      const T* row = input<T>(a, 1) + index * classes;
      const std::int32_t label = labels[index];
      const bool is_class = label >= 0 && label < classes;
      const double of_sample = weights == nullptr ? 1.0 : static_cast<double>(weights[index / a.sizes[2]]);
      const double weight = of_sample / static_cast<double>(a.sizes[2]);
      T largest = row[0];
      for (std::int64_t c = 1; c < classes; ++c) largest = row[c] > largest ? row[c] : largest;
      double sum = 0, all = 0;
      for (std::int64_t c = 0; c < classes; ++c) {
        const double below = static_cast<double>(row[c]) - static_cast<double>(largest);
        sum += std::exp(below);
        all += others * below;
      }
      const double own = static_cast<double>(row[is_class ? label : 0]) - static_cast<double>(largest);
      const double expected = smoothing > 0 ? own * (1 - smoothing) + all : own;
      output<double>(a, 0)[index] = is_class ? weight * (std::log(sum) - expected) : std::nan("");
      if (a.operands[3].address == nullptr) continue;
      T* gradient = output<T>(a, 3) + index * classes;
      for (std::int64_t c = 0; c < classes; ++c) {
        const double share_of_class = std::exp(static_cast<double>(row[c]) - static_cast<double>(largest)) / sum;
        const double target = (c == label ? 1 - smoothing : 0) + others;
        gradient[c] = static_cast<T>(weight * a.numbers[0] * (share_of_class - target));
      }
    }
  }
};

/// Operands: 1 or 0 for each row, logits, labels. Sizes: rows, classes, k.
template <class T>
struct RightLabels {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t classes = a.sizes[1];
    const auto* labels = input<std::int32_t>(a, 2);
    for (std::int64_t index = share.first; index < a.sizes[0]; index += share.stride) {
      const T* row = input<T>(a, 1) + index * classes;
      const std::int32_t label = labels[index];
      const bool is_class = label >= 0 && label < classes;
      const bool is_right = is_class && number_of_larger(row, classes, label) < a.sizes[2];
      output<double>(a, 0)[index] = is_right ? 1 : 0;
    }
  }
};

}  // namespace farandole::trainer::cuda
