// SPDX-License-Identifier: Apache-2.0
// Bodies of the trainer's kernels, for GPUs (trainer_kernels.cu) and for the CPU that plays the GPU in tests. Each body
// is a struct with a function `run(arguments, share)`: the share of one thread. What a body does, Kernels says
// (ops/trainer/src/kernels/kernels.h); the comment at each body lists its operands, sizes and numbers.
//
// Each element of a result is computed by one thread, in an order that depends on the sizes only. So results do not
// depend on the number of blocks.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/operand_arguments.h"
#include "farandole/internal/host_device.h"
#include "farandole/trainer/step_numbers.h"
#include "kernels/activation.h"
#include "kernels/channel_formulas.h"
#include "kernels/normalization_sets.h"
#include "kernels/pooling_windows.h"
#include "kernels/right_labels.h"
#include "kernels/update_formulas.h"
#include "philox.h"
#include "random_streams.h"

namespace farandole::trainer::cuda {

using Arguments = farandole::cuda::OperandArguments;

/// The elements of a thread: first, first + stride, … below a count.
struct Share {
  std::int64_t first, stride;
};

template <class T>
FARANDOLE_HOST_DEVICE inline const T* input(const Arguments& arguments, int operand) {
  return static_cast<const T*>(arguments.operands[operand].address);
}
template <class T>
FARANDOLE_HOST_DEVICE inline T* output(const Arguments& arguments, int operand) {
  return static_cast<T*>(arguments.operands[operand].address);
}
template <class T>
FARANDOLE_HOST_DEVICE inline T number(const Arguments& arguments, int index) {
  return static_cast<T>(arguments.numbers[index]);
}

// Vectors. Operand 0 is the result, sizes[0] the number of elements.

/// Operands: sum, left, right.
template <class T>
struct Add {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T *left = input<T>(a, 1), *right = input<T>(a, 2);
    T* sum = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) sum[i] = left[i] + right[i];
  }
};

/// Operands: product, left, right.
template <class T>
struct Multiply {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T *left = input<T>(a, 1), *right = input<T>(a, 2);
    T* product = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) product[i] = left[i] * right[i];
  }
};

/// Operands: values. Numbers: factor.
template <class T>
struct Scale {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T factor = number<T>(a, 0);
    T* values = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) values[i] *= factor;
  }
};

/// Operands: values, target. Numbers: weight.
template <class T>
struct Approach {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T weight = number<T>(a, 0);
    const T* target = input<T>(a, 1);
    T* values = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) values[i] += weight * (target[i] - values[i]);
  }
};

/// Operands: average, values. Numbers: keep, add.
template <class T>
struct MoveAverage {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T keep = number<T>(a, 0), add = number<T>(a, 1);
    const T* values = input<T>(a, 1);
    T* average = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride)
      average[i] = keep * average[i] + add * values[i];
  }
};

/// An activation and its derivative at one element.
template <class T>
struct ElementActivation {
  ActivationKind kind;
  T slope;

  FARANDOLE_HOST_DEVICE static T logistic(T x) { return T{1} / (T{1} + std::exp(-x)); }
  /// Distribution function of the standard normal distribution.
  FARANDOLE_HOST_DEVICE static T probability(T x) { return T(0.5) * (T{1} + std::erf(x * T(0.70710678118654752440))); }

