// SPDX-License-Identifier: Apache-2.0
#include "evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "evaluation_part.h"
#include "gathered_batch.h"
#include "kernels/transfer.h"
#include "placed_batch.h"
#include "program_code.h"
#include "wrong_label.h"

namespace farandole::trainer {

namespace {

/// Name of the data of this rank, for messages.
std::string name_of(const EvaluationData& data, const Communicator& communicator) {
  return data.own_shards ? fmt::format("rank {}'s own shard of {}", communicator.rank(), data.name) : data.name;
}

/// Calls `use(first)` for each batch of the samples of `range`, which are in `gathered` then.
/// @param name  of the data, for messages   @param check  check_gathered or check_gathered_inputs
/// @param first  index of the batch's first sample
template <class Scalar, class Check, class Use>
void for_each_batch(const Dataset& data, const std::string& name, Range range, std::int64_t batch,
                    Batch<Scalar>& gathered, const Check& check, const Use& use) {
  const std::shared_ptr<const Dataset> of_replica = data.for_replica();
  const Dataset& source = of_replica ? *of_replica : data;
  std::vector<std::uint32_t> samples;
  for (std::int64_t first = range.first; first < range.first + range.count; first += batch) {
    samples.resize(static_cast<std::size_t>(std::min(batch, range.first + range.count - first)));
    std::iota(samples.begin(), samples.end(), static_cast<std::uint32_t>(first));
    source.gather(samples, gathered);
    check(source, name, samples, gathered);
    gathered.targets_are_probabilities = source.targets_are_probabilities();
    name_samples(name, samples, [&] { use(first); });
  }
}

/// Sums of loss and metrics over a data set, which do not depend on the number of replicas. Counts are added in any
/// order, because their sums are exact. All other sums are kept apart for each batch until all batches are done.
template <class Scalar>
class EvaluationSums {
 public:
  EvaluationSums(const MetricSums<Scalar>& metrics, std::int64_t batches)
      : metrics_(metrics), of_batch_(metrics.size()), batches_(static_cast<std::size_t>(batches)) {
    std::size_t counts = 0;
    for (const auto& part : metrics.parts()) (part.counts ? counts : row_) += part.count;
    values_.resize(batches_ * row_ + counts);
  }

  void add(const Execution& execution, std::int64_t batch, double loss_sum, const Tensor<Scalar>& outputs,
           const BatchView<Scalar>& gathered) {
    Workspace::Scope scope(execution.workspace());
    const VectorView<double> sums = scope.take<double>(metrics_.size());
    clear(execution, sums);
    metrics_.add(execution, outputs, gathered, sums);
    copy_now(execution, VectorView<double>(of_batch_), sums);
    double* row = values_.data() + static_cast<std::size_t>(batch) * row_;
    double* counts = values_.data() + batches_ * row_;
    *row++ = loss_sum;
    for (const auto& part : metrics_.parts()) {
      double*& to = part.counts ? counts : row;
      for (std::size_t i = 0; i < part.count; ++i) *to++ += of_batch_[part.first + i];
    }
  }

  /// Returns the sum of the losses, and the sums of all metrics, of all replicas. Collective; blocks.
  std::pair<double, std::vector<double>> reduce(Communicator& communicator) {
    // Each entry of a row is computed by a single replica; the other replicas add zero, which is exact.
    if (communicator.size() > 1 && !values_.empty()) communicator.allreduce(values_, ReduceOp::kSum);
    double loss_sum = 0;
    std::vector<double> sums(metrics_.size());
    const double* from = values_.data();
    for (std::size_t batch = 0; batch < batches_; ++batch) {
      loss_sum += *from++;
      from = add_parts(/*counts=*/false, from, sums);
    }
    add_parts(/*counts=*/true, from, sums);
    return {loss_sum, std::move(sums)};
  }

