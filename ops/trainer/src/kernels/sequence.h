// SPDX-License-Identifier: Apache-2.0
// The computations of transformers, part of Kernels: normalisation inside samples, embedding, attention. The formulas
// are at the layers: sample_normalization.cpp, embedding.cpp, attention.cpp.
#pragma once

#include <cstdint>

#include "farandole/trainer/execution.h"
#include "kernels/factor.h"
#include "kernels/fused_attention.h"
#include "kernels/normalization_sets.h"

namespace farandole::trainer {

/// How to normalise the sets of a batch.
struct SetNormalization {
  NormalizationSets sets;
  std::int64_t samples = 0;
  bool centred = true;  ///< subtract the mean and add a shift
  double epsilon = 0;

  std::int64_t count() const { return samples * sets.per_sample; }  ///< of sets
  std::int64_t elements() const { return samples * sets.sample_elements(); }
};

/// What normalises the elements of each set; written by `measure_sets`.
template <class Scalar>
struct SetStatistics {
  Scalar *mean = nullptr, *inverse_deviation = nullptr;
};

/// An embedding of `count` indices, whole numbers in the type of the elements.
template <class Scalar>
struct EmbeddingRows {
  const Scalar* indices = nullptr;
  std::int64_t count = 0, vocabulary = 0, units = 0;
};

/// Matrices of attention: for each of `count` pairs of a sample and a head a square of `length`.
struct AttentionScores {
  std::int64_t count = 0, length = 0;
  bool causal = false;
  double scale = 1;  ///< factor of the scores

  /// Number of positions to which position `row` attends.
  FARANDOLE_HOST_DEVICE std::int64_t visible(std::int64_t row) const { return causal ? row + 1 : length; }
};

/// Products for several samples, each with several heads: steps from one to the next, in elements.
struct BatchOfProducts {
  std::int64_t samples = 0, heads = 0;
  struct Steps {
    std::int64_t sample = 0, head = 0;
  };
  Steps left, right, result;
};

/// As Kernels: all addresses lie in one memory.
template <class Scalar>
class SequenceKernels {
 public:
  virtual ~SequenceKernels() = default;

  virtual void measure_sets(const SetNormalization& normalization, const Scalar* x,
                            const SetStatistics<Scalar>& statistics) const = 0;
  /// y = scale * x' + shift. @param scale, shift  a number for each channel; null: 1 and 0
  virtual void normalize_sets(const SetNormalization& normalization, const Scalar* x,
                              const SetStatistics<Scalar>& statistics, const Scalar* scale, const Scalar* shift,
                              Scalar* y) const = 0;
  /// Sets the gradients of scale and shift, by channel. @param shift_gradient  may be null
  virtual void set_gradients(Workspace& workspace, const SetNormalization& normalization, const Scalar* x,
                             const Scalar* dy, const SetStatistics<Scalar>& statistics, Scalar* scale_gradient,
                             Scalar* shift_gradient) const = 0;
  virtual void propagate_sets(const SetNormalization& normalization, const Scalar* x, const Scalar* dy,
                              const SetStatistics<Scalar>& statistics, const Scalar* scale, Scalar* dx) const = 0;

  /// Sets row k of `output` to the row of `weights` with index k. An index that is no row gives NaN; in host memory the
  /// caller has checked the indices.
  virtual void look_up(const EmbeddingRows<Scalar>& rows, const Scalar* weights, Scalar* output) const = 0;
  /// Sets the gradient of the weights: to each row the sum of the gradients of its uses, in their order.
  virtual void look_up_backward(Workspace& workspace, const EmbeddingRows<Scalar>& rows, const Scalar* dy,
                                Scalar* gradient) const = 0;
  /// y = x + row, for each of `rows` rows
  virtual void add_row(std::int64_t rows, std::int64_t columns, const Scalar* x, const Scalar* row,
                       Scalar* y) const = 0;

  /// As Kernels::multiply, for each sample and head. @param left, right, result  of the first  @param stride  elements
  /// from a row of a result to the next; 0: its number of columns
  virtual void multiply_batch(const BatchOfProducts& batch, const Factor<Scalar>& left, const Factor<Scalar>& right,
                              Scalar* result, std::int64_t stride) const = 0;
  /// Replaces scores by their probabilities, row by row; those of positions that a row does not attend to become 0.
  virtual void softmax(Workspace& workspace, const AttentionScores& scores, Scalar* values) const = 0;
  /// Replaces the gradients of probabilities by those of the scores: scale * p * (gradient - sum(gradient * p)).
  virtual void softmax_backward(Workspace& workspace, const AttentionScores& scores, const Scalar* probabilities,
                                Scalar* gradients) const = 0;
  /// Fused kernels of attention, which belong to this object; null if the library has none for this computation.
  virtual FusedAttention<Scalar>* fused_attention() const { return nullptr; }
};

}  // namespace farandole::trainer