  FARANDOLE_HOST_DEVICE T value(T x) const {
    switch (kind) {
      case ActivationKind::kRelu:
        return Relu<T>{}.value(x);
      case ActivationKind::kLeakyRelu:
        return LeakyRelu<T>{slope}.value(x);
      case ActivationKind::kGelu:
        return x * probability(x);
      case ActivationKind::kSilu:
        return x * logistic(x);
      case ActivationKind::kSigmoid:
        return logistic(x);
      case ActivationKind::kHyperbolicTangent:
        return std::tanh(x);
    }
    return x;
  }
  FARANDOLE_HOST_DEVICE T gradient(T x, T y, T dy) const {
    switch (kind) {
      case ActivationKind::kRelu:
        return Relu<T>{}.gradient(x, y, dy);
      case ActivationKind::kLeakyRelu:
        return LeakyRelu<T>{slope}.gradient(x, y, dy);
      case ActivationKind::kGelu: {
        const T density = T(0.39894228040143267794) * std::exp(T(-0.5) * x * x);
        return dy * (probability(x) + x * density);
      }
      case ActivationKind::kSilu: {
        const T gate = logistic(x);
        return dy * gate * (T{1} + x * (T{1} - gate));
      }
      case ActivationKind::kSigmoid:
        return dy * y * (T{1} - y);
      case ActivationKind::kHyperbolicTangent:
        return dy * (T{1} - y * y);
    }
    return dy;
  }
};

template <class T>
FARANDOLE_HOST_DEVICE inline ElementActivation<T> activation_of(const Arguments& a) {
  return {static_cast<ActivationKind>(a.sizes[1]), number<T>(a, 0)};
}

/// Operands: y, x. Sizes: count, kind. Numbers: slope.
template <class T>
struct Activate {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const ElementActivation<T> activation = activation_of<T>(a);
    const T* x = input<T>(a, 1);
    T* y = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) y[i] = activation.value(x[i]);
  }
};

/// Operands: dx, x, y, dy. Sizes: count, kind. Numbers: slope.
template <class T>
struct ActivateBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const ElementActivation<T> activation = activation_of<T>(a);
    const T *x = input<T>(a, 1), *y = input<T>(a, 2), *dy = input<T>(a, 3);
    T* dx = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride)
      dx[i] = activation.gradient(x[i], y[i], dy[i]);
  }
};

/// The numbers of the training step, if the operation has them; else null.
FARANDOLE_HOST_DEVICE inline const StepNumbers* step_numbers_of(const Arguments& a, int operand) {
  return input<StepNumbers>(a, operand);
}

/// Operands: factors, StepNumbers or null. Sizes: count, seed, purpose, training step, layer, first draw. Numbers:
/// rate, factor of what is kept.
template <class T>
struct DrawDropout {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const StepNumbers* const step = step_numbers_of(a, 1);
    const auto whole = [&a](int index) { return static_cast<std::uint64_t>(a.sizes[index]); };
    const std::uint64_t seed = whole(1), first = whole(5);
    const std::uint64_t indices[]{step == nullptr ? whole(3) : static_cast<std::uint64_t>(step->training_step),
                                  whole(4)};
    const std::uint64_t stream = hashed_stream(whole(2), indices, 2);
    const double dropped_below = a.numbers[0] * 4294967296.0;
    const T kept = number<T>(a, 1);
    T* factors = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::uint64_t counter = first + static_cast<std::uint64_t>(i);
      const PhiloxBlock block = philox(seed, stream, counter / 4);
      factors[i] = block.words[counter % 4] < dropped_below ? T{0} : kept;
    }
  }
};

// Matrices.

/// Operands: result, row. Sizes: elements of the result, columns.
template <class T>
struct FillRows {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T* row = input<T>(a, 1);
    T* result = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) result[i] = row[i % a.sizes[1]];
  }
};

/// Operands: values. Sizes: count. Sets each to 1.
template <class T>
struct FillOnes {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    T* values = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) values[i] = T{1};
  }
};

/// Operands: result, values. Sizes: elements to copy, columns, first and width in the values, first and width in the
/// result.
template <class T>
struct CopyColumns {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T* values = input<T>(a, 1);
    T* result = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t row = i / a.sizes[1], column = i % a.sizes[1];
      result[row * a.sizes[5] + a.sizes[4] + column] = values[row * a.sizes[3] + a.sizes[2] + column];
    }
  }
};

/// Operands: transposed matrix, matrix. Sizes: elements, rows and columns of the matrix.
template <class T>
struct Transpose {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t rows = a.sizes[1], columns = a.sizes[2];
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      output<T>(a, 0)[i] = input<T>(a, 1)[i % rows * columns + i / rows];
    }
  }
};

