// SPDX-License-Identifier: Apache-2.0
// Bodies of losses and metrics.
#pragma once

#include <cmath>
#include <cstdint>

#include "bodies_rows.h"
#include "body_arguments.h"
#include "kernels/right_labels.h"
#include "kernels/target_formulas.h"

namespace farandole::trainer::cuda {

// Cross-entropies. The results of a part have its largest logit L first, so that no exponential is larger than 1; the
// results of a row are {largest logit, sum of exp(z - largest), …}, of a matrix {results, rows}.

/// Operands: results of the parts {L, sum of exp(z - L), sum of z - L}, logits. Sizes: rows, classes, parts.
template <class T>
struct SumLogits {
  static constexpr std::int64_t kResults = 3;

  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t classes = a.sizes[1], parts = a.sizes[2];
    for_each_part(a.sizes[0], parts, share, [&](std::int64_t index, std::int64_t part) {
      const T* row = input<T>(a, 1) + index * classes;
      const double largest = largest_of_part(row, classes, part, parts);
      double sum = 0, all = 0;
      for (std::int64_t c = part; c < classes; c += parts) {
        const double below = static_cast<double>(row[c]) - largest;
        sum += std::exp(below);
        all += below;
      }
      const auto results = results_of_row<double>(a, 0, index, kResults, parts);
      results.at(0, part) = largest;
      results.at(1, part) = sum;
      results.at(2, part) = all;
    });
  }
};

/// Returns the sum of exp(z - largest) of a row, from the results {L, sum of exp(z - L)} of its parts.
FARANDOLE_HOST_DEVICE inline double sum_of_exponentials(const PartResults<double>& results, double largest) {
  double sum = 0;
  for (std::int64_t part = 0; part < results.parts; ++part) {
    sum += results.at(1, part) * std::exp(results.at(0, part) - largest);
  }
  return sum;
}

/// Operands: a loss for each row, results of the rows with the factor of the gradient, results of SumLogits, logits,
/// labels, weights of the samples or null, weights of the classes or null. Sizes: rows, classes, parts, rows per
/// sample, weights of classes. Numbers: scale, smoothing. The loss and the gradient of a row whose label is no class
/// are NaN.
template <class T>
struct CrossEntropy {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t rows = a.sizes[0], classes = a.sizes[1], parts = a.sizes[2];
    const double smoothing = a.numbers[1];
    const auto* labels = input<std::int32_t>(a, 4);
    const auto* weights = input<float>(a, 5);
    const auto* class_weights = input<double>(a, 6);
    for (std::int64_t index = share.first; index < rows; index += share.stride) {
      const T* row = input<T>(a, 3) + index * classes;
      const std::int32_t label = labels[index];
      const bool is_class = label >= 0 && label < classes && (class_weights == nullptr || label < a.sizes[4]);
      const double of_sample = weights == nullptr ? 1.0 : static_cast<double>(weights[index / a.sizes[3]]);
      const double of_class = class_weights == nullptr || !is_class ? 1.0 : class_weights[label];
      const double of_label = is_class ? of_class : std::nan("");
      const double weight = of_sample / static_cast<double>(a.sizes[3]) * of_label;
      const auto results = results_of_row<double>(a, 2, index, SumLogits<T>::kResults, parts);
      const double largest = largest_of(results, 0), sum = sum_of_exponentials(results, largest);
      double expected = static_cast<double>(row[is_class ? label : 0]) - largest;
      if (smoothing > 0) {
        const double all = sum_below(results, classes, largest);
        expected = expected * (1 - smoothing) + smoothing / static_cast<double>(classes) * all;
      }
      output<double>(a, 0)[index] = weight * (std::log(sum) - expected);
      auto* of_row = output<double>(a, 1) + index;
      of_row[0] = largest;
      of_row[rows] = sum;
      of_row[2 * rows] = weight * a.numbers[0];
    }
  }

 private:
  /// The sum of z - largest.
  FARANDOLE_HOST_DEVICE static double sum_below(const PartResults<double>& results, std::int64_t classes,
                                                double largest) {
    double all = 0;
    for (std::int64_t part = 0; part < results.parts; ++part) {
      const auto count = static_cast<double>((classes - part + results.parts - 1) / results.parts);
      all += results.at(2, part) + count * (results.at(0, part) - largest);
    }
    return all;
  }
};

