// SPDX-License-Identifier: Apache-2.0
#include "evaluation.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "farandole/trainer/loader.h"

namespace farandole::trainer {

template <class Scalar>
Evaluation evaluate(Communicator& communicator, Model<Scalar>& model, const Dataset& data, std::int64_t batch) {
  if (data.size() == 0) return {};
  const std::int64_t batches = (data.size() + batch - 1) / batch;
  std::vector<double> sums(static_cast<std::size_t>(2 * batches));  // loss sum and right answers of each batch
  std::vector<std::uint32_t> samples;
  std::vector<std::int32_t> labels;
  Tensor<Scalar> inputs;
  const Range own = part_of(batches, communicator.size(), communicator.rank());
  for (std::int64_t index = own.first; index < own.first + own.count; ++index) {
    const std::int64_t first = index * batch;
    samples.resize(static_cast<std::size_t>(std::min(batch, data.size() - first)));
    std::iota(samples.begin(), samples.end(), static_cast<std::uint32_t>(first));
    data.gather(samples, inputs, labels);
    const BatchResult result = softmax_cross_entropy<Scalar>(model.forward({}, inputs), labels, 1.0, nullptr);
    sums[static_cast<std::size_t>(2 * index)] = result.loss_sum;
    sums[static_cast<std::size_t>(2 * index + 1)] = static_cast<double>(result.correct);
  }
  // Each entry is computed by a single replica; the other replicas add zero, which is exact.
  if (communicator.size() > 1) communicator.allreduce(sums, ReduceOp::kSum);
  double loss = 0, correct = 0;
  for (std::size_t index = 0; index < sums.size(); index += 2) {
    loss += sums[index];
    correct += sums[index + 1];
  }
  const auto count = static_cast<double>(data.size());
  return {.loss = loss / count, .accuracy = correct / count};
}

template Evaluation evaluate(Communicator&, Model<float>&, const Dataset&, std::int64_t);
template Evaluation evaluate(Communicator&, Model<double>&, const Dataset&, std::int64_t);

}  // namespace farandole::trainer