// Images.

FARANDOLE_HOST_DEVICE inline PoolingWindows windows_of(const Arguments& a) {
  return {a.sizes[1], a.sizes[2], a.sizes[3], a.sizes[4], a.sizes[5], a.sizes[6]};
}

/// Operands: y, x. Sizes: elements of y, the members of PoolingWindows, Pooling.
template <class T>
struct Pool {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const PoolingWindows w = windows_of(a);
    const bool averages = a.sizes[7] == static_cast<std::int64_t>(Pooling::kAverage);
    const std::int64_t places = w.size * w.size;
    const T* x = input<T>(a, 1);
    T* y = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const T* corner = x + w.input_offset(i / w.channels) + i % w.channels;
      T result = averages ? T{0} + corner[0] : corner[0];
      for (std::int64_t place = 1; place < places; ++place) {
        const T value = corner[w.place_offset(place)];
        if (averages) {
          result += value;
        } else if (value > result || value != value) {  // NaN wins
          result = value;
        }
      }
      y[i] = averages ? result * (T{1} / static_cast<T>(places)) : result;
    }
  }
};

/// Operands: dx, x, y, dy. Sizes: as Pool's. Writes the elements inside windows.
template <class T>
struct PoolBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const PoolingWindows w = windows_of(a);
    const bool averages = a.sizes[7] == static_cast<std::int64_t>(Pooling::kAverage);
    const std::int64_t places = w.size * w.size;
    const T *x = input<T>(a, 1), *y = input<T>(a, 2), *dy = input<T>(a, 3);
    T* dx = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t corner = w.input_offset(i / w.channels) + i % w.channels;
      T left = averages ? dy[i] * (T{1} / static_cast<T>(places)) : dy[i];
      for (std::int64_t place = 0; place < places; ++place) {
        const std::int64_t offset = corner + w.place_offset(place);
        if (averages) {
          dx[offset] = left;
        } else {
          const bool is_first = x[offset] == y[i];
          dx[offset] = is_first ? left : T{0};
          left = is_first ? T{0} : left;
        }
      }
    }
  }
};

/// Sizes of a convolution: sizes[1] … sizes[9].
struct PatchSizes {
  std::int64_t height, width, inputs, kernel, stride, padding, output_height, output_width;
};
FARANDOLE_HOST_DEVICE inline PatchSizes patch_sizes_of(const Arguments& a) {
  return {a.sizes[1], a.sizes[2], a.sizes[3], a.sizes[4], a.sizes[5], a.sizes[6], a.sizes[7], a.sizes[8]};
}

/// Operands: patches, images. Sizes: elements of all patches, the members of PatchSizes. A patch is the part of an
/// image from which an output position is computed: {kernel, kernel, inputs}, 0 outside the image.
template <class T>
struct GatherPatches {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const PatchSizes g = patch_sizes_of(a);
    const T* images = input<T>(a, 1);
    T* patches = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      std::int64_t rest = i;
      const auto next = [&rest](std::int64_t extent) {
        const std::int64_t index = rest % extent;
        rest /= extent;
        return index;
      };
      const std::int64_t channel = next(g.inputs), kx = next(g.kernel), ky = next(g.kernel);
      const std::int64_t ox = next(g.output_width), oy = next(g.output_height);
      const std::int64_t x = ox * g.stride - g.padding + kx, y = oy * g.stride - g.padding + ky;
      const bool is_inside = x >= 0 && x < g.width && y >= 0 && y < g.height;
      patches[i] = is_inside ? images[((rest * g.height + y) * g.width + x) * g.inputs + channel] : T{0};
    }
  }
};