/// Operands: gradient, logits, labels, results of the rows. Sizes: rows, classes, parts. Numbers: smoothing.
template <class T>
struct CrossEntropyGradient {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t rows = a.sizes[0], classes = a.sizes[1], parts = a.sizes[2];
    const double smoothing = a.numbers[0], others = smoothing / static_cast<double>(classes);
    for_each_part(rows, parts, share, [&](std::int64_t index, std::int64_t part) {
      const T* row = input<T>(a, 1) + index * classes;
      const auto* of_row = input<double>(a, 3) + index;
      const double largest = of_row[0], sum = of_row[rows], factor = of_row[2 * rows];
      const std::int64_t label = input<std::int32_t>(a, 2)[index];
      T* gradient = output<T>(a, 0) + index * classes;
      for (std::int64_t c = part; c < classes; c += parts) {
        const double share_of_class = std::exp(static_cast<double>(row[c]) - largest) / sum;
        const double target = (c == label ? 1 - smoothing : 0) + others;
        gradient[c] = static_cast<T>(factor * (share_of_class - target));
      }
    });
  }
};

/// Operands: results of the parts {L, sum of exp(z - L), sum of t, sum of t * (z - L), sum of the classes' weights by
/// their probabilities}, logits, probabilities, weights of the classes or null. Sizes: rows, classes, parts, weights of
/// classes. Numbers: smoothing. t are the smoothed probabilities.
template <class T>
struct SumSoftLogits {
  static constexpr std::int64_t kResults = 5;

  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t classes = a.sizes[1], parts = a.sizes[2];
    const double kept = 1 - a.numbers[0], others = a.numbers[0] / static_cast<double>(classes);
    const auto* class_weights = input<double>(a, 3);
    for_each_part(a.sizes[0], parts, share, [&](std::int64_t index, std::int64_t part) {
      const T *row = input<T>(a, 1) + index * classes, *target = input<T>(a, 2) + index * classes;
      const double largest = largest_of_part(row, classes, part, parts);
      double sum = 0, total = 0, expected = 0, of_classes = 0;
      for (std::int64_t c = part; c < classes; c += parts) {
        const double below = static_cast<double>(row[c]) - largest;
        const double smoothed = kept * static_cast<double>(target[c]) + others;
        sum += std::exp(below);
        total += smoothed;
        expected += smoothed * below;
        if (c < a.sizes[3]) of_classes += static_cast<double>(target[c]) * class_weights[c];
      }
      const auto results = results_of_row<double>(a, 0, index, kResults, parts);
      results.at(0, part) = largest;
      results.at(1, part) = sum;
      results.at(2, part) = total;
      results.at(3, part) = expected;
      results.at(4, part) = of_classes;
    });
  }
};

/// Operands: a loss for each row, results of the rows with the sum of t and the factor of the gradient, results of
/// SumSoftLogits, weights of the samples or null. Sizes: rows, parts, weights of classes. Numbers: scale.
template <class T>
struct SoftCrossEntropy {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t rows = a.sizes[0], parts = a.sizes[1];
    const auto* weights = input<float>(a, 3);
    for (std::int64_t index = share.first; index < rows; index += share.stride) {
      const auto results = results_of_row<double>(a, 2, index, SumSoftLogits<T>::kResults, parts);
      const double largest = largest_of(results, 0), sum = sum_of_exponentials(results, largest);
      double expected = 0;
      for (std::int64_t part = 0; part < parts; ++part) {
        expected += results.at(3, part) + results.at(2, part) * (results.at(0, part) - largest);
      }
      const double total = results.sum(2), of_classes = a.sizes[2] == 0 ? 1.0 : results.sum(4);
      const double weight = of_classes * (weights == nullptr ? 1.0 : static_cast<double>(weights[index]));
      output<double>(a, 0)[index] = weight * (total * std::log(sum) - expected);
      auto* of_row = output<double>(a, 1) + index;
      of_row[0] = largest;
      of_row[rows] = sum;
      of_row[2 * rows] = total;
      of_row[3 * rows] = weight * a.numbers[0];
    }
  }
};

