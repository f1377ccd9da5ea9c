// SPDX-License-Identifier: Apache-2.0
#include "metric_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "farandole/core/error.h"
#include "trainer_options.h"

namespace farandole::trainer {

template <class Scalar>
std::vector<std::string> names_of(const std::vector<MetricPointer<Scalar>>& metrics) {
  std::vector<std::string> names;
  for (const MetricPointer<Scalar>& metric : metrics) {
    if (!metric) throw InvalidArgument(fmt::format("metric {} of the trainer is null", names.size()));
    names.push_back(metric->name());
  }
  return names;
}
template std::vector<std::string> names_of(const std::vector<MetricPointer<float>>&);
template std::vector<std::string> names_of(const std::vector<MetricPointer<double>>&);

template <class Scalar>
std::vector<SharedFact> facts_of(const std::vector<MetricPointer<Scalar>>& metrics) {
  const std::vector<std::string> names = names_of(metrics);
  return {{"the list of metrics", names.empty() ? "none" : fmt::format("{}", fmt::join(names, "; "))}};
}
template std::vector<SharedFact> facts_of(const std::vector<MetricPointer<float>>&);
template std::vector<SharedFact> facts_of(const std::vector<MetricPointer<double>>&);

template <class Scalar>
void check_metrics(const std::vector<MetricPointer<Scalar>>& metrics, const Shape& output, const Dataset& training,
                   const Dataset* test) {
  std::set<std::string> names;
  std::size_t sums = 0;
  for (const MetricPointer<Scalar>& metric : metrics) {
    const std::string name = metric->name();
    if (name.empty()) throw InvalidArgument("a metric needs a name; Metric::name has returned an empty text");
    if (!names.insert(name).second) {
      throw InvalidArgument(fmt::format("two metrics have the name '{}'; reports need a name for each", name));
    }
    metric->check(output, training, kTrainingData);
    if (test != nullptr) metric->check(output, *test, kTestData);
    sums += metric->sums(output);
    if (sums <= kMaxMetricSums) continue;
    throw InvalidArgument(fmt::format("with the metric {} the metrics need {} sums; a trainer takes at most {}", name,
                                      sums, kMaxMetricSums));
  }
}
template void check_metrics(const std::vector<MetricPointer<float>>&, const Shape&, const Dataset&, const Dataset*);
template void check_metrics(const std::vector<MetricPointer<double>>&, const Shape&, const Dataset&, const Dataset*);

template <class Scalar>
MetricSums<Scalar>::MetricSums(std::vector<MetricPointer<Scalar>> metrics, const Shape& output)
    : metrics_(std::move(metrics)) {
  for (const MetricPointer<Scalar>& metric : metrics_) {
    parts_.push_back({.first = size_, .count = metric->sums(output), .counts = metric->counts()});
    size_ += parts_.back().count;
  }
}

template <class Scalar>
void MetricSums<Scalar>::check(const Shape& output, const Dataset& data, const std::string& what) const {
  for (const MetricPointer<Scalar>& metric : metrics_) metric->check(output, data, what);
}

template <class Scalar>
void MetricSums<Scalar>::add(const Execution& execution, const Tensor<Scalar>& outputs, const BatchView<Scalar>& batch,
                             VectorView<double> sums) const {
  for (std::size_t i = 0; i < metrics_.size(); ++i) {
    metrics_[i]->add(execution, outputs, batch, sums.subview(parts_[i].first, parts_[i].count));
  }
}

template <class Scalar>
std::vector<MetricResult> MetricSums<Scalar>::results(std::span<const double> sums) const {
  std::vector<MetricResult> results;
  for (EpochMetric& metric : saved(sums)) {
    const double value = metrics_[results.size()]->value(metric.sums);
    results.push_back({.name = std::move(metric.name), .value = value, .sums = std::move(metric.sums)});
  }
  return results;
}

template <class Scalar>
std::vector<EpochMetric> MetricSums<Scalar>::saved(std::span<const double> sums) const {
  std::vector<EpochMetric> saved;
  for (std::size_t i = 0; i < metrics_.size(); ++i) {
    EpochMetric metric{metrics_[i]->name(), std::vector<double>(parts_[i].count)};
    if (!sums.empty()) {
      const std::span<const double> own = sums.subspan(parts_[i].first, parts_[i].count);
      std::copy(own.begin(), own.end(), metric.sums.begin());
    }
    saved.push_back(std::move(metric));
  }
  return saved;
}

template <class Scalar>
std::vector<double> MetricSums<Scalar>::restored(Communicator& communicator,
                                                 const std::vector<EpochMetric>& saved) const {
  std::vector<double> sums(size_);
  for (std::size_t i = 0; i < metrics_.size(); ++i) {
    const auto found = std::find_if(saved.begin(), saved.end(), [&](const EpochMetric& metric) {
      return metric.name == metrics_[i]->name() && metric.sums.size() == parts_[i].count;
    });
    if (found != saved.end()) std::copy(found->sums.begin(), found->sums.end(), sums.data() + parts_[i].first);
  }
  if (!sums.empty()) communicator.broadcast(sums, 0);
  return sums;
}

template class MetricSums<float>;
template class MetricSums<double>;

}  // namespace farandole::trainer
