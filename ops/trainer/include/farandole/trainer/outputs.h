// SPDX-License-Identifier: Apache-2.0
// Models with several inputs or outputs: their data, losses and metrics.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/trainer/graph.h"
#include "farandole/trainer/loss.h"
#include "farandole/trainer/metric.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Puts the inputs of data sets together, for a model with several inputs: sample i has the inputs of sample i of each
/// data set, one behind the other, in the order in which the model declares its inputs. Targets are put together
/// likewise; the shape of the only targets is kept. Labels are those of the only data set that has classes. Weights are
/// multiplied. The checksum covers those of all data sets.
///
///     const auto data = joined_inputs({images, ages});
/// @throws InvalidArgument  there are no data sets, their sizes differ, or two have classes
std::shared_ptr<const Dataset> joined_inputs(std::vector<std::shared_ptr<const Dataset>> data);

/// The outputs of a model, and what each is compared with: the labels of the samples, or the output's own part of the
/// targets. The targets of a sample lie one behind the other in the order of the outputs that are not in `with_labels`;
/// an output's target has the output's shape.
struct OutputParts {
  std::vector<GraphPort> outputs;             ///< Model::outputs()
  std::vector<std::string> with_labels = {};  ///< names of the outputs that are compared with the labels
};

/// A loss of one output.
template <class Scalar>
struct LossPart {
  std::string output;
  LossPointer<Scalar> loss;
  double weight = 1;  ///< factor of the loss, finite and at least 0
};

/// The sum of weight * loss over the outputs of a model. Each loss sees its output alone, in its shape, with the labels
/// or its part of the targets, and the samples' weights; `Batch::inputs` is empty.
///
///     const OutputParts parts{model.outputs(), {"class"}};
///     const auto loss = combined_loss<float>(parts, {{"class", cross_entropy_loss<float>()},
///                                                    {"price", mean_squared_error<float>(), 0.1}});
///     Trainer<float> trainer(replica, std::move(model), data, test, options, loss,
///                            {metric_of_output<float>(parts, "class", accuracy<float>())});
///
/// Cost: a copy of the outputs and their gradients.
/// @throws InvalidArgument  an output has no loss or two, a name is unknown, or a weight is out of range
template <class Scalar>
FARANDOLE_API LossPointer<Scalar> combined_loss(const OutputParts& parts, std::vector<LossPart<Scalar>> losses);

/// A metric of one output of a model, named "class.accuracy". @throws InvalidArgument  the name is unknown
template <class Scalar>
FARANDOLE_API MetricPointer<Scalar> metric_of_output(const OutputParts& parts, const std::string& output,
                                                     MetricPointer<Scalar> metric);

}  // namespace trainer
}  // namespace FARANDOLE_API