/// Operands: images, patches. Sizes: elements of all images, the members of PatchSizes. Sets each pixel to the sum of
/// its places in patches, in the order of the output positions.
template <class T>
struct ScatterPatches {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const PatchSizes g = patch_sizes_of(a);
    const T* patches = input<T>(a, 1);
    T* images = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t channel = i % g.inputs, pixel = i / g.inputs;
      const std::int64_t x = pixel % g.width + g.padding, row = pixel / g.width;
      const std::int64_t y = row % g.height + g.padding, sample = row / g.height;
      T sum{0};
      for (std::int64_t oy = first_output(y, g); oy <= last_output(y, g.output_height, g); ++oy) {
        for (std::int64_t ox = first_output(x, g); ox <= last_output(x, g.output_width, g); ++ox) {
          const std::int64_t ky = y - oy * g.stride, kx = x - ox * g.stride;
          const std::int64_t position = (sample * g.output_height + oy) * g.output_width + ox;
          sum += patches[((position * g.kernel + ky) * g.kernel + kx) * g.inputs + channel];
        }
      }
      images[i] = sum;
    }
  }

 private:
  /// The first output position whose patch has coordinate `at`, which counts the padding.
  FARANDOLE_HOST_DEVICE static std::int64_t first_output(std::int64_t at, const PatchSizes& g) {
    const std::int64_t before = at - g.kernel;
    return before < 0 ? 0 : before / g.stride + 1;
  }
  FARANDOLE_HOST_DEVICE static std::int64_t last_output(std::int64_t at, std::int64_t extent, const PatchSizes& g) {
    const std::int64_t last = at / g.stride;
    return last < extent - 1 ? last : extent - 1;
  }
};

/// Operands: means, x. Sizes: means, positions, channels.
template <class T>
struct AveragePositions {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t positions = a.sizes[1], channels = a.sizes[2];
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const T* x = input<T>(a, 1) + i / channels * positions * channels + i % channels;
      double sum = 0;
      for (std::int64_t position = 0; position < positions; ++position)
        sum += static_cast<double>(x[position * channels]);
      output<T>(a, 0)[i] = static_cast<T>(sum / static_cast<double>(positions));
    }
  }
};

/// Operands: dx, dy. Sizes: elements of dx, positions, channels.
template <class T>
struct AveragePositionsBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t positions = a.sizes[1], channels = a.sizes[2];
    const T divisor = static_cast<T>(positions);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      output<T>(a, 0)[i] = input<T>(a, 1)[i / channels / positions * channels + i % channels] / divisor;
    }
  }
};

// Batch normalisation. Rows are dealt out to partial sums: partial sum p adds the rows p, p + partials, …

/// Operands: partial sums {partials, 2, channels}, x, and for gradients dy, means and inverse deviations, else null.
/// Sizes: partials * channels, rows, channels, partials.
template <class T>
struct ChannelMoments {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t rows = a.sizes[1], channels = a.sizes[2], partials = a.sizes[3];
    const T *x = input<T>(a, 1), *dy = input<T>(a, 2), *mean = input<T>(a, 3), *inverse = input<T>(a, 4);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t c = i % channels;
      double first = 0, second = 0;
      for (std::int64_t row = i / channels; row < rows; row += partials) {
        const T value = x[row * channels + c];
        if (dy == nullptr) {
          first += static_cast<double>(value);
          second += static_cast<double>(value) * static_cast<double>(value);
        } else {
          const auto slope = static_cast<double>(dy[row * channels + c]);
          first += slope;
          second += slope * static_cast<double>((value - mean[c]) * inverse[c]);
        }
      }
      double* sums = output<double>(a, 0) + i / channels * 2 * channels + c;
      sums[0] = first;
      sums[channels] = second;
    }
  }
};

/// Operands: sums, partial sums {partials, columns}. Sizes: columns, partials. Adds the partial sums of each column.
template <class T>
struct AddPartials {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    for (std::int64_t column = share.first; column < a.sizes[0]; column += share.stride) {
      double sum = 0;
      for (std::int64_t p = 0; p < a.sizes[1]; ++p) sum += input<double>(a, 1)[p * a.sizes[0] + column];
      output<double>(a, 0)[column] += sum;
    }
  }
};