 private:
  /// Adds the values of the metrics with these `counts` to `sums`. Returns the end of the values.
  const double* add_parts(bool counts, const double* from, std::vector<double>& sums) const {
    for (const auto& part : metrics_.parts()) {
      if (part.counts != counts) continue;
      for (std::size_t i = 0; i < part.count; ++i) sums[part.first + i] += *from++;
    }
    return from;
  }

  const MetricSums<Scalar>& metrics_;
  std::vector<double> of_batch_;  // sums of all metrics of a batch
  const std::size_t batches_;
  std::size_t row_ = 1;         // values per batch: loss, and sums that are no counts
  std::vector<double> values_;  // a row for each batch, then the counts
};

}  // namespace

template <class Scalar>
Evaluation evaluate(Communicator& communicator, Model<Scalar>& model, const Loss<Scalar>& loss,
                    const MetricSums<Scalar>& metrics, const EvaluationData& data, std::int64_t batch) {
  const EvaluationPart part = part_to_evaluate(communicator, data.data, batch, data.own_shards);
  EvaluationSums<Scalar> sums(metrics, part.batches);
  const Execution& execution = model.execution();
  Batch<Scalar> gathered;
  PlacedBatch<Scalar> placed(execution);
  call_program(communicator, "an evaluation", [&] {
    const auto add = [&](std::int64_t first) {
      const BatchView<Scalar> samples = placed.place(gathered);
      const Tensor<Scalar>& outputs = model.forward({}, samples.inputs);
      const double of_batch = loss_sum(loss, execution, outputs, samples, 1.0, nullptr);
      sums.add(execution, part.batch_at(first), of_batch, outputs, samples);
    };
    for_each_batch(data.data, name_of(data, communicator), part.own, batch, gathered, check_gathered<Scalar>, add);
  });
  const auto [loss_of_all, of_metrics] = sums.reduce(communicator);
  const std::span<const double> metric_sums(of_metrics);
  return {.loss = part.samples > 0 ? loss_of_all / static_cast<double>(part.samples) : std::nan(""),
          .metrics = call_program(communicator, "Metric::value", [&] { return metrics.results(metric_sums); })};
}

template <class Scalar>
Tensor<Scalar> predict(Communicator& communicator, Model<Scalar>& model, const EvaluationData& data,
                       std::int64_t batch) {
  const std::int64_t size = data.data.size();
  Tensor<Scalar> outputs(size, model.output_shape());
  const std::int64_t elements = outputs.sample_elements();
  const Range own = data.own_shards ? Range{0, size} : part_of(size, communicator.size(), communicator.rank());
  Batch<Scalar> gathered;
  PlacedBatch<Scalar> placed(model.execution());
  call_program(communicator, "a prediction", [&] {
    const auto compute = [&](std::int64_t first) {
      const VectorView<const Scalar> values = model.forward({}, placed.place(gathered).inputs).view();
      copy_now(model.execution(), VectorView<Scalar>(outputs.data() + first * elements, values.size()), values);
    };
    for_each_batch(data.data, name_of(data, communicator), own, batch, gathered, check_gathered_inputs<Scalar>,
                   compute);
  });
  if (communicator.size() == 1 || data.own_shards) return outputs;
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    counts.push_back(static_cast<std::size_t>(part_of(size, communicator.size(), rank).count * elements));
  }
  const std::span<const Scalar> computed(outputs.data() + own.first * elements,
                                         static_cast<std::size_t>(own.count * elements));
  communicator.allgather(computed, outputs.host(), counts);  // in place
  return outputs;
}

template Evaluation evaluate(Communicator&, Model<float>&, const Loss<float>&, const MetricSums<float>&,
                             const EvaluationData&, std::int64_t);
template Evaluation evaluate(Communicator&, Model<double>&, const Loss<double>&, const MetricSums<double>&,
                             const EvaluationData&, std::int64_t);
template Tensor<float> predict(Communicator&, Model<float>&, const EvaluationData&, std::int64_t);
template Tensor<double> predict(Communicator&, Model<double>&, const EvaluationData&, std::int64_t);

}  // namespace farandole::trainer