/// Operands: gradient, logits, probabilities, results of the rows. Sizes: rows, classes, parts. Numbers: smoothing.
template <class T>
struct SoftCrossEntropyGradient {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t rows = a.sizes[0], classes = a.sizes[1], parts = a.sizes[2];
    const double kept = 1 - a.numbers[0], others = a.numbers[0] / static_cast<double>(classes);
    for_each_part(rows, parts, share, [&](std::int64_t index, std::int64_t part) {
      const T *row = input<T>(a, 1) + index * classes, *target = input<T>(a, 2) + index * classes;
      const auto* of_row = input<double>(a, 3) + index;
      const double largest = of_row[0], sum = of_row[rows], total = of_row[2 * rows], factor = of_row[3 * rows];
      T* gradient = output<T>(a, 0) + index * classes;
      for (std::int64_t c = part; c < classes; c += parts) {
        const double exponential = std::exp(static_cast<double>(row[c]) - largest);
        const double smoothed = kept * static_cast<double>(target[c]) + others;
        gradient[c] = static_cast<T>(factor * (total * exponential / sum - smoothed));
      }
    });
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

/// True if a label of a row is a class.
FARANDOLE_HOST_DEVICE inline bool is_class(std::int64_t label, std::int64_t classes) {
  return label >= 0 && label < classes;
}

/// Operands: how many classes of each part are before the label, logits, labels. Sizes: rows, classes, parts.
template <class T>
struct CountLarger {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t classes = a.sizes[1], parts = a.sizes[2];
    for_each_part(a.sizes[0], parts, share, [&](std::int64_t index, std::int64_t part) {
      const std::int32_t label = input<std::int32_t>(a, 2)[index];
      if (!is_class(label, classes)) return;
      results_of_row<std::int64_t>(a, 0, index, 1, parts).at(0, part) =
          number_of_larger(input<T>(a, 1) + index * classes, classes, label, part, parts);
    });
  }
};

/// Operands: 1 or 0 for each row, results of CountLarger, labels. Sizes: rows, classes, parts, k.
template <class T>
struct RightLabels {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const auto* labels = input<std::int32_t>(a, 2);
    for (std::int64_t index = share.first; index < a.sizes[0]; index += share.stride) {
      const auto counts = results_of_row<std::int64_t>(a, 1, index, 1, a.sizes[2]);
      const bool is_right = is_class(labels[index], a.sizes[1]) && counts.sum(0) < a.sizes[3];
      output<double>(a, 0)[index] = is_right ? 1 : 0;
    }
  }
};

/// Operands: the predicted class of each part, logits, labels. Sizes: rows, classes, parts.
template <class T>
struct PredictClasses {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t classes = a.sizes[1], parts = a.sizes[2];
    for_each_part(a.sizes[0], parts, share, [&](std::int64_t index, std::int64_t part) {
      results_of_row<std::int64_t>(a, 0, index, 1, parts).at(0, part) =
          predicted_class(input<T>(a, 1) + index * classes, classes, input<std::int32_t>(a, 2)[index], part, parts);
    });
  }
};

/// Adds 1 to a whole number, which other threads may do at the same time: the sum is exact in any order.
FARANDOLE_HOST_DEVICE inline void count_one(double* count) {
#if defined(__CUDA_ARCH__)
  atomicAdd(count, 1.0);
#else
  *count += 1;
#endif
}

/// Operands: counts, results of PredictClasses, logits, labels. Sizes: rows, classes, parts. Adds 1 to the count of
/// each row's label and predicted class. Labels that are no class are not counted.
template <class T>
struct Confusions {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t classes = a.sizes[1];
    for (std::int64_t index = share.first; index < a.sizes[0]; index += share.stride) {
      const std::int64_t label = input<std::int32_t>(a, 3)[index];
      if (!is_class(label, classes)) continue;
      const T* row = input<T>(a, 2) + index * classes;
      const auto of_parts = results_of_row<std::int64_t>(a, 1, index, 1, a.sizes[2]);
      std::int64_t best = of_parts.at(0, 0);
      for (std::int64_t part = 1; part < of_parts.parts; ++part) {
        const std::int64_t other = of_parts.at(0, part);
        best = is_predicted_before(row, label, other, best) ? other : best;
      }
      count_one(output<double>(a, 0) + label * classes + best);
    }
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