template <class T>
FARANDOLE_HOST_DEVICE inline ChannelStatistics<T> statistics_of(const Arguments& a, int operand) {
  return {output<T>(a, operand), output<T>(a, operand + 1), output<double>(a, operand + 2)};
}

/// Operands: means, inverse deviations, count, batch means, batch variances, sums. Sizes: channels. Numbers: epsilon.
template <class T>
struct UseBatch {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t channels = a.sizes[0];
    const ChannelStatistics<T> statistics = statistics_of<T>(a, 0);
    const auto* sums = input<double>(a, 5);
    if (share.first == 0) *statistics.count = sums[2 * channels];
    for (std::int64_t c = share.first; c < channels; c += share.stride) {
      take_batch(sums, channels, c, a.numbers[0], statistics, output<T>(a, 3), output<T>(a, 4));
    }
  }
};

/// Operands: means, inverse deviations, count, moving means, moving variances. Sizes: channels. Numbers: epsilon.
template <class T>
struct UseMoving {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const ChannelStatistics<T> statistics = statistics_of<T>(a, 0);
    if (share.first == 0) *statistics.count = 1;
    for (std::int64_t c = share.first; c < a.sizes[0]; c += share.stride) {
      set_channel(statistics, c, static_cast<double>(input<T>(a, 3)[c]), static_cast<double>(input<T>(a, 4)[c]),
                  a.numbers[0]);
    }
  }
};

/// Operands: y, x, means, inverse deviations, scale, shift. Sizes: elements, channels.
template <class T>
struct Normalize {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T *x = input<T>(a, 1), *mean = input<T>(a, 2), *inverse = input<T>(a, 3);
    const T *scale = input<T>(a, 4), *shift = input<T>(a, 5);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t c = i % a.sizes[1];
      output<T>(a, 0)[i] = (x[i] - mean[c]) * inverse[c] * scale[c] + shift[c];
    }
  }
};

/// Operands: gradients of scale, gradients of shift or null, sums. Sizes: channels.
template <class T>
struct StoreGradients {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const auto* sums = input<double>(a, 2);
    for (std::int64_t c = share.first; c < a.sizes[0]; c += share.stride) {
      output<T>(a, 0)[c] = static_cast<T>(sums[a.sizes[0] + c]);
      if (a.operands[1].address != nullptr) output<T>(a, 1)[c] = static_cast<T>(sums[c]);
    }
  }
};

/// Operands: {factors, mean gradients, mean products}, scale, sums, means, inverse deviations, count. Sizes: channels.
template <class T>
struct GradientFactors {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t channels = a.sizes[0];
    const ChannelStatistics<T> statistics = statistics_of<T>(a, 3);
    T* factors = output<T>(a, 0);
    for (std::int64_t c = share.first; c < channels; c += share.stride) {
      const auto each = gradient_factors(statistics, input<T>(a, 1), input<double>(a, 2), channels, c);
      factors[c] = each.factor;
      factors[channels + c] = each.mean_gradient;
      factors[2 * channels + c] = each.mean_product;
    }
  }
};

/// Operands: dx, x, dy, means, inverse deviations, the result of GradientFactors. Sizes: elements, channels.
template <class T>
struct NormalizeBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t channels = a.sizes[1];
    const T *x = input<T>(a, 1), *dy = input<T>(a, 2), *mean = input<T>(a, 3), *inverse = input<T>(a, 4);
    const T* factors = input<T>(a, 5);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t c = i % channels;
      const T normalized = (x[i] - mean[c]) * inverse[c];
      output<T>(a, 0)[i] = factors[c] * (dy[i] - factors[channels + c] - normalized * factors[2 * channels + c]);
    }
  }
};

// Normalisation inside samples.

/// The members of NormalizationSets, from sizes[first] on.
FARANDOLE_HOST_DEVICE inline NormalizationSets sets_of(const Arguments& a, int first) {
  return {a.sizes[first], a.sizes[first + 1], a.sizes[first + 2], a.sizes[first + 3]};
}

