// SPDX-License-Identifier: Apache-2.0
#include "evaluation.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "evaluation_part.h"
#include "program_code.h"

namespace farandole::trainer {

namespace {

/// Calls `use(first)` for each batch of the samples of `range`, whose indices and samples are in `samples` and
/// `gathered` then. @param first  index of the batch's first sample
template <class Scalar, class Use>
void for_each_batch(const Dataset& data, Range range, std::int64_t batch, Batch<Scalar>& gathered, const Use& use) {
  const std::shared_ptr<const Dataset> of_replica = data.for_replica();
  const Dataset& source = of_replica ? *of_replica : data;
  std::vector<std::uint32_t> samples;
  for (std::int64_t first = range.first; first < range.first + range.count; first += batch) {
    samples.resize(static_cast<std::size_t>(std::min(batch, range.first + range.count - first)));
    std::iota(samples.begin(), samples.end(), static_cast<std::uint32_t>(first));
    source.gather(samples, gathered);
    use(first);
  }
}

}  // namespace

template <class Scalar>
Evaluation evaluate(Communicator& communicator, Model<Scalar>& model, const Loss<Scalar>& loss, const Dataset& data,
                    std::int64_t batch, bool own_shards) {
  const EvaluationPart part = part_to_evaluate(communicator, data, batch, own_shards);
  if (part.samples == 0) return {};
  std::vector<double> sums(static_cast<std::size_t>(2 * part.batches));  // loss sum and right answers of each batch
  Batch<Scalar> gathered;
  call_program(communicator, "an evaluation", [&] {
    for_each_batch(data, part.own, batch, gathered, [&](std::int64_t first) {
      const auto entry = static_cast<std::size_t>(2 * part.batch_at(first));
      const BatchResult result = loss.evaluate(model.forward({}, gathered.inputs), gathered, 1.0, nullptr);
      sums[entry] = result.loss_sum;
      sums[entry + 1] = static_cast<double>(result.correct);
    });
  });
  // Each entry is computed by a single replica; the other replicas add zero, which is exact.
  if (communicator.size() > 1) communicator.allreduce(sums, ReduceOp::kSum);
  double loss_sum = 0, correct = 0;
  for (std::size_t index = 0; index < sums.size(); index += 2) {
    loss_sum += sums[index];
    correct += sums[index + 1];
  }
  const auto count = static_cast<double>(part.samples);
  return {.loss = loss_sum / count,
          .accuracy = data.classes() > 0 ? correct / count : std::numeric_limits<double>::quiet_NaN()};
}

template <class Scalar>
Tensor<Scalar> predict(Communicator& communicator, Model<Scalar>& model, const Dataset& data, std::int64_t batch,
                       bool own_shards) {
  Tensor<Scalar> outputs(data.size(), model.output_shape());
  const std::int64_t elements = outputs.sample_elements();
  const Range own = own_shards ? Range{0, data.size()} : part_of(data.size(), communicator.size(), communicator.rank());
  Batch<Scalar> gathered;
  call_program(communicator, "a prediction", [&] {
    for_each_batch(data, own, batch, gathered, [&](std::int64_t first) {
      const std::span<const Scalar> values = model.forward({}, gathered.inputs).values();
      std::copy(values.begin(), values.end(), outputs.data() + first * elements);
    });
  });
  if (communicator.size() == 1 || own_shards) return outputs;
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    counts.push_back(static_cast<std::size_t>(part_of(data.size(), communicator.size(), rank).count * elements));
  }
  const std::span<const Scalar> computed(outputs.data() + own.first * elements,
                                         static_cast<std::size_t>(own.count * elements));
  communicator.allgather(computed, outputs.values(), counts);  // in place
  return outputs;
}

template Evaluation evaluate(Communicator&, Model<float>&, const Loss<float>&, const Dataset&, std::int64_t, bool);
template Evaluation evaluate(Communicator&, Model<double>&, const Loss<double>&, const Dataset&, std::int64_t, bool);
template Tensor<float> predict(Communicator&, Model<float>&, const Dataset&, std::int64_t, bool);
template Tensor<double> predict(Communicator&, Model<double>&, const Dataset&, std::int64_t, bool);

}  // namespace farandole::trainer
