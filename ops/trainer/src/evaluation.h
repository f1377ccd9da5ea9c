// SPDX-License-Identifier: Apache-2.0
// Evaluation split over replicas.
#pragma once

#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// Mean loss and accuracy over a data set, with moving statistics. The set is cut into batches and the batches over the
/// replicas; each batch's sums are kept apart until all are known, so the result does not depend on the number of
/// replicas. Collective; blocks. @param batch  samples per batch
template <class Scalar>
Evaluation evaluate(Communicator& communicator, Model<Scalar>& model, const Dataset& data, std::int64_t batch);

}  // namespace farandole::trainer