/// Operands: means, inverse deviations, x. Sizes: sets, the members of NormalizationSets, 1 if centred. Numbers:
/// epsilon.
template <class T>
struct MeasureSets {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const NormalizationSets sets = sets_of(a, 1);
    for (std::int64_t set = share.first; set < a.sizes[0]; set += share.stride) {
      const T* values = input<T>(a, 2) + sets.offset(set);
      double mean = 0, squares = 0;
      if (a.sizes[5] == 1) {
        for (std::int64_t row = 0; row < sets.rows; ++row) {
          for (std::int64_t i = 0; i < sets.width; ++i) mean += static_cast<double>(values[row * sets.channels + i]);
        }
        mean /= sets.count();
      }
      for (std::int64_t row = 0; row < sets.rows; ++row) {
        for (std::int64_t i = 0; i < sets.width; ++i) {
          const double deviation = static_cast<double>(values[row * sets.channels + i]) - mean;
          squares += deviation * deviation;
        }
      }
      output<T>(a, 0)[set] = static_cast<T>(mean);
      output<T>(a, 1)[set] = static_cast<T>(1 / std::sqrt(squares / sets.count() + a.numbers[0]));
    }
  }
};

/// Operands: y, x, means, inverse deviations, scale or null, shift or null. Sizes: elements, the members of
/// NormalizationSets.
template <class T>
struct NormalizeSets {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const NormalizationSets sets = sets_of(a, 1);
    const T *x = input<T>(a, 1), *scale = input<T>(a, 4), *shift = input<T>(a, 5);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t set = sets.set_of(i), c = i % sets.channels;
      const T normalized = (x[i] - input<T>(a, 2)[set]) * input<T>(a, 3)[set];
      output<T>(a, 0)[i] = normalized * (scale == nullptr ? T{1} : scale[c]) + (shift == nullptr ? T{0} : shift[c]);
    }
  }
};

/// Operands: partial sums {partials, 2, channels} of dy and of dy * x', x, dy, means, inverse deviations. Sizes:
/// partials * channels, rows of all channels, partials, the members of NormalizationSets.
template <class T>
struct SetMoments {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const NormalizationSets sets = sets_of(a, 3);
    const std::int64_t channels = sets.channels;
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t c = i % channels;
      double first = 0, second = 0;
      for (std::int64_t row = i / channels; row < a.sizes[1]; row += a.sizes[2]) {
        const std::int64_t element = row * channels + c, set = sets.set_of(element);
        const auto slope = static_cast<double>(input<T>(a, 2)[element]);
        first += slope;
        second += slope * static_cast<double>((input<T>(a, 1)[element] - input<T>(a, 3)[set]) * input<T>(a, 4)[set]);
      }
      double* sums = output<double>(a, 0) + i / channels * 2 * channels + c;
      sums[0] = first;
      sums[channels] = second;
    }
  }
};

/// Operands: dx, x, dy, means, inverse deviations, scale or null. Sizes: sets, the members of NormalizationSets, 1 if
/// centred.
template <class T>
struct PropagateSets {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const NormalizationSets sets = sets_of(a, 1);
    for (std::int64_t set = share.first; set < a.sizes[0]; set += share.stride) {
      const std::int64_t offset = sets.offset(set);
      const T *x = input<T>(a, 1) + offset, *dy = input<T>(a, 2) + offset;
      const T mean = input<T>(a, 3)[set], inverse = input<T>(a, 4)[set];
      const T* scale = input<T>(a, 5) == nullptr ? nullptr : input<T>(a, 5) + sets.first_channel(set);
      double sum = 0, products = 0;
      for (std::int64_t row = 0; row < sets.rows; ++row) {
        for (std::int64_t i = 0; i < sets.width; ++i) {
          const std::int64_t at = row * sets.channels + i;
          const auto slope = static_cast<double>(scale == nullptr ? dy[at] : dy[at] * scale[i]);
          sum += slope;
          products += slope * static_cast<double>((x[at] - mean) * inverse);
        }
      }
      const auto mean_gradient = static_cast<T>(a.sizes[5] == 1 ? sum / sets.count() : 0);
      const auto mean_product = static_cast<T>(products / sets.count());
      for (std::int64_t row = 0; row < sets.rows; ++row) {
        for (std::int64_t i = 0; i < sets.width; ++i) {
          const std::int64_t at = row * sets.channels + i;
          const T slope = scale == nullptr ? dy[at] : dy[at] * scale[i];
          output<T>(a, 0)[offset + at] = inverse * (slope - mean_gradient - (x[at] - mean) * inverse * mean_product);
        }
      }
    }
  }
};

