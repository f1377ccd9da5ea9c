// SPDX-License-Identifier: Apache-2.0
// Bodies of losses and metrics.
#pragma once

#include <cmath>
#include <cstdint>

#include "body_arguments.h"
#include "kernels/right_labels.h"
#include "kernels/target_formulas.h"

namespace farandole::trainer::cuda {

/// Operands: a loss for each row, logits, labels, gradient or null, weights of the samples or null, weights of the
/// classes or null. Sizes: rows, classes, rows per sample, weights of classes. Numbers: scale, smoothing. The loss and
/// the gradient of a row whose label is no class are NaN.
template <class T>
struct CrossEntropy {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t classes = a.sizes[1];
    const double smoothing = a.numbers[1], others = smoothing / static_cast<double>(classes);
    const auto* labels = input<std::int32_t>(a, 2);
    const auto* weights = input<float>(a, 4);
    const auto* class_weights = input<double>(a, 5);
    for (std::int64_t index = share.first; index < a.sizes[0]; index += share.stride) {
      const T* row = input<T>(a, 1) + index * classes;
      const std::int32_t label = labels[index];
      const bool is_class = label >= 0 && label < classes && (class_weights == nullptr || label < a.sizes[3]);
      const double of_sample = weights == nullptr ? 1.0 : static_cast<double>(weights[index / a.sizes[2]]);
      const double of_class = class_weights == nullptr || !is_class ? 1.0 : class_weights[label];
      const double of_label = is_class ? of_class : std::nan("");
      const double weight = of_sample / static_cast<double>(a.sizes[2]) * of_label;
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
      output<double>(a, 0)[index] = weight * (std::log(sum) - expected);
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

/// Operands: a loss for each row, logits, probabilities, gradient or null, weights of the samples or null, weights of
/// the classes or null. Sizes: rows, classes, weights of classes. Numbers: scale, smoothing.
template <class T>
struct SoftCrossEntropy {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t classes = a.sizes[1];
    const double kept = 1 - a.numbers[1], others = a.numbers[1] / static_cast<double>(classes);
    const auto* weights = input<float>(a, 4);
    const auto* class_weights = input<double>(a, 5);
    for (std::int64_t index = share.first; index < a.sizes[0]; index += share.stride) {
      const T *row = input<T>(a, 1) + index * classes, *target = input<T>(a, 2) + index * classes;
      T largest = row[0];
      for (std::int64_t c = 1; c < classes; ++c) largest = row[c] > largest ? row[c] : largest;
      double sum = 0, total = 0, expected = 0, of_classes = 0;
      for (std::int64_t c = 0; c < classes; ++c) {
        const double below = static_cast<double>(row[c]) - static_cast<double>(largest);
        const double smoothed = kept * static_cast<double>(target[c]) + others;
        sum += std::exp(below);
        total += smoothed;
        expected += smoothed * below;
        if (c < a.sizes[2]) of_classes += static_cast<double>(target[c]) * class_weights[c];
      }
      const double of_sample = weights == nullptr ? 1.0 : static_cast<double>(weights[index]);
      const double weight = (class_weights == nullptr ? 1.0 : of_classes) * of_sample;
      output<double>(a, 0)[index] = weight * (total * std::log(sum) - expected);
      if (a.operands[3].address == nullptr) continue;
      T* gradient = output<T>(a, 3) + index * classes;
      for (std::int64_t c = 0; c < classes; ++c) {
        const double exponential = std::exp(static_cast<double>(row[c]) - static_cast<double>(largest));
        const double smoothed = kept * static_cast<double>(target[c]) + others;
        gradient[c] = static_cast<T>(weight * a.numbers[0] * (total * exponential / sum - smoothed));
      }
    }
  }
};

/// Operands: a share of the loss for each output, outputs, targets, gradient or null, weights of the samples or null.
/// Sizes: outputs, outputs per sample, TargetLossKind. Numbers: scale, delta.
template <class T>
struct TargetLoss {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const TargetRule rule{static_cast<TargetLossKind>(a.sizes[2]), a.numbers[1]};
    const std::int64_t width = a.sizes[1];
    const auto* weights = input<float>(a, 4);
    T* gradient = output<T>(a, 3);
    use_formula(rule, [&](const auto& formula) {
      for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
        const double weight = weights == nullptr ? 1.0 : static_cast<double>(weights[i / width]);
        const double factor = weight / static_cast<double>(width);
        const LossPoint point = formula(static_cast<double>(input<T>(a, 1)[i]), static_cast<double>(input<T>(a, 2)[i]));
        output<double>(a, 0)[i] = factor * point.loss;
        if (gradient != nullptr) gradient[i] = static_cast<T>(a.numbers[0] * factor * point.slope);
      }
    });
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

/// Operands: the place in the matrix of confusions of each row, logits, labels. Sizes: rows, classes. A label that is
/// no class has the place -1.
template <class T>
struct Confusions {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t classes = a.sizes[1];
    for (std::int64_t index = share.first; index < a.sizes[0]; index += share.stride) {
      const std::int64_t label = input<std::int32_t>(a, 2)[index];
      const bool is_class = label >= 0 && label < classes;
      output<std::int64_t>(a, 0)[index] =
          is_class ? label * classes + predicted_class(input<T>(a, 1) + index * classes, classes, label) : -1;
    }
  }
};

/// Operands: counts, places. Sizes: places. Adds the number of its places to each count: the thread of the first of
/// equal places counts them.
template <class T>
struct CountPlaces {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const auto* places = input<std::int64_t>(a, 1);
    for (std::int64_t index = share.first; index < a.sizes[0]; index += share.stride) {
      const std::int64_t place = places[index];
      if (place < 0 || is_before(place, places, index)) continue;
      double count = 0;
      for (std::int64_t k = index; k < a.sizes[0]; ++k) count += places[k] == place ? 1 : 0;
      output<double>(a, 0)[place] += count;
    }
  }

 private:
  FARANDOLE_HOST_DEVICE static bool is_before(std::int64_t place, const std::int64_t* places, std::int64_t count) {
    for (std::int64_t k = 0; k < count; ++k) {
      if (places[k] == place) return true;
    }
    return false;
  }
};

/// Operands: 1 or 0 for each output, outputs, targets. Sizes: outputs. Numbers: threshold.
template <class T>
struct RightSides {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const bool is_above = static_cast<double>(input<T>(a, 1)[i]) > a.numbers[0];
      output<double>(a, 0)[i] = is_above == (static_cast<double>(input<T>(a, 2)[i]) > 0.5) ? 1 : 0;
    }
  }
};

}  // namespace farandole::trainer::cuda
