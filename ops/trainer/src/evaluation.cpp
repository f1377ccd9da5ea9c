// SPDX-License-Identifier: Apache-2.0
#include "evaluation.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "farandole/trainer/loader.h"
#include "program_code.h"

namespace farandole::trainer {

template <class Scalar>
Evaluation evaluate(Communicator& communicator, Model<Scalar>& model, const Loss<Scalar>& loss, const Dataset& data,
                    std::int64_t batch) {
  if (data.size() == 0) return {};
  const std::int64_t batches = (data.size() + batch - 1) / batch;
  std::vector<double> sums(static_cast<std::size_t>(2 * batches));  // loss sum and right answers of each batch
  std::vector<std::uint32_t> samples;
  Batch<Scalar> gathered;
  const Range own = part_of(batches, communicator.size(), communicator.rank());
  for (std::int64_t index = own.first; index < own.first + own.count; ++index) {
    const std::int64_t first = index * batch;
    samples.resize(static_cast<std::size_t>(std::min(batch, data.size() - first)));
    std::iota(samples.begin(), samples.end(), static_cast<std::uint32_t>(first));
    const BatchResult result = call_program(communicator, "an evaluation", [&] {
      data.gather(samples, gathered);
      return loss.evaluate(model.forward({}, gathered.inputs), gathered, 1.0, nullptr);
    });
    sums[static_cast<std::size_t>(2 * index)] = result.loss_sum;
    sums[static_cast<std::size_t>(2 * index + 1)] = static_cast<double>(result.correct);
  }
  // Each entry is computed by a single replica; the other replicas add zero, which is exact.
  if (communicator.size() > 1) communicator.allreduce(sums, ReduceOp::kSum);
  double loss_sum = 0, correct = 0;
  for (std::size_t index = 0; index < sums.size(); index += 2) {
    loss_sum += sums[index];
    correct += sums[index + 1];
  }
  const auto count = static_cast<double>(data.size());
  return {.loss = loss_sum / count,
          .accuracy = data.classes() > 0 ? correct / count : std::numeric_limits<double>::quiet_NaN()};
}

template Evaluation evaluate(Communicator&, Model<float>&, const Loss<float>&, const Dataset&, std::int64_t);
template Evaluation evaluate(Communicator&, Model<double>&, const Loss<double>&, const Dataset&, std::int64_t);

}  // namespace farandole::trainer