// Embedding and attention.

/// Operands: output, indices, weights. Sizes: elements of the output, vocabulary, units.
template <class T>
struct LookUp {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t units = a.sizes[2];
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const T value = input<T>(a, 1)[i / units];
      const bool is_row = value >= T{0} && value < static_cast<T>(a.sizes[1]);
      output<T>(a, 0)[i] =
          is_row ? input<T>(a, 2)[static_cast<std::int64_t>(value) * units + i % units] : static_cast<T>(std::nan(""));
    }
  }
};

/// Operands: gradient of the weights, indices, dy. Sizes: elements of the gradient, indices, units. Each thread looks
/// at all indices, so that the sums have the order of the indices.
template <class T>
struct LookUpBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t units = a.sizes[2];
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const T row = static_cast<T>(i / units);
      T sum{0};
      for (std::int64_t k = 0; k < a.sizes[1]; ++k) {
        if (input<T>(a, 1)[k] == row) sum += input<T>(a, 2)[k * units + i % units];
      }
      output<T>(a, 0)[i] = sum;
    }
  }
};

/// Operands: y, x, row. Sizes: elements, columns.
template <class T>
struct AddRow {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      output<T>(a, 0)[i] = input<T>(a, 1)[i] + input<T>(a, 2)[i % a.sizes[1]];
    }
  }
};

/// Operands: values. Sizes: rows, length, 1 if causal. Numbers: scale.
template <class T>
struct Softmax {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t length = a.sizes[1];
    const T scale = number<T>(a, 0);
    for (std::int64_t row = share.first; row < a.sizes[0]; row += share.stride) {
      T* values = output<T>(a, 0) + row * length;
      const std::int64_t visible = a.sizes[2] == 1 ? row % length + 1 : length;
      T largest = values[0];
      for (std::int64_t k = 1; k < visible; ++k) largest = values[k] > largest ? values[k] : largest;
      double sum = 0;
      for (std::int64_t k = 0; k < visible; ++k) {
        values[k] = std::exp((values[k] - largest) * scale);
        sum += static_cast<double>(values[k]);
      }
      const auto inverse = static_cast<T>(1 / sum);
      for (std::int64_t k = 0; k < length; ++k) values[k] = k < visible ? values[k] * inverse : T{0};
    }
  }
};

/// Operands: gradients, probabilities. Sizes: rows, length, 1 if causal. Numbers: scale.
template <class T>
struct SoftmaxBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t length = a.sizes[1];
    const T scale = number<T>(a, 0);
    for (std::int64_t row = share.first; row < a.sizes[0]; row += share.stride) {
      const T* p = input<T>(a, 1) + row * length;
      T* gradient = output<T>(a, 0) + row * length;
      const std::int64_t visible = a.sizes[2] == 1 ? row % length + 1 : length;
      double product = 0;
      for (std::int64_t k = 0; k < visible; ++k)
        product += static_cast<double>(gradient[k]) * static_cast<double>(p[k]);
      const auto mean = static_cast<T>(product);
      for (std::int64_t k = 0; k < length; ++k) gradient[k] = p[k] * (gradient[k] - mean) * scale;
    }
  }
};

// Losses and metrics.

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

// Sums in double, over a fixed number of partial sums: partial sum p adds the values p, p + partials, p + 2 partials, …

