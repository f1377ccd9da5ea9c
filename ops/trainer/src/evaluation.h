// SPDX-License-Identifier: Apache-2.0
// Distributed evaluation.
#pragma once

#include <cstdint>
#include <string>

#include "farandole/trainer/trainer.h"
#include "metric_sums.h"

namespace farandole::trainer {

/// Data to evaluate or to predict.
struct EvaluationData {
  const Dataset& data;
  std::string name;         ///< for messages: "the test data"
  bool own_shards = false;  ///< `data` is this rank's part of the samples, not all of them
};

/// Computes mean loss and metrics over a data set, with moving statistics. The replicas share the batches; the sums of
/// each batch are kept apart until all batches are done, so the result does not depend on the number of replicas.
/// Collective; blocks.
/// @param batch  samples per batch
template <class Scalar>
Evaluation evaluate(Communicator& communicator, Model<Scalar>& model, const Loss<Scalar>& loss,
                    const MetricSums<Scalar>& metrics, const EvaluationData& data, std::int64_t batch);

/// Computes the outputs of all samples, with moving statistics, on every rank; with own shards the outputs of this
/// rank's samples. Collective; blocks. @param batch  samples per forward pass
template <class Scalar>
Tensor<Scalar> predict(Communicator& communicator, Model<Scalar>& model, const EvaluationData& data,
                       std::int64_t batch);

}  // namespace farandole::trainer