/// Operands: partial sums, values. Sizes: partials, values.
template <class T>
struct SumSquares {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T* values = input<T>(a, 1);
    for (std::int64_t p = share.first; p < a.sizes[0]; p += share.stride) {
      double sum = 0;
      for (std::int64_t i = p; i < a.sizes[1]; i += a.sizes[0]) {
        sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      }
      output<double>(a, 0)[p] = sum;
    }
  }
};

/// Operands: partial sums, values in double. Sizes: partials, values, 1 to add to the old value of the partial sums.
template <class T>
struct SumDoubles {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const auto* values = input<double>(a, 1);
    auto* sums = output<double>(a, 0);
    for (std::int64_t p = share.first; p < a.sizes[0]; p += share.stride) {
      double sum = 0;
      for (std::int64_t i = p; i < a.sizes[1]; i += a.sizes[0]) sum += values[i];
      sums[p] = a.sizes[2] == 1 ? sums[p] + sum : sum;
    }
  }
};

/// Operands: a number. Numbers: what to add.
template <class T>
struct AddNumber {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    if (share.first == 0) *output<double>(a, 0) += a.numbers[0];
  }
};

// Optimizers.

/// Operands: scale, sum of squares or null. Numbers: factor, limit of the norm.
template <class T>
struct SetGradientScale {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    if (share.first != 0) return;
    double scale = a.numbers[0];
    if (a.numbers[1] > 0) {
      const double norm = std::fabs(scale) * std::sqrt(*input<double>(a, 1));
      if (norm > a.numbers[1]) scale *= a.numbers[1] / norm;
    }
    *output<double>(a, 0) = scale;
  }
};

/// The learning rate of an update: numbers[0], or with StepNumbers numbers[0] times theirs.
FARANDOLE_HOST_DEVICE inline double rate_of(const Arguments& a, const StepNumbers* step) {
  return step == nullptr ? a.numbers[0] : step->learning_rate * a.numbers[0];
}

/// Operands: parameters, velocities, gradients, scale, StepNumbers or null. Sizes: count, 1 for Nesterov's form.
/// Numbers: the rate, see rate_of, momentum and decay of SgdFactors.
template <class T>
struct Sgd {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const double rate = rate_of(a, step_numbers_of(a, 4));
    const SgdFormula<T> formula{static_cast<T>(rate), number<T>(a, 1), number<T>(a, 2),
                                static_cast<T>(*input<double>(a, 3))};
    const bool nesterov = a.sizes[1] == 1;
    const T* gradient = input<T>(a, 2);
    T *parameter = output<T>(a, 0), *velocity = output<T>(a, 1);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride)
      formula.update(nesterov, gradient[i], velocity[i], parameter[i]);
  }
};

/// Operands: parameters, first and second moments, gradients, scale, StepNumbers or null. Sizes: count. Numbers: the
/// rate, see rate_of, and the other members of AdamFactors.
template <class T>
struct Adam {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const StepNumbers* const step = step_numbers_of(a, 5);
    const double rate = rate_of(a, step), first_bias = step == nullptr ? a.numbers[4] : step->of_rule[0];
    const double correction = step == nullptr ? a.numbers[5] : step->of_rule[1];
    const AdamFormula<T> formula{.rate = static_cast<T>(rate / first_bias),
                                 .beta1 = number<T>(a, 1),
                                 .beta2 = number<T>(a, 2),
                                 .epsilon = number<T>(a, 3),
                                 .correction = static_cast<T>(correction),
                                 .decay = number<T>(a, 6),
                                 .shrink = static_cast<T>(1 - rate * a.numbers[7]),
                                 .scale = static_cast<T>(*input<double>(a, 4))};
    const T* gradient = input<T>(a, 3);
    T *parameter = output<T>(a, 0), *first = output<T>(a, 1), *second = output<T>(a, 2);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride)
      formula.update(gradient[i], first[i], second[i], parameter[i]);
  }
};

}  // namespace farandole::trainer::cuda
